import numpy as np

def lookup(
    rows: np.ndarray,
    ids: np.ndarray,
    offsets: np.ndarray | None,
    weights: np.ndarray | None,
    scales: np.ndarray | None,
    out: np.ndarray,
) -> None: ...
