"""Clipping of gradients: dense, sparse, absent, and recorded.

A sparse gradient is clipped as the gradient that it stands for: rows of one index are summed first,
and slices that are clipped list every index once. TensorFlow clips the stored rows as they are, so
that its norm of a gradient depends on how often a row happens to be listed;
``merge_repeated=False`` gives its numbers.

All norms of a list are taken in one pass over it, and all products made in another.

Gradients of bfloat16 are computed, and come back, in float32, which holds them exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastopt._arrays import plain_array, shown
from fastopt._kernels import _lists
from fastopt._norms import WHOLE, norm_of, norm_of_dense, norms_over, repeats
from fastopt._scaling import fits_normally, times, times_all
from fastopt._validate import Real
from fastopt.autodiff import Differentiable, defvjp, defvjp_argnums, primitive
from fastopt.conversion import as_gradient
from fastopt.indexed_slices import IndexedSlices, values_of, with_values
from fastopt.step_memory import step_memory

__all__ = [
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "global_norm",
]

Array = np.ndarray[Any, Any]
Gradient = Array | IndexedSlices


def clip_by_value(
    t: Any,
    clip_value_min: Any,
    clip_value_max: Any,
    name: str | None = None,
    *,
    merge_repeated: bool = True,
) -> Any:
    """Limit every element to an interval: ``max(min(t, clip_value_max), clip_value_min)``.

    Parameters
    ----------
    t : array_like, IndexedSlices, Variable or Tensor
        What to clip. Of slices only the listed rows are clipped, also where 0 is outside the
        interval.
    clip_value_min, clip_value_max : array_like
        The interval, broadcast to the shape of `t` (of slices: of their rows). If they cross,
        `clip_value_min` wins.
    name : str, optional
        Not used.
    merge_repeated : bool, default True
        Sum rows of one index before clipping, which TensorFlow does not do.

    Returns
    -------
    ndarray, IndexedSlices or Tensor
        Of the kind, shape and dtype of `t`. NaN stays NaN.

    Raises
    ------
    TypeError
        If `t` or a limit is no array of numbers, or `t` holds integers and a limit does not.
    ValueError
        If a limit does not broadcast to the shape of `t`.

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> fo.clip.clip_by_value(np.array([-5.0, 2.0, 6.0]), -4.4, 4.4)
    array([-4.4,  2. ,  4.4])
    """
    if isinstance(t, Differentiable):
        low = _bound("clip_value_min", clip_value_min, t.dtype, t.shape)
        high = _bound("clip_value_max", clip_value_max, t.dtype, t.shape)
        return np.maximum(np.minimum(t, high), low)
    if isinstance(t, np.ndarray | np.generic) and t.dtype.kind in "iu":
        read: Any = np.asarray(t)  # integers stay integers here: nothing is computed
    else:
        read = _read(t, "t")
    values = values_of(read)
    low = _bound("clip_value_min", clip_value_min, values.dtype, values.shape)
    high = _bound("clip_value_max", clip_value_max, values.dtype, values.shape)
    if merge_repeated and repeats(read):
        read = read.coalesce()
    return with_values(read, _bounded(values_of(read), low, high))


def clip_by_norm(
    t: Any,
    clip_norm: Any,
    axes: int | Sequence[int] | None = None,
    name: str | None = None,
    *,
    merge_repeated: bool = True,
) -> Any:
    """Scale down to a Euclidean norm: ``t * clip_norm / max(norm(t), clip_norm)``.

    Parameters
    ----------
    t : array_like, IndexedSlices, Variable or Tensor
        What to clip.
    clip_norm : float
        The largest norm. A negative one counts as 0.
    axes : int or sequence of int, optional
        Axes over which norms are taken, one norm for each position on the others. By default one
        norm of all elements. Axis 0 of slices is that of the listed rows.
    name : str, optional
        Not used.
    merge_repeated : bool, default True
        Sum rows of one index first, so that the norm is that of the gradient. TensorFlow takes
        that of the rows as they are stored.

    Returns
    -------
    ndarray, IndexedSlices or Tensor
        Of the kind, shape and dtype of `t`; `t` itself if nothing has to be scaled.

    Raises
    ------
    TypeError
        If `t` is no array of real numbers or `clip_norm` no number.
    ValueError
        If `clip_norm` is not finite or an axis does not exist.

    Notes
    -----
    With an infinite norm finite elements become 0 and infinite ones NaN, as in TensorFlow; a norm
    that is not a number makes all elements NaN.

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> fo.clip.clip_by_norm(np.array([[-3.0, 0.0], [4.0, 0.0]]), 4.0)
    array([[-2.4,  0. ],
           [ 3.2,  0. ]])
    >>> fo.clip.clip_by_norm(fo.IndexedSlices([[3.0, 4.0]], [2]), 1.0).values
    array([[0.6, 0.8]])
    """
    limit = max(_number("clip_by_norm", "clip_norm", clip_norm), 0.0)
    if isinstance(t, Differentiable):
        return _recorded_by_norm(_floating(t), limit, _axes(axes, t.ndim))
    read = _read(t, "t")
    positions = _axes(axes, values_of(read).ndim)
    if positions is None:
        return _by_norm_of(read, limit, merge_repeated)
    if merge_repeated and repeats(read):
        read = read.coalesce()
    return with_values(read, _by_norms(values_of(read), limit, positions))


def clip_by_average_norm(
    t: Any, clip_norm: Any, name: str | None = None, *, merge_repeated: bool = True
) -> Any:
    """Scale down to a norm per element: ``t * clip_norm * min(N / norm(t), 1 / clip_norm)``.

    The average norm is the Euclidean norm divided by the number N of elements, as TensorFlow
    has it.

    Parameters
    ----------
    t : array_like, IndexedSlices, Variable or Tensor
        What to clip. Of slices, N counts the elements of the listed rows.
    clip_norm : float
        The largest average norm. With a negative one nothing is clipped, as in TensorFlow.
    name : str, optional
        Not used.
    merge_repeated : bool, default True
        Sum rows of one index first; N counts such a row once. TensorFlow takes the rows as they
        are stored.

    Returns
    -------
    ndarray, IndexedSlices or Tensor
        Of the kind, shape and dtype of `t`; `t` itself if nothing has to be scaled.

    Raises
    ------
    TypeError
        If `t` is no array of real numbers or `clip_norm` no number.
    ValueError
        If `clip_norm` is not finite.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.clip.clip_by_average_norm([3.0, 4.0], 1.0)
    array([1.2, 1.6])
    """
    limit = _number("clip_by_average_norm", "clip_norm", clip_norm)
    if limit < 0.0:
        limit = math.inf
    if isinstance(t, Differentiable):
        return _recorded_by_norm(_floating(t), limit * max(t.size, 1), None)
    read = _read(t, "t")
    size = values_of(read).size
    if merge_repeated and isinstance(read, IndexedSlices) and size:
        size = size // len(read) * read.grouping(read._known_rows()).n_unique
    return _by_norm_of(read, limit * max(size, 1), merge_repeated)


def global_norm(t_list: Any, name: str | None = None, *, merge_repeated: bool = True) -> Any:
    """Return the Euclidean norm of several gradients taken as one: ``sqrt(sum of all squares)``.

    Parameters
    ----------
    t_list : sequence of (array_like, IndexedSlices, Variable, Tensor or None)
        The gradients; ``None`` is passed over.
    name : str, optional
        Not used.
    merge_repeated : bool, default True
        Sum rows of one index first, which TensorFlow does not do.

    Returns
    -------
    float or Tensor
        A Tensor if an entry is a Variable or a Tensor. 0 for an empty list.

    Raises
    ------
    TypeError
        If `t_list` is no sequence (a string, a generator, an array), or an entry is no array of
        real numbers.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.clip.global_norm([[3.0], None, fo.IndexedSlices([[2.0], [2.0]], [5, 5])])
    5.0
    """
    entries, dense = _read_list(t_list)
    return norm_of_dense(entries) if dense else _norm_of_all(entries, merge_repeated)


def clip_by_global_norm(
    t_list: Any,
    clip_norm: Any,
    use_norm: Any = None,
    name: str | None = None,
    *,
    merge_repeated: bool = True,
) -> tuple[list[Any], Any]:
    """Scale several gradients down together, so that their norm as one is at most `clip_norm`.

    Each is multiplied by ``clip_norm / max(global_norm, clip_norm)``; their direction as one stays.

    Parameters
    ----------
    t_list : sequence of (array_like, IndexedSlices, Variable, Tensor or None)
        The gradients; ``None`` stays in its place.
    clip_norm : float
        The largest norm. With a negative one nothing is clipped, as in TensorFlow.
    use_norm : float, optional
        The global norm, if it is known already.
    name : str, optional
        Not used.
    merge_repeated : bool, default True
        Sum rows of one index first, so that the norm is that of the gradients. TensorFlow takes
        that of the rows as they are stored.

    Returns
    -------
    list_clipped : list
        Of the kinds, shapes and dtypes of the entries; the entries themselves if nothing has to be
        scaled.
    global_norm : float or Tensor
        The norm before clipping, or `use_norm`.

    Raises
    ------
    TypeError
        If `t_list` is no sequence, an entry no array of real numbers, or a norm no number.
    ValueError
        If `clip_norm` is not finite.

    Notes
    -----
    If the norm is infinite or NaN, all elements of all results become NaN: an explosion is not
    hidden. TensorFlow multiplies unclipped gradients by ``clip_norm * (1 / clip_norm)``, which may
    miss 1 by a bit; here they stay as they are.

    Examples
    --------
    >>> import fastopt as fo
    >>> clipped, norm = fo.clip.clip_by_global_norm([[3.0], None, [4.0]], 1.0)
    >>> clipped, norm
    ([array([0.6]), None, array([0.8])], 5.0)
    """
    limit = _number("clip_by_global_norm", "clip_norm", clip_norm)
    if limit < 0.0:
        limit = math.inf
    given, dense = _read_list(t_list)
    entries = given
    if use_norm is not None:
        norm = _given_norm(use_norm)
    elif dense:
        norm = norm_of_dense(entries)
    else:
        if merge_repeated:
            entries = [_merged_if_many(entry) for entry in entries]
        norm = _norm_of_all(entries, merge_repeated)
    value = float(norm)
    if not math.isfinite(value):
        factor: Any = math.nan
    elif value > limit:
        factor = limit / norm
    else:
        return given, norm
    if dense and type(factor) is float:
        with step_memory():
            return _lists.times(entries, factor), norm
    # With a norm that is given nothing is squared, and scaling needs no sums.
    return _all_scaled(entries, factor, merge_repeated and use_norm is None), norm


# ---------------------------------------------------------------------- arguments


def _number(owner: str, name: str, value: Any) -> float:
    constraint = Real()
    return constraint.read(owner, name, constraint.accept(owner, name, value))


def _given_norm(use_norm: Any) -> Any:
    if isinstance(use_norm, Differentiable) and use_norm.size == 1:
        return use_norm
    norm = plain_array(use_norm, "clip_by_global_norm: use_norm")
    if norm.size != 1 or norm.dtype.kind not in "iuf":
        raise TypeError(f"clip_by_global_norm: use_norm must be a number, got {shown(use_norm)}")
    return float(norm.item())


def _floating(t: Differentiable) -> Differentiable:
    if t.dtype.kind != "f":
        raise TypeError(f"{t!r} has dtype {t.dtype}; only floating numbers can be scaled")
    return t


def _read(t: Any, name: str) -> Any:
    gradient = as_gradient(t, name=name)
    if gradient is None:
        raise TypeError(f"{name} must be an array or IndexedSlices, got None")
    return gradient


def _read_list(t_list: Any) -> tuple[list[Any], bool]:
    """Return gradients, read, and whether all are arrays for the kernels of lists, or None."""
    if not isinstance(t_list, Sequence) or isinstance(t_list, str | bytes):
        raise TypeError(f"t_list must be a sequence of gradients, got {shown(t_list)}")
    if _lists.all_fit(given := list(t_list)):  # as nearly all lists of dense gradients do
        return given, True
    entries: list[Any] = []
    for i, t in enumerate(given):
        if isinstance(t, Differentiable):
            entries.append(_floating(t))
        elif isinstance(t, tuple) and len(t) == 2 and isinstance(t[1], Differentiable):
            raise TypeError(
                f"t_list[{i}] is a (gradient, variable) pair; pass the gradients alone: "
                f"[gradient for gradient, variable in pairs]"
            )
        else:
            entries.append(None if t is None else _read(t, f"t_list[{i}]"))
    return entries, _lists.all_fit(entries)


def _axes(axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...] | None:
    if axes is None:
        return None
    try:
        positions: tuple[int, ...] = np.lib.array_utils.normalize_axis_tuple(axes, ndim, "axes")
    except (TypeError, OverflowError) as error:
        raise TypeError(
            f"axes must be an axis, a sequence of axes or None, got {shown(axes)}"
        ) from error
    return positions


def _bound(name: str, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return a limit in the dtype of what it limits, if it broadcasts into its shape."""
    bound = plain_array(value._read() if isinstance(value, Differentiable) else value, name)
    if bound.dtype.kind not in "iuf" or (bound.dtype.kind == "f" and dtype.kind in "iu"):
        raise TypeError(f"{name} must be of dtype {dtype} as t is, got {shown(value)}")
    try:
        fits = np.broadcast_shapes(bound.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} of shape {bound.shape} does not broadcast to {shape}, t's shape")
    if dtype.kind in "iu":
        # Nothing of t is beyond its limits. NumPy 2.0 refuses limits that bound's dtype can't hold.
        limits, own = np.iinfo(dtype), np.iinfo(bound.dtype)
        bound = np.clip(bound, max(limits.min, own.min), min(limits.max, own.max))
    with np.errstate(over="ignore"):
        return bound.astype(dtype)


