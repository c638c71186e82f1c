"""What makes an array of numbers fit for the kernels, whoever passed it.

The kernels want C-contiguous, aligned memory in native byte order. Everything here returns the
caller's own memory when it fits and a copy when it does not; the caller's object is never written
to.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_INT64_MAX = np.iinfo(np.int64).max


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Say whether `dtype` is the bfloat16 that ml_dtypes (and so JAX) registers with NumPy.

    NumPy reports its kind as "V" like that of raw bytes, so it can only be told by its name.
    """
    return dtype.name == "bfloat16"


def is_half(dtype: np.dtype[Any]) -> bool:
    """Say whether `dtype` is a float of 16 bits: float16 or bfloat16."""
    return dtype.itemsize == 2 and (dtype.char == "e" or is_bfloat16(dtype))


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which numbers of `dtype` are computed: float32 for those of 16 bits."""
    return _FLOAT32 if is_half(dtype) else dtype


def plain_array(value: Any, name: str) -> np.ndarray[Any, Any]:
    """Return `value` as an array of the base class, of whatever dtype and strides.

    Parameters
    ----------
    value : array_like
        Anything that `numpy.asarray` understands, or that offers ``__dlpack__``.
    name : str
        What the value is called in error messages.

    Raises
    ------
    TypeError
        If it cannot be made an array, is an array of objects, or has masked entries.
    """
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray and np.ma.is_masked(value):
            raise TypeError(
                f"{name} has masked entries, which have no value; fill them first, for example "
                f"with `.filled(0)`"
            )
        array = np.asarray(value)
    else:
        try:
            if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
                array = np.from_dlpack(value)
            else:
                array = np.asarray(value)
        except (ValueError, TypeError, OverflowError, BufferError, RuntimeError) as error:
            raise TypeError(
                f"{name} cannot be made an array of real numbers: {shown(value)} ({error})"
            ) from error
    if array.dtype.kind == "O":
        raise TypeError(f"{name} cannot be made an array of real numbers: {shown(value)}")
    return array


def real_array(value: Any, name: str) -> np.ndarray[Any, Any]:
    """Return `value` as a base-class array of real numbers, aligned and in native byte order.

    Parameters
    ----------
    value : array_like
        As for `plain_array`.
    name : str
        What the value is called in error messages.

    Returns
    -------
    ndarray
        Of a floating or integer dtype, strides as they came. bfloat16 becomes float32, which holds
        it exactly.

    Raises
    ------
    TypeError
        If the values are not real numbers (bool, complex, object, strings, dates, records), cannot
        be made an array, or are masked.
    """
    if type(value) is np.ndarray and value.flags.aligned:
        if value.dtype is _FLOAT32 or value.dtype is _FLOAT64:
            return value
    array = plain_array(value, name)
    dtype = array.dtype
    if dtype.kind not in "fiu":
        if is_bfloat16(dtype):
            return array.astype(np.float32)
        raise TypeError(f"{name} must hold real numbers, got dtype {dtype}: {shown(value)}")
    if not dtype.isnative:
        return array.astype(dtype.newbyteorder("="))
    if not array.flags.aligned:
        return array.copy()
    return array


def contiguous(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return `array` if it is C-contiguous, else a C-contiguous copy of the same shape."""
    if array.flags.c_contiguous:
        return array
    return array.copy(order="C")


def possible_ids(value: Any, name: str) -> np.ndarray[Any, Any]:
    """Return what may be row numbers as an array of numbers of whatever dtype and shape.

    Raises
    ------
    TypeError
        If it cannot be made an array of numbers (None, a set, lists of unequal length, integers
        beyond 64 bits), or has masked entries.
    """
    if type(value) is np.ndarray:
        array = value
    elif isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise TypeError(
            f"masked entries of {name} have no value; leave them out, for example with "
            f"`.compressed()`"
        )
    else:
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:  # lists of unequal length, say
            raise TypeError(
                f"{name} must be an array of integers, got {shown(value)} ({error})"
            ) from error
    if array.dtype.kind == "O":
        raise TypeError(f"{name} must be an array of integers, got {shown(value)}")
    return array


