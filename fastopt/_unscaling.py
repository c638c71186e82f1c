"""What is done with a loss scale: to the loss, and to the gradients that come of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fastopt._arrays import contiguous, is_bfloat16
from fastopt._kernels import _lists
from fastopt._scaling import times
from fastopt.conversion import as_gradient
from fastopt.indexed_slices import IndexedSlices, values_of, with_values
from fastopt.step_memory import step_memory

Array = np.ndarray[Any, Any]
Gradient = Array | IndexedSlices


def scale_loss(loss: Any, scale: float) -> Any:
    """Return the loss times the scale; of a callable, a callable that returns it.

    Parameters
    ----------
    loss : callable, Tensor or ndarray
        What is none of these is returned as it is, for the optimizer to refuse.
    scale : float
        Rounded to the dtype of the loss.

    Returns
    -------
    callable, Tensor or ndarray
    """
    if callable(loss) and not hasattr(loss, "dtype"):
        return lambda: scale_loss(loss(), scale)
    dtype = getattr(loss, "dtype", None)
    if not isinstance(dtype, np.dtype) or not (dtype.kind == "f" or is_bfloat16(dtype)):
        return loss
    with np.errstate(over="ignore"):  # an infinity is what the verdict looks for
        return loss * dtype.type(scale)


def unscale_gradients(
    gradients: Iterable[Any],
    scale: float,
    dtype: np.dtype[Any] | type | None = None,
    *,
    widen: bool = False,
) -> list[Gradient | None]:
    """Return the gradients times the reciprocal of the scale.

    16-bit numbers are multiplied in a wider type and rounded once; rows of 16-bit slices that share
    an index are summed in float32 before, since their sum may be out of the range of 16 bits.

    Parameters
    ----------
    gradients : iterable of (array_like, IndexedSlices or None)
        ``None`` stays in its place.
    scale : float
        What the loss was multiplied by.
    dtype : dtype, optional
        What the gradients are to be returned in; float32 keeps what float16 cannot hold, for
        weights with a float32 master copy. By default their own dtype.
    widen : bool, default False
        Return gradients of 16 bits in float32, others in their own dtype, if no `dtype` is given.

    Returns
    -------
    list of (ndarray, IndexedSlices or None)
        The originals are not changed.

    Raises
    ------
    TypeError
        If a gradient cannot be one.
    """
    return unscaled(gradients, scale, dtype, widen=widen)[0]


def unscaled(
    gradients: Iterable[Any],
    scale: float,
    dtype: np.dtype[Any] | type | None = None,
    *,
    widen: bool = False,
) -> tuple[list[Gradient | None], bool]:
    """Return what `unscale_gradients` returns, and whether all of it is finite.

    The two are found out in one pass over the gradients.

    Parameters
    ----------
    gradients, scale, dtype, widen
        As for `unscale_gradients`.

    Returns
    -------
    gradients : list of (ndarray, IndexedSlices or None)
    finite : bool
        As `all_finite` has it.
    """
    factor = 1.0 / float(scale)
    target = None if dtype is None else np.dtype(dtype)
    gradients = list(gradients)
    if target is None and _lists.all_fit(gradients):  # as most lists of a step do
        with step_memory():
            arrays = [gradient for gradient in gradients if gradient is not None]
            products, tops = _lists.unscaled(arrays, factor, widen)
        each = iter(products)
        scaled: list[Gradient | None] = [
            None if gradient is None else next(each) for gradient in gradients
        ]
        return scaled, all(top < math.inf for top in tops)
    done: list[Gradient | None] = [None] * len(gradients)
    unknown: list[Gradient] = []  # what has to be looked at once more
    together: list[tuple[int, Gradient, np.dtype[Any]]] = []
    for k, gradient in enumerate(gradients):
        if gradient is None:
            continue
        read, wanted = _for_product(gradient, target, widen)
        if _lists.fits(values_of(read)):
            together.append((k, read, wanted))
        else:  # of extended precision
            alone = _narrowed(with_values(read, times(values_of(read), factor)), wanted)
            done[k] = alone
            unknown.append(alone)
    wide = widen or (target is not None and target != np.float16)
    with step_memory():
        arrays = [values_of(read) for _, read, _ in together]
        products, tops = _lists.unscaled(arrays, factor, wide)
    finite = True
    for (k, read, wanted), product, top in zip(together, products, tops, strict=True):
        result = _narrowed(with_values(read, product), wanted)
        done[k] = result
        if product.dtype == wanted:
            finite = finite and _is_finite(result, top)
        else:
            unknown.append(result)
    return done, finite and all_finite(unknown)


def _for_product(
    gradient: Any, target: np.dtype[Any] | None, widen: bool
) -> tuple[Gradient, np.dtype[Any]]:
    """Return a gradient as it is multiplied, and the dtype in which the product is wanted."""
    read = gradient if isinstance(gradient, np.ndarray | IndexedSlices) else as_gradient(gradient)
    assert read is not None
    half = read.dtype.itemsize < 4
    wanted = target or (np.dtype(np.float32) if half and widen else read.dtype)
    if half and isinstance(read, IndexedSlices):
        read = read.astype(np.float32).coalesce()
    elif half and read.dtype != np.float16:
        read = read.astype(np.float32)
    return with_values(read, contiguous(np.asarray(values_of(read)))), wanted


def all_finite(gradients: Any) -> bool:
    """Say whether no element of any gradient is infinite or NaN.

    For slices, rows that share an index are looked at as their sum in the dtype of the values: each
    may be finite and the sum, which is what is applied, not.

    Parameters
    ----------
    gradients : gradient, or nested list, tuple or dict of gradients
        ``None`` is passed over.

    Returns
    -------
    bool

    Raises
    ------
    TypeError
        If a gradient cannot be one.
    """
    if isinstance(gradients, list) and _lists.all_fit(gradients):  # as most lists of a step do
        tops = _lists.largest([gradient for gradient in gradients if gradient is not None])
        return all(top < math.inf for top in tops)
    read: list[Gradient] = []
    for gradient in _leaves(gradients):
        if not isinstance(gradient, np.ndarray | IndexedSlices):
            gradient = as_gradient(gradient)
        values = values_of(gradient)
        if is_bfloat16(values.dtype):
            gradient = gradient.astype(np.float32)
        elif values.dtype.kind != "f":  # integers of the caller's: nothing of them is infinite
            as_gradient(gradient)
            continue
        read.append(gradient)
    arrays = [contiguous(values_of(gradient)) for gradient in read]
    if _lists.all_fit(arrays):
        return all(map(_is_finite, read, _lists.largest(arrays)))
    return all(map(_is_finite, read, [float(np.max(np.abs(a), initial=0.0)) for a in arrays]))


def _narrowed(gradient: Gradient, dtype: np.dtype[Any]) -> Gradient:
    if gradient.dtype == dtype:
        return gradient
    with np.errstate(over="ignore"):  # an infinity is what the verdict looks for
        return gradient.astype(dtype)


def _leaves(nest: Any) -> Iterator[Any]:
    if isinstance(nest, Mapping):
        nest = list(nest.values())
    if isinstance(nest, list | tuple):
        for item in nest:
            yield from _leaves(item)
    elif nest is not None:
        yield nest


def _is_finite(gradient: Gradient, largest: float) -> bool:
    """Say whether a gradient is finite whose largest magnitude is known."""
    if not largest < math.inf:  # NaN is not
        return False
    # No sum of rows is larger than all of them at the largest magnitude, a few roundings aside.
    if not isinstance(gradient, IndexedSlices) or largest * len(gradient) < float(
        np.finfo(gradient.dtype).max / 2
    ):
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(gradient.coalesce().values).all())