# ---------------------------------------------------------------------- plain arrays


def _merged_if_many(gradient: Any) -> Any:
    """Return slices merged, if they have so many repeated rows that this saves a second sum."""
    if not isinstance(gradient, IndexedSlices):
        return gradient
    unique = gradient.grouping(gradient._known_rows()).n_unique
    return gradient.coalesce() if 2 * unique <= len(gradient) and unique else gradient


def _bounded(values: Array, low: Array, high: Array) -> Array:
    if _lists.fits(values) and low.ndim == high.ndim == 0:
        lowest, highest = float(low), float(high)
        if lowest == lowest and highest == highest:  # NumPy knows what to do with NaN
            with step_memory():
                return _lists.bounded(values, lowest, highest)
    return np.asarray(np.maximum(np.minimum(values, high), low))


def _norm_of_all(entries: Sequence[Any], merge_repeated: bool) -> Any:
    parts = [entry for entry in entries if entry is not None]
    if not any(isinstance(part, Differentiable) for part in parts):
        return norm_of(parts, merge_repeated)
    if merge_repeated:
        parts = [part.coalesce() if repeats(part) else part for part in parts]
    return _recorded_norm(*(values_of(part) for part in parts))


def _by_norm_of(gradient: Gradient, limit: float, merge_repeated: bool) -> Gradient:
    """Return a gradient, scaled down if its norm exceeds `limit`; itself if not."""
    merged = _merged_if_many(gradient) if merge_repeated else gradient
    norm = norm_of([merged], merge_repeated)
    if norm <= limit:
        return gradient
    (scaled,) = _all_scaled([merged], limit / norm if norm > limit else math.nan, merge_repeated)
    return scaled