def index_array(value: Any, name: str) -> np.ndarray[Any, Any]:
    """Return `value` as a contiguous 1-D array of row numbers, int32 or int64.

    Integers are judged by kind and size, not by the C type that made them: `longlong` and `long`
    are the same 64 bits. int32 stays int32, every other integer dtype becomes int64.

    Raises
    ------
    TypeError
        If the row numbers are not integers, or some are masked. An empty array may also be of a
        floating dtype, because `numpy.array([])` is.
    ValueError
        If they are not one-dimensional.
    IndexError
        If an unsigned number does not fit into int64: no array has that many rows.
    """
    array = possible_ids(value, name)
    dtype = array.dtype
    if (dtype is _INT64 or dtype is _INT32) and array.ndim == 1 and array.flags.carray:
        return array
    kind = dtype.kind
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if kind == "i":
        target = np.int32 if dtype.itemsize == 4 else np.int64
    elif kind == "u":
        if dtype.itemsize == 8 and array.size and int(array.max()) > _INT64_MAX:
            position = int(np.argmax(array > np.uint64(_INT64_MAX)))
            raise IndexError(
                f"{name}[{position}] is {int(array[position])}, more than any array has rows"
            )
        target = np.int64
    elif kind == "f" and array.size == 0:
        target = np.int64
    else:
        raise TypeError(f"{name} must be integers, got dtype {dtype}: {shown(value)}")
    # Also brings swapped bytes, odd strides and C types of another name into the form the kernels
    # read.
    return np.require(array, target, ["C", "A"])


def dtype_of(value: Any, name: str) -> np.dtype[Any]:
    """Return what stands for a dtype as one.

    Raises
    ------
    TypeError
        If it stands for none.
    """
    try:
        return np.dtype(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a NumPy dtype, got {shown(value)} ({error})") from error


def shape_tuple(
    value: Sequence[SupportsIndex] | np.ndarray[Any, Any], name: str
) -> tuple[int, ...]:
    """Return `value` as a shape.

    Raises
    ------
    TypeError
        If it is not a sequence of integers.
    ValueError
        If a dimension is negative or larger than any array's.
    """
    try:
        shape = tuple(operator.index(n) for n in value)
    except TypeError as error:
        raise TypeError(f"{name} must be a sequence of integers, got {shown(value)}") from error
    for n in shape:
        if not 0 <= n <= _INT64_MAX:
            raise ValueError(f"{name} has a dimension of {n}: {shape}")
    return shape


_brief = reprlib.Repr()
_brief.maxother = _brief.maxstring = 80


def shown(value: Any) -> str:
    """Return a short text of `value` and its type for an error message."""
    return f"{' '.join(_brief.repr(value).split())} of type {type(value).__name__}"


def cast_real(array: np.ndarray[Any, Any], dtype: np.dtype[Any], name: str) -> np.ndarray[Any, Any]:
    """Return `array` in `dtype`: floats as NumPy's in-place operators cast, integers exactly.

    Raises
    ------
    TypeError
        If a float would become an integer, or an integer cannot be represented in `dtype`.
    """
    source = array.dtype
    if source == dtype:
        return array
    if source.kind in "iu" and dtype.kind in "fiu":
        cast = _exact_floats(array, dtype) if dtype.kind == "f" else _exact_integers(array, dtype)
        if cast is None:
            raise TypeError(
                f"{name} has integers of dtype {source} that {dtype} cannot hold exactly"
            )
        return cast
    # NumPy has no casting rules for bfloat16, the one dtype here of another kind: it takes any
    # float.
    if not (np.can_cast(source, dtype, "same_kind") or (is_bfloat16(dtype) and source.kind == "f")):
        raise TypeError(f"{name} has dtype {source}, which is not cast to {dtype}")
    return array.astype(dtype)


def _exact_floats(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """Return integers as floats of `dtype`, or None if one of them would be rounded."""
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    limits = np.iinfo(array.dtype)
    # Casting back is defined only for floats within the integers' range, whose upper end is a power
    # of two and so exact as a float when taken as exclusive.
    wide = cast.astype(np.float64)
    inside = (wide >= float(limits.min)) & (wide < float(int(limits.max) + 1))
    if inside.all() and (wide.astype(array.dtype) == array).all():
        return cast
    return None


def _exact_integers(
    array: np.ndarray[Any, Any], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any] | None:
    """Return integers in another integer dtype, or None if one of them is out of its range."""
    limits = np.iinfo(dtype)
    if array.size and not (limits.min <= int(array.min()) and int(array.max()) <= limits.max):
        return None
    return array.astype(dtype)
