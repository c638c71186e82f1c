"""The memory of a variable: a copy of a value, or the caller's own.

Kernels write to it. So it is C-contiguous, aligned, writable and in native byte order, and it never
moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt._arrays import cast_real, is_bfloat16, plain_array, shown
from fastopt._kernels import _memory
from fastopt._sparse import is_scipy_sparse
from fastopt.conversion import is_torch_tensor, torch_array
from fastopt.indexed_slices import IndexedSlices

Array = np.ndarray[Any, Any]

# Smaller arrays lie in the first cache anyway, where placing them within a page brings nothing.
_PLACED_BYTES = 16 * 1024


def checked_dtype(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Return `dtype` in native byte order if a variable may have it.

    Raises
    ------
    TypeError
        If it may not.
    """
    if dtype.kind in "iub" or dtype.char in "efd" or is_bfloat16(dtype):
        return dtype.newbyteorder("=")
    raise TypeError(
        f"{what} must be float16, float32, float64, an integer or bool for a variable, got {dtype}"
    )


def dense_array(value: Any, what: str, dtype: np.dtype[Any] | None) -> Array:
    """Return `value` as an array of numbers or booleans, in whatever memory it is.

    Python floats and lists of them, which have no dtype, take `dtype` if it is a float, by default
    float32.

    Raises
    ------
    TypeError
        If the value is sparse or no array of real numbers or booleans.
    """
    if isinstance(value, IndexedSlices) or is_scipy_sparse(value):
        raise _sparse_error(what, type(value).__name__)
    if is_torch_tensor(value):
        if str(value.layout) != "torch.strided":
            raise _sparse_error(what, str(value.layout))
        return _numeric(torch_array(value, what), value, what)
    array = _numeric(plain_array(value, what), value, what)
    if array.dtype == np.float64 and _is_python(value):
        target = np.dtype(np.float32) if dtype is None else dtype
        return array.astype(target) if target.kind == "f" else array
    return array


def owned(value: Any, dtype: np.dtype[Any] | None, what: str) -> Array:
    """Return the value in memory of our own."""
    array = dense_array(value, what, dtype)
    target = checked_dtype(array.dtype, what) if dtype is None else dtype
    cast = cast_real(array, target, what)
    if cast.nbytes < _PLACED_BYTES:
        return np.array(cast, dtype=target, order="C", copy=True)
    storage: Array = _memory.empty(cast.shape, target, 0)
    np.copyto(storage, cast)
    return storage


def shared(value: Any, dtype: np.dtype[Any] | None, what: str) -> Array:
    """Return the caller's own memory.

    Raises
    ------
    TypeError
        As `dense_array`.
    ValueError
        If the memory cannot be trained in place.
    """
    array = dense_array(_in_place(value, what), what, dtype)
    checked_dtype(array.dtype, what)
    flags = array.flags
    obstacle = ""
    if not array.dtype.isnative:
        obstacle = f"its byte order ({array.dtype}) is not this machine's"
    elif dtype is not None and array.dtype != dtype:
        obstacle = f"it has dtype {array.dtype} and not {dtype}"
    elif not flags.writeable:  # that of another variable too: its `__array__` is a read-only view
        obstacle = "it is read-only"
    elif not flags.c_contiguous:
        obstacle = f"it is not C-contiguous (strides {array.strides})"
    elif not flags.aligned:
        obstacle = f"it is not aligned for {array.dtype}"
    if obstacle:
        raise ValueError(f"{what} cannot be shared: {obstacle}")
    return array


def _in_place(value: Any, what: str) -> Any:
    """Return `value` as something that `dense_array` reads without making a copy."""
    if is_torch_tensor(value):
        if str(value.dtype) == "torch.bfloat16":
            raise ValueError(f"{what} cannot be shared: NumPy has no bfloat16")
        return value
    if isinstance(value, np.ndarray | IndexedSlices) or is_scipy_sparse(value):
        return value
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return value
    try:
        return np.asarray(value, copy=False)
    except (ValueError, TypeError, BufferError) as error:
        raise ValueError(
            f"{what} cannot be shared: {shown(value)} has no memory to train in place"
        ) from error


def _numeric(array: Array, value: Any, what: str) -> Array:
    if array.dtype.kind in "fiub" or is_bfloat16(array.dtype):
        return array
    raise TypeError(
        f"{what} must hold real numbers or booleans, got dtype {array.dtype}: {shown(value)}"
    )


def _sparse_error(what: str, kind: str) -> TypeError:
    return TypeError(f"{what} is sparse ({kind}): variables are dense, gradients may be sparse")


def _is_python(value: Any) -> bool:
    """Say whether nested lists begin with a plain Python number, which has no dtype of its own."""
    while isinstance(value, list | tuple):
        if not value:
            return True
        value = value[0]
    return not hasattr(value, "dtype") and isinstance(value, int | float)
