import numpy as np

def pooled(
    table: np.ndarray,
    ids: object,
    offsets: object,
    weights: object,
    combiner: str,
    keep: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None] | None: ...
