import numpy as np

class RowSet:
    rows: np.ndarray
    numbers: np.ndarray
    def __init__(self, ids: np.ndarray, n_rows: int) -> None: ...
    @staticmethod
    def suits(n: int, n_rows: int) -> bool: ...
    def products(
        self, values: np.ndarray, offsets: np.ndarray, coefficients: np.ndarray
    ) -> np.ndarray: ...
    def sums(
        self, g: np.ndarray, offsets: np.ndarray, coefficients: np.ndarray | None
    ) -> np.ndarray: ...
