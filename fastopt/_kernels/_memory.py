"""Arrays for the state of optimizers, placed so that a step is fast."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike

_PAGE = 4096
_HUGE_PAGE = 1 << 21
_STEP = 1088


def empty(shape: int | tuple[int, ...], dtype: DTypeLike, stagger: int) -> np.ndarray:
    """Return an uninitialised array that starts ``stagger * 1088`` bytes into a page.

    A rule reads weight, gradient and slots at the same index. Where all of them start at the same
    place of a page, as big arrays do, they meet in the same set of the first cache, and a step
    takes two to four times as long. The slots of a variable have ``stagger`` 1, 2, 3, ...

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the array.
    dtype : dtype_like
        Its dtype.
    stagger : int
        Which place in a page, 0 or more.

    Returns
    -------
    ndarray
        C-contiguous and aligned to 64 bytes; the only one that uses its memory. NumPy asks for
        huge pages for memory of 4 MiB and more.
    """
    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    size = math.prod(shape) * dtype.itemsize
    # Rows are read here and there: from one huge page on, arrays start where such a page does.
    unit = _HUGE_PAGE if size >= _HUGE_PAGE else _PAGE
    # Whole units: what lies within the last one is in a huge page, too.
    memory = np.empty(-(-size // unit) * unit + unit + _PAGE, np.uint8)
    start = -memory.ctypes.data % unit + stagger * _STEP % _PAGE
    return np.ndarray(shape, dtype, memory, offset=start)
