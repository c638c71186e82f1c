import numpy as np

def gather(table: np.ndarray, ids: np.ndarray, out: np.ndarray) -> None: ...
def scatter_add(table: np.ndarray, ids: np.ndarray, values: np.ndarray) -> None: ...
def pooled_gather(
    table: np.ndarray,
    ids: np.ndarray,
    offsets: np.ndarray,
    weights: np.ndarray | None,
    scales: np.ndarray | None,
    out: np.ndarray,
    order: np.ndarray | None = None,
) -> None: ...
