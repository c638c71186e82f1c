"""What was collected for a step that is not done yet, read from a file and checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt._arrays import compute_dtype, is_half
from fastopt._sums import SumState
from fastopt.checkpoint._document import SumRecord
from fastopt.checkpoint._file import TensorFile

Array = np.ndarray[Any, Any]

_PARTS = ({"dense"}, {"values", "indices", "counts"})


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of gradients that was saved by its name.

    Raises
    ------
    ValueError
        If gradients have no such dtype.
    """
    try:
        dtype = np.dtype(np.sctypeDict.get(name, name))
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind != "f" and not is_half(dtype):
        raise ValueError(f"gradients of dtype {name!r}")
    return dtype


def read_sum(file: TensorFile, record: SumRecord, shape: tuple[int | None, ...] | None) -> SumState:
    """Return a sum of gradients, in memory of its own.

    Parameters
    ----------
    file : TensorFile
    record : SumRecord
    shape : tuple of (int or None), optional
        That of the gradients, as far as it is known.

    Raises
    ------
    ValueError
        If it is no such sum. The message says what is wrong with it.
    """
    dtype = compute_dtype(dtype_of(record.dtype))
    if set(record.tensors) not in _PARTS:
        raise ValueError(f"parts {sorted(record.tensors)}")
    arrays = {part: file.array(tensor).copy() for part, tensor in record.tensors.items()}
    total = arrays["dense"] if "dense" in arrays else arrays["values"]
    if total.dtype != dtype:
        raise ValueError(f"dtype {total.dtype} in the file, {dtype} here")
    if "dense" in arrays:
        _require_shape(total.shape, shape)
    else:
        indices, counts = arrays["indices"], arrays["counts"]
        if total.ndim == 0 or indices.dtype != np.int64 or counts.dtype != np.float64:
            raise ValueError("slices that are none")
        if indices.shape != total.shape[:1] or counts.shape != total.shape[:1]:
            raise ValueError(f"{indices.shape} indices and {counts.shape} counts")
        n_rows = int(indices[-1]) + 1 if indices.size else 0
        if indices.size and (indices[0] < 0 or np.any(np.diff(indices) <= 0)):
            raise ValueError("rows that do not ascend")
        if shape is not None and shape:
            if shape[0] is not None and n_rows > shape[0]:
                raise ValueError(f"row {n_rows - 1} in the file, {shape[0]} rows here")
            _require_shape((None, *total.shape[1:]), shape)
        elif shape == ():
            raise ValueError("rows in the file, a scalar here")
    return SumState(record.dtype, arrays)


def _require_shape(found: tuple[int | None, ...], wanted: tuple[int | None, ...] | None) -> None:
    if wanted is not None and (
        len(found) != len(wanted)
        or any(
            n is not None and m is not None and n != m for n, m in zip(found, wanted, strict=True)
        )
    ):
        raise ValueError(f"shape {found} in the file, {wanted} here")
