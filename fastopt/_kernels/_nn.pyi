from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

def fits(array: Any) -> bool: ...
def bias_relu(out: Array, bias: Array | None, relu: bool) -> None: ...
def mask(
    g: Array, y: Array | None = None, sums: bool = False, out: Array | None = None
) -> tuple[Array, Array | None]: ...
