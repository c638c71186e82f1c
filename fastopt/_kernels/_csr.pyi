import numpy as np

def touched_rows(
    indptr: np.ndarray, columns: np.ndarray, data: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray] | None: ...
