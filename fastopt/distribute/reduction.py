"""Sums over replicas, always in the order of the replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from fastopt._arrays import is_half
from fastopt.autodiff.aggregation import add_n, scatter_add
from fastopt.conversion import as_gradient
from fastopt.distribute.values import ReduceOp
from fastopt.indexed_slices import IndexedSlices

Array = np.ndarray[Any, Any]
Gradient = Array | IndexedSlices


_KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def read(terms: Sequence[Any], name: str) -> Sequence[Gradient | None]:
    """Return the terms as arrays and slices that fit each other.

    Parameters
    ----------
    terms : sequence
        What the replicas have.
    name : str
        What it is for; may be empty.

    Raises
    ------
    TypeError
        If one cannot be a gradient.
    ValueError
        If their shapes differ.
    """
    if _are_alike(terms):  # as nearly always
        return terms
    what = f"the value for {name!r}" if name else "the value"
    gradients = [
        as_gradient(term, name=f"{what} of replica {replica}") for replica, term in enumerate(terms)
    ]
    whole: dict[tuple[int, ...], int] = {}
    rows: dict[tuple[int, ...], int] = {}
    for replica, gradient in enumerate(gradients):
        if isinstance(gradient, IndexedSlices):
            rows.setdefault(gradient.values.shape[1:], replica)
            if gradient.dense_shape is not None:
                whole.setdefault(gradient.dense_shape, replica)
        elif gradient is not None:
            rows.setdefault(gradient.shape[1:], replica)
            whole.setdefault(gradient.shape, replica)
    for shapes, kind in ((whole, "shape"), (rows, "rows of shape")):
        if len(shapes) > 1:
            (one, first), (other, second) = list(shapes.items())[:2]
            raise ValueError(
                f"{what} must have one shape on all replicas: on replica {first} it has {kind}"
                f" {one}, on replica {second} {other}"
            )
    return gradients


def total(terms: Sequence[Gradient | None]) -> Gradient | None:
    """Return the sum of the terms.

    Dense terms are added in one pass, slices are concatenated, so that repeated rows are grouped
    once over all replicas; of both the slices are added into the dense sum. A term that is None
    adds nothing; without any other the sum is None. 16-bit numbers are added in float32 and rounded
    once. The result may be one of the terms.
    """
    if _are_alike(terms):
        return terms[0] if len(terms) == 1 else np.asarray(add_n(list(terms), [False] * len(terms)))
    given = [term for term in terms if term is not None]
    dense = [term for term in given if not isinstance(term, IndexedSlices)]
    slices = [term for term in given if isinstance(term, IndexedSlices)]
    if len(given) < 2:
        return given[0] if given else None
    dtype = np.result_type(*(term.dtype for term in given))
    if not dense:
        return IndexedSlices.concatenate([term.astype(dtype) for term in slices])
    wide = np.dtype(np.float32) if is_half(dtype) else dtype
    arrays = [term.astype(wide, copy=False) for term in dense]
    if len(arrays) > 1:
        sum_: Array = np.asarray(add_n(arrays, [False] * len(arrays)))
    else:
        sum_ = np.array(arrays[0])
    for term in slices:
        scatter_add(sum_, term.astype(wide))
    return sum_.astype(dtype, copy=False)


def _are_alike(terms: Sequence[Any]) -> TypeGuard[Sequence[Array]]:
    """Say whether the terms are arrays that a kernel can add as they are."""
    first = terms[0]
    if type(first) is not np.ndarray or not first.flags.carray:
        return False
    dtype, shape = first.dtype, first.shape
    return (dtype is _KERNEL_DTYPES[0] or dtype is _KERNEL_DTYPES[1]) and all(
        type(term) is np.ndarray
        and term.dtype is dtype
        and term.shape == shape
        and term.flags.carray
        for term in terms[1:]
    )


def divided(gradient: Gradient | None, op: ReduceOp, count: int) -> Gradient | None:
    """Return a sum as `op` wants it."""
    if gradient is None or op is ReduceOp.SUM or count == 1:
        return gradient
    if isinstance(gradient, IndexedSlices):
        return gradient._with_values(_quotient(gradient.values, count))
    return _quotient(gradient, count)


def _quotient(array: Array, count: int) -> Array:
    return np.asarray(np.divide(array, array.dtype.type(count)))
