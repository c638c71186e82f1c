"""Hypothesis strategies for variables, dense gradients and slices."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastopt.indexed_slices import IndexedSlices

FLOAT_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
INDEX_DTYPES = (np.dtype(np.int32), np.dtype(np.int64))


def float_dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    """Dtypes that the kernels compute in."""
    return st.sampled_from(FLOAT_DTYPES)


def numbers(dtype: np.dtype[Any]) -> st.SearchStrategy[float]:
    """Finite numbers of moderate size, exact in `dtype`; zeros of both signs among them."""
    return st.floats(-100, 100, width=8 * dtype.itemsize, allow_subnormal=False)


def whole_numbers(dtype: np.dtype[Any]) -> st.SearchStrategy[float]:
    """Small integers as floats: their sums are exact in any order."""
    return st.integers(-8, 8).map(float)


def shapes(min_dims: int = 1, max_dims: int = 3, min_side: int = 1) -> st.SearchStrategy[Any]:
    """Shapes of variables."""
    return hnp.array_shapes(min_dims=min_dims, max_dims=max_dims, min_side=min_side, max_side=6)


@st.composite
def arrays(
    draw: st.DrawFn,
    shape: tuple[int, ...] | None = None,
    dtype: np.dtype[Any] | None = None,
    elements: Any = numbers,
) -> np.ndarray[Any, Any]:
    """C-contiguous arrays, as initial values of variables and as dense gradients."""
    dtype = draw(float_dtypes()) if dtype is None else dtype
    shape = draw(shapes()) if shape is None else shape
    return draw(hnp.arrays(dtype, shape, elements=elements(dtype)))


@st.composite
def any_layout(draw: st.DrawFn, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same numbers in another layout: strided, Fortran order, reversed, swapped, read-only."""
    kind = draw(st.sampled_from(["plain", "fortran", "strided", "reversed", "swapped", "offset"]))
    if kind == "fortran":
        result = np.asfortranarray(array)
    elif kind == "strided":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        result = wide[..., ::2]
        result[...] = array
    elif kind == "reversed":
        result = array[::-1].copy()[::-1]
    elif kind == "swapped":
        result = array.astype(array.dtype.newbyteorder("S"))
    elif kind == "offset":  # begins at an odd address
        memory = np.zeros(array.nbytes + 1, np.uint8)
        result = memory[1:].view(array.dtype).reshape(array.shape)
        result[...] = array
    else:
        result = array.copy()
    if draw(st.booleans()):
        result.flags.writeable = False
    return result


@st.composite
def indices(
    draw: st.DrawFn, n_rows: int, max_size: int = 12, dtype: np.dtype[Any] | None = None
) -> np.ndarray[Any, Any]:
    """Row numbers below `n_rows`: empty, repeated, unsorted, int32 or int64."""
    dtype = draw(st.sampled_from(INDEX_DTYPES)) if dtype is None else dtype
    rows = draw(st.lists(st.integers(0, n_rows - 1), max_size=max_size if n_rows else 0))
    return np.array(rows, dtype)


@st.composite
def slices(
    draw: st.DrawFn,
    shape: tuple[int, ...] | None = None,
    dtype: np.dtype[Any] | None = None,
    elements: Any = numbers,
    dense_shape: bool | None = None,
) -> IndexedSlices:
    """`IndexedSlices` of a variable of `shape`, with or without its dense shape."""
    dtype = draw(float_dtypes()) if dtype is None else dtype
    shape = draw(shapes()) if shape is None else shape
    rows = draw(indices(shape[0]))
    values = draw(hnp.arrays(dtype, (rows.size, *shape[1:]), elements=elements(dtype)))
    known = draw(st.booleans()) if dense_shape is None else dense_shape
    return IndexedSlices(values, rows, shape if known else None)
