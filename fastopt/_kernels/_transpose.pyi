import numpy as np

def sum_by_row(
    g: np.ndarray,
    offsets: np.ndarray,
    ids: np.ndarray,
    coefficients: np.ndarray | None,
    n_rows: int,
    bags: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray] | None: ...
def checked_bags(
    g: np.ndarray,
    offsets: np.ndarray,
    n: int,
    coefficients: np.ndarray | None,
    n_bags: int = -1,
) -> np.ndarray: ...
def pair_gradients(
    first: np.ndarray,
    ids: np.ndarray,
    second: np.ndarray,
    others: np.ndarray,
    starts: np.ndarray,
    weights: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None: ...
