from typing import Any

import numpy as np

def widen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]: ...
def narrow(
    array: np.ndarray[Any, Any], dtype: Any, key: int | None = None
) -> np.ndarray[Any, Any]: ...