def _by_norms(values: Array, limit: float, axes: tuple[int, ...]) -> Array:
    """Return the values, scaled down where a norm over `axes` exceeds `limit`."""
    norms = norms_over(values, axes)
    over = norms > limit
    if np.all(norms <= limit):
        return values
    factors = np.where(np.isnan(norms), np.nan, limit / np.where(over, norms, 1.0))
    return times(values, np.where(over | np.isnan(norms), factors, 1.0))


def _all_scaled(entries: Sequence[Any], factor: Any, merge_repeated: bool) -> list[Any]:
    """Return the products of the entries and a factor; all of dense ones in one pass."""
    scaled = list(entries)
    if type(factor) is float and _lists.all_fit(scaled):
        return times_all(scaled, factor)
    plain: list[int] = []
    for k, entry in enumerate(entries):
        if entry is None:
            continue
        if isinstance(entry, Differentiable) or (
            isinstance(factor, Differentiable) and not isinstance(entry, IndexedSlices)
        ):
            scaled[k] = _recorded_times(entry, factor)
        elif merge_repeated and isinstance(entry, IndexedSlices) and repeats(entry):
            scaled[k] = _merged_times(entry, float(factor))
        else:
            plain.append(k)
    if plain:
        values = times_all([values_of(entries[k]) for k in plain], float(factor))
        for k, product in zip(plain, values, strict=True):
            scaled[k] = with_values(entries[k], product)
    return scaled


