"""Functions that move elements without changing them: shapes, axes, joining, splitting, padding."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastopt.autodiff.fitting import unbroadcast
from fastopt.autodiff.numpy_vjps._define import define, handle, plain
from fastopt.autodiff.primitives import defvjp_argnums, is_default
from fastopt.autodiff.tensor import HANDLERS, Differentiable

# ---------------------------------------------------------------------- shape and axes


def _reshape(x: Any, shape: Any, order: str) -> Any:
    return np.reshape(x, shape, order=order)  # type: ignore[call-overload]


_reshaped = define(
    _reshape,
    lambda ans, x, shape, order: lambda g: np.reshape(g, x.shape, order=order),
    reads=("",),
    name="numpy.reshape",
    register=False,
    holomorphic=True,
)


@handle(np.reshape)
def reshape(
    a: Any, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None
) -> Any:
    """As `numpy.reshape`, in C or Fortran order."""
    if order not in ("C", "F"):
        raise TypeError(
            f"numpy.reshape: order={order!r} is not supported on differentiable objects"
        )
    return _reshaped(a, newshape if shape is None else shape, order)


@handle(np.ravel)
def ravel(a: Any, order: str = "C") -> Any:
    """As `numpy.ravel`, in C or Fortran order."""
    return reshape(a, -1, order)


def _transpose(ans: Any, x: Any, axes: Any = None) -> Any:
    return lambda g: np.transpose(
        g, None if axes is None else np.argsort([i % x.ndim for i in axes])
    )


define(np.transpose, _transpose, reads=("",), holomorphic=True)
define(
    np.swapaxes,
    lambda ans, x, axis1, axis2: lambda g: np.swapaxes(g, axis1, axis2),
    reads=("",),
    holomorphic=True,
)
define(
    np.moveaxis,
    lambda ans, x, source, destination: lambda g: np.moveaxis(g, destination, source),
    reads=("",),
    holomorphic=True,
)


@handle(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """As `numpy.rollaxis`."""
    n = a.ndim
    axis, start = axis % n, start + n if start < 0 else start
    return np.moveaxis(a, axis, start - 1 if axis < start else start)


@handle(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any) -> Any:
    """As `numpy.matrix_transpose`."""
    return x.mT


for _same_size in (np.expand_dims, np.squeeze, np.atleast_1d, np.atleast_2d, np.atleast_3d):
    define(
        _same_size,
        lambda ans, x, *args, **kwargs: lambda g: np.reshape(g, x.shape),
        reads=("",),
        register=_same_size in (np.expand_dims, np.squeeze),
        holomorphic=True,
    )


def _at_least(function: Any) -> Any:
    one = define(
        function,
        lambda ans, x: lambda g: np.reshape(g, x.shape),
        reads=("",),
        register=False,
        holomorphic=True,
    )

    def call(*arrays: Any) -> Any:
        made = tuple(one(a) for a in arrays)
        return made[0] if len(made) == 1 else made

    return call


for _function in (np.atleast_1d, np.atleast_2d, np.atleast_3d):
    HANDLERS[_function] = _at_least(_function)

define(
    np.broadcast_to,
    lambda ans, x, shape, subok=False: lambda g: unbroadcast(g, x.shape),
    reads=("",),
    holomorphic=True,
)


@handle(np.broadcast_arrays)
def broadcast_arrays(*arrays: Any, subok: bool = False) -> tuple[Any, ...]:
    """As `numpy.broadcast_arrays`."""
    shape = np.broadcast_shapes(*(np.shape(a) for a in arrays))
    return tuple(np.broadcast_to(a, shape) for a in arrays)


# ---------------------------------------------------------------------- joining


def _concatenate(axis: int, *arrays: Any, **kwargs: Any) -> Any:
    return np.concatenate(arrays, axis, **kwargs)


def _concatenate_all(argnums: Sequence[int], ans: Any, args: Sequence[Any], kwargs: Any) -> Any:
    axis = args[0]

    def vjp(g: Any) -> list[Any]:
        ends = np.cumsum([a.shape[axis] for a in args[1:]]).tolist()
        lead = (slice(None),) * (axis % g.ndim)
        return [g[(*lead, slice(ends[i - 1] - args[i].shape[axis], ends[i - 1]))] for i in argnums]

    return vjp


_joined = define(_concatenate, name="numpy.concatenate", register=False, holomorphic=True)
defvjp_argnums(_joined, _concatenate_all, reads=())


@handle(np.concatenate)
def concatenate(arrays: Any, axis: int | None = 0, out: Any = None, **kwargs: Any) -> Any:
    """As `numpy.concatenate`."""
    if out is not None:
        kwargs["out"] = out
    items = [a if isinstance(a, Differentiable) else np.asarray(a) for a in arrays]
    if axis is None:
        items, axis = [np.ravel(a) for a in items], 0
    return _joined(operator.index(axis), *items, **kwargs)


@handle(np.stack)
def stack(arrays: Any, axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
    """As `numpy.stack`."""
    items = [a if isinstance(a, Differentiable) else np.asarray(a) for a in arrays]
    shapes = {a.shape for a in items}
    if len(shapes) != 1:
        raise ValueError(f"numpy.stack: all arrays must have the same shape, got {sorted(shapes)}")
    return concatenate([np.expand_dims(a, axis) for a in items], axis, out, **kwargs)


@handle(np.vstack)
def vstack(tup: Any, **kwargs: Any) -> Any:
    """As `numpy.vstack`."""
    return concatenate([np.atleast_2d(a) for a in tup], 0, **kwargs)


@handle(np.hstack)
def hstack(tup: Any, **kwargs: Any) -> Any:
    """As `numpy.hstack`."""
    items = [np.atleast_1d(a) for a in tup]
    return concatenate(items, 0 if items[0].ndim == 1 else 1, **kwargs)


@handle(np.dstack)
def dstack(tup: Any) -> Any:
    """As `numpy.dstack`."""
    return concatenate([np.atleast_3d(a) for a in tup], 2)


@handle(np.column_stack)
def column_stack(tup: Any) -> Any:
    """As `numpy.column_stack`."""
    items = [a if isinstance(a, Differentiable) else np.asarray(a) for a in tup]
    return concatenate([np.reshape(a, (-1, 1)) if a.ndim < 2 else a for a in items], 1)


@handle(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """As `numpy.append`."""
    return concatenate((arr, values), axis)


# ---------------------------------------------------------------------- splitting


@handle(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """As `numpy.array_split`."""
    n = ary.shape[axis]
    if np.ndim(indices_or_sections) == 0:
        sections = operator.index(indices_or_sections)
        if sections <= 0:
            raise ValueError(f"numpy.array_split: number of sections must be > 0, got {sections}")
        base, extra = divmod(n, sections)
        ends = np.cumsum([0] + [base + 1] * extra + [base] * (sections - extra)).tolist()
    else:
        ends = [0, *(operator.index(i) for i in indices_or_sections), n]
    lead = (slice(None),) * (axis % ary.ndim)
    return [ary[(*lead, slice(a, b))] for a, b in zip(ends[:-1], ends[1:], strict=True)]


@handle(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """As `numpy.split`."""
    if np.ndim(indices_or_sections) == 0 and ary.shape[axis] % operator.index(indices_or_sections):
        raise ValueError(
            f"numpy.split: axis {axis} of length {ary.shape[axis]} cannot be split into "
            f"{indices_or_sections} equal parts"
        )
    return array_split(ary, indices_or_sections, axis)


@handle(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """As `numpy.hsplit`."""
    return split(ary, indices_or_sections, 0 if ary.ndim == 1 else 1)


@handle(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """As `numpy.vsplit`."""
    if ary.ndim < 2:
        raise ValueError("numpy.vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


# ---------------------------------------------------------------------- repeating


@handle(np.tile)
def tile(A: Any, reps: Any) -> Any:
    """As `numpy.tile`."""
    times = (
        (operator.index(reps),) if np.ndim(reps) == 0 else tuple(operator.index(r) for r in reps)
    )
    rank = max(len(times), A.ndim)
    times = (1,) * (rank - len(times)) + times
    shape = (1,) * (rank - A.ndim) + A.shape
    # Each axis becomes (repeats, length): broadcasting does the copying, its gradient the summing.
    paired = [n for pair in zip((1,) * rank, shape, strict=True) for n in pair]
    spread = [n for pair in zip(times, shape, strict=True) for n in pair]
    joined = [a * b for a, b in zip(times, shape, strict=True)]
    return np.reshape(np.broadcast_to(np.reshape(A, paired), spread), joined)


def _repeat(ans: Any, x: Any, repeats: Any, axis: Any = None) -> Any:
    def vjp(g: Any) -> Any:
        n = x.size if axis is None else x.shape[axis]
        along = 0 if axis is None else axis
        times = np.broadcast_to(repeats, (n,))
        if n and np.all(times == times[0]) and times[0]:
            shape = list(g.shape)
            shape[along : along + 1 if along >= 0 else g.ndim + along + 1] = [n, int(times[0])]
            total = np.sum(np.reshape(g, shape), axis=along % g.ndim + 1, dtype=g.dtype)
        else:
            total = np.zeros(
                g.shape[: along % g.ndim] + (n,) + g.shape[along % g.ndim + 1 :], g.dtype
            )
            source = np.repeat(np.arange(n), times)
            np.add.at(total, (slice(None),) * (along % g.ndim) + (source,), g)
        return np.reshape(total, x.shape)

    return vjp


define(np.repeat, _repeat, None, reads=("", ""), holomorphic=True)

# ---------------------------------------------------------------------- reordering


def _negated(shift: Any) -> Any:
    return tuple(-s for s in shift) if isinstance(shift, (tuple, list)) else -shift


define(
    np.roll,
    lambda ans, x, shift, axis=None: lambda g: np.roll(g, _negated(shift), axis),
    reads=("",),
    holomorphic=True,
)
define(np.flip, lambda ans, x, axis=None: lambda g: np.flip(g, axis), reads=("",), holomorphic=True)
define(np.fliplr, lambda ans, x: lambda g: np.fliplr(g), reads=("",), holomorphic=True)
define(np.flipud, lambda ans, x: lambda g: np.flipud(g), reads=("",), holomorphic=True)
define(
    np.rot90,
    lambda ans, x, k=1, axes=(0, 1): lambda g: np.rot90(g, -k, axes),
    reads=("",),
    holomorphic=True,
)


def _sort(ans: Any, x: Any, axis: Any = -1, **kwargs: Any) -> Any:
    def vjp(g: Any) -> Any:
        flat, along = (x.reshape(-1), 0) if axis is None else (x, axis)
        total = np.empty(flat.shape, g.dtype)
        np.put_along_axis(total, np.argsort(flat, axis=along, kind="stable"), g, along)
        return total.reshape(x.shape)

    return vjp


define(np.sort, _sort, reads=("x",))

# ---------------------------------------------------------------------- padding


def _unpad(ans: Any, x: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    def vjp(g: Any) -> Any:
        if mode in ("constant", "empty"):
            # Where the elements of x went, found by padding their numbers the same way.
            widths = _widths(pad_width, x.ndim)
            return g[tuple(slice(a, a + n) for (a, _), n in zip(widths, x.shape, strict=True))]
        source = np.pad(np.arange(x.size).reshape(x.shape), pad_width, mode, **kwargs)
        total = np.zeros(x.size, g.dtype)
        np.add.at(total, source.ravel(), g.ravel())
        return total.reshape(x.shape)

    return vjp


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        pairs = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            pairs[axis] = (width, width) if np.ndim(width) == 0 else tuple(width)
        return pairs
    return [(int(a), int(b)) for a, b in np.broadcast_to(pad_width, (ndim, 2))]


_padded = define(np.pad, _unpad, reads=("",), register=False, holomorphic=True)


@handle(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """As `numpy.pad`, for modes that copy elements."""
    if mode not in ("constant", "empty", "edge", "reflect", "symmetric", "wrap"):
        raise TypeError(f"numpy.pad: mode={mode!r} is not supported on differentiable objects")
    if kwargs.get("reflect_type", "even") != "even":
        raise TypeError("numpy.pad: reflect_type='odd' is not supported on differentiable objects")
    return _padded(array, pad_width, mode, **kwargs)


# ---------------------------------------------------------------------- diagonals and triangles


def _to_diagonal(ans: Any, x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    def vjp(g: Any) -> Any:
        total = np.zeros(x.shape, g.dtype)
        moved = np.moveaxis(total, (axis1, axis2), (-2, -1))
        rows = np.arange(g.shape[-1]) + max(-offset, 0)
        moved[..., rows, rows + offset] = g
        return total

    return vjp


define(np.diagonal, _to_diagonal, reads=("",), holomorphic=True)


@handle(np.trace)
def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    """As `numpy.trace`."""
    return np.sum(np.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype, out=out)


def _diag(ans: Any, x: Any, k: int = 0) -> Any:
    return lambda g: np.diagonal(g, k) if x.ndim == 1 else _to_diagonal(None, x, k)(g)


define(np.diag, _diag, reads=("",), holomorphic=True)
define(np.triu, lambda ans, x, k=0: lambda g: np.triu(g, k), reads=("",), holomorphic=True)
define(np.tril, lambda ans, x, k=0: lambda g: np.tril(g, k), reads=("",), holomorphic=True)


@handle(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """As `numpy.diff`, without `prepend` and `append`."""
    for name, value in (("prepend", prepend), ("append", append)):
        if not is_default(value):
            raise TypeError(f"numpy.diff: {name}= is not supported on differentiable objects")
    lead = (slice(None),) * (axis % a.ndim)
    for _ in range(n):
        a = a[(*lead, slice(1, None))] - a[(*lead, slice(None, -1))]
    return a


# ---------------------------------------------------------------------- what does not look at
# values


@handle(np.shape)
def shape(a: Any) -> tuple[int, ...]:
    """As `numpy.shape`."""
    return tuple(a.shape)


@handle(np.ndim)
def ndim(a: Any) -> int:
    """As `numpy.ndim`."""
    return len(a.shape)


@handle(np.size)
def size(a: Any, axis: Any = None) -> int:
    """As `numpy.size`."""
    if axis is None:
        return int(a.size)
    return int(np.prod([a.shape[i] for i in np.atleast_1d(axis)]))


@handle(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    """As `numpy.iscomplexobj`."""
    return bool(x.dtype.kind == "c")


@handle(np.isrealobj)
def isrealobj(x: Any) -> bool:
    """As `numpy.isrealobj`."""
    return bool(x.dtype.kind != "c")


plain(
    np.zeros_like,
    np.ones_like,
    np.empty_like,
    np.result_type,
    np.can_cast,
    np.min_scalar_type,
    np.common_type,
    np.array2string,
    np.array_repr,
    np.array_str,
    np.shares_memory,
    np.may_share_memory,
    np.save,
    np.savetxt,
)


@handle(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """As `numpy.full_like`; gradients flow to the fill value."""
    dtype = a.dtype if dtype is None else dtype
    shape = kwargs.get("shape")
    if isinstance(fill_value, Differentiable):
        return np.broadcast_to(fill_value, a.shape if shape is None else shape).astype(dtype)
    return np.full(a.shape if shape is None else shape, fill_value, dtype)
