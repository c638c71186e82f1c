import numpy as np

def row_dots(
    first: np.ndarray,
    ids: np.ndarray,
    second: np.ndarray,
    others: np.ndarray,
    out: np.ndarray,
) -> None: ...
def pair_dots(
    first: np.ndarray, ids: np.ndarray, second: np.ndarray, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None: ...
