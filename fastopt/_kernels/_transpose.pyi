import numpy as np

def sum_by_row(
    g: np.ndarray,
    offsets: np.ndarray,
    ids: np.ndarray,
    coefficients: np.ndarray | None,
    n_rows: int,
) -> tuple[np.ndarray, np.ndarray] | None: ...