def _merged_times(slices: IndexedSlices, factor: float) -> IndexedSlices:
    """Return slices times a number, each index once."""
    if slices.dtype in WHOLE and fits_normally(factor, slices.dtype):
        return slices._coalesced_times(factor)
    merged = slices.coalesce()
    return merged._with_values(times(merged.values, factor))


# ---------------------------------------------------------------------- recorded tensors


@primitive
def _recorded_by_norm(x: Array, limit: float, axes: tuple[int, ...] | None) -> Array:
    values = np.asarray(x)
    return np.asarray(
        _by_norm_of(values, limit, False) if axes is None else _by_norms(values, limit, axes)
    )


@primitive
def _recorded_norm(*parts: Array) -> Array:
    # float64 as the plain norm is, so that it does not overflow where the parts do not.
    return np.asarray(norm_of(parts, False))


@primitive
def _recorded_times(x: Array, factor: Array) -> Array:
    return times(x, float(factor))


def _pull_by_norm(ans: Array, x: Array, limit: float, axes: tuple[int, ...] | None) -> Any:
    def pull(g: Array) -> Array:
        norms = norms_over(x, tuple(range(x.ndim)) if axes is None else axes)
        over = norms > limit
        norms = np.where(over, norms, 1.0)
        direction = x / norms
        across = g - direction * np.sum(g * direction, axis=axes, keepdims=True)
        gradient: Array = np.where(over, limit / norms * across, g).astype(x.dtype)
        return gradient

    return pull


def _pull_norm(argnums: Sequence[int], ans: Array, args: Sequence[Array], kwargs: Any) -> Any:
    def pull(g: Array) -> list[Array]:
        norm = float(ans)
        if norm == 0.0:  # as every clipping has it: the derivative at 0 is 0
            return [np.zeros_like(args[i]) for i in argnums]
        return [(args[i] / norm * g).astype(args[i].dtype) for i in argnums]

    return pull


defvjp(_recorded_by_norm, _pull_by_norm)
defvjp_argnums(_recorded_norm, _pull_norm)
defvjp(
    _recorded_times,
    lambda ans, x, factor: lambda g: times(g, float(factor)),
    lambda ans, x, factor: lambda g: np.sum(np.multiply(g, x, dtype=np.float64)),
)
