"""The border of `apply_gradients`: a caller's pairs, checked before anything is changed.

Everything here only looks. What comes out is fit for kernels and hooks: gradients of the variable's
shape and dtype (float32 for 16 bits), rows within bounds, in memory that no update of this call
writes to; variables whose storage is writable and shared by no other variable of the call.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fastopt._arrays import compute_dtype, shown
from fastopt._kernels._counters import can_count
from fastopt._validate import UnsupportedTypeError
from fastopt.autodiff import Tensor
from fastopt.constraints import acts_on_rows
from fastopt.conversion import as_gradient, is_torch_tensor
from fastopt.indexed_slices import IndexedSlices, values_of, with_values
from fastopt.variable import Variable

Array = np.ndarray[Any, Any]
Gradient = Array | IndexedSlices
Pair = tuple[Gradient, Variable]

_COPIES = "plain copies (`.numpy()`, `float(v)`, `np.array(v)`, `x.dot(v)`)"
_TO_TRAIN = "; variables to train are passed as var_list="


def as_list(grads_and_vars: Any) -> list[Any]:
    """Read the argument of `apply_gradients` once."""
    if isinstance(grads_and_vars, Variable | np.ndarray | IndexedSlices | str | bytes):
        raise TypeError(
            "grads_and_vars must be an iterable of (gradient, variable) pairs, got"
            f" {shown(grads_and_vars)}"
        )
    try:
        pairs = list(grads_and_vars)
    except TypeError as error:
        if hasattr(type(grads_and_vars), "__iter__"):
            raise  # raised by what the caller's own iterator does
        raise TypeError(
            "grads_and_vars must be an iterable of (gradient, variable) pairs, got"
            f" {shown(grads_and_vars)}"
        ) from error
    if not pairs:
        hint = ""
        if hasattr(grads_and_vars, "__next__"):
            hint = (
                f" The {type(grads_and_vars).__name__} that was passed yields nothing more: if it"
                " was read before (printed, say), pass a list instead."
            )
        raise ValueError(f"No variables provided: grads_and_vars is empty.{hint}")
    return pairs


def split(pair: Any, position: int) -> tuple[Any, Any]:
    """Take one pair apart, which must be one."""
    if not isinstance(pair, tuple | list):
        raise TypeError(
            f"grads_and_vars[{position}] must be a (gradient, variable) pair, got {shown(pair)}"
        )
    if len(pair) != 2:
        raise ValueError(
            f"grads_and_vars[{position}] must be a (gradient, variable) pair, got {len(pair)}"
            f" items: {shown(pair)}"
        )
    return pair[0], pair[1]


def checked(pairs: Sequence[Any], optimizer_name: str) -> list[Pair]:
    """Check and convert all pairs; return those with a gradient.

    Raises
    ------
    TypeError
        If a pair is none, a gradient cannot be one, a variable is none.
    ValueError
        If a pair has not two items, shapes differ, or there is no gradient at all.
    IndexError
        If a row of a sparse gradient does not exist.
    NotImplementedError
        If what shall be updated is a `Tensor`.
    RuntimeError
        If a variable whose constraint does not act row by row has a sparse gradient.
    """
    read = converted(pairs, optimizer_name)
    good = [(gradient, var) for gradient, var in read if gradient is not None]
    if not good:
        raise no_gradients([var for _, var in read])
    return good


def converted(pairs: Sequence[Any], optimizer_name: str) -> list[tuple[Gradient | None, Any]]:
    """Check and convert all pairs, also those without a gradient; see `checked`."""
    read: list[tuple[Gradient | None, Any]] = []
    for position, pair in enumerate(pairs):
        gradient, var = split(pair, position)
        if isinstance(var, Variable):
            given = as_gradient(
                gradient,
                like=_floating(var),
                shape=var.shape,
                name=f"the gradient of variable {var.name!r}",
            )
        else:
            given = as_gradient(gradient, name=f"the gradient in grads_and_vars[{position}]")
            require_target(var, gradient, position)
        if given is not None:
            var = updatable(var, optimizer_name)
            if isinstance(given, IndexedSlices) and not takes_slices(var):
                raise RuntimeError(
                    f"variable {var.name!r} has a constraint, which cannot be used with a sparse"
                    f" gradient: {shown(var.constraint)} does not say, by an attribute rows that"
                    " is True, that it acts row by row"
                )
        read.append((given, var))
    return read


def takes_slices(var: Variable) -> bool:
    """Whether the gradient of a variable may be sparse: a constraint must act row by row."""
    return var.constraint is None or acts_on_rows(var.constraint)


def no_gradients(variables: Sequence[Any], loss: Any = None) -> ValueError:
    """Make the error for a step that has no gradient at all."""
    names = [_name(v) for v in variables]
    text = f"No gradients provided for any variable: [{', '.join(names)}]."
    if not names:
        return ValueError(
            f"{text} The loss {shown(loss)} read no trainable variables, or the list is empty;"
            f" {_COPIES} have no gradient."
        )
    whole = [_name(v) for v in variables if isinstance(v, Variable) and v.dtype.kind in "iub"]
    if whole:
        text += f" Integers have no gradient: {', '.join(whole)}; give them dtype=np.float32."
    elif loss is None:
        text += (
            " Every gradient is None, which means that the loss doesn't depend on these variables,"
            " that what connects them was computed outside the loss, or, with PyTorch, that"
            " backward() was not called."
        )
    else:
        text += (
            f" The loss {shown(loss)} doesn't depend on them: the variables it reads are not in the"
            f" list, or it reads {_COPIES}, which have no gradient."
        )
    return ValueError(text)


def require_target(var: Any, gradient: Any, position: int) -> None:
    """Refuse what is neither a `Variable` nor a `Tensor`."""
    if isinstance(var, Variable | Tensor):
        return
    if isinstance(gradient, Variable):
        hint = "; a pair is (gradient, variable), in this order"
    else:
        hint = how_to_make_one(var)
    raise UnsupportedTypeError(
        f"grads_and_vars[{position}]: the variable must be a fastopt Variable, got"
        f" {shown(var)}{hint}"
    )


def how_to_make_one(x: Any) -> str:
    """Return the end of a message: how to make a variable of what is none."""
    if isinstance(x, np.ndarray):
        return "; fo.Variable(array, copy=False) makes one of an array without copying it"
    if is_torch_tensor(x):
        return "; fo.Variable(tensor.detach(), copy=False) makes one of a tensor without copying it"
    if isinstance(x, float | list):
        return "; fo.Variable(value) makes one"
    return ""


def updatable(x: Any, optimizer_name: str) -> Variable:
    """Return `x`, which must be a variable and not a `Tensor`."""
    if not isinstance(x, Variable):
        raise NotImplementedError(
            f"{optimizer_name} cannot update {shown(x)}: gradients with respect to a Tensor can be"
            " computed, but only a Variable can be updated"
        )
    return x


def require_storage(variables: Sequence[Variable], slots: Iterable[Variable] = ()) -> Memory:
    """Check that the variables can be written to and don't share memory; return where they lie."""
    for var in variables:
        if not var._storage.flags.writeable:
            raise ValueError(f"variable {var.name!r} cannot be updated: its storage is read-only")
    memory = Memory(variables)
    memory.add(slots)
    return memory


class Memory:
    """Where some variables lie, to be asked whether an array lies there too."""

    def __init__(self, variables: Iterable[Variable]) -> None:
        self._ranges: list[tuple[int, int]] = []
        distinct = {id(var): var for var in variables}
        ranges = sorted(
            (*_byte_range(var._storage), var.name)
            for var in distinct.values()
            if var._storage.nbytes
        )
        for (_, stop, name), (start, _, other) in zip(ranges, ranges[1:], strict=False):
            if start < stop:
                raise ValueError(
                    f"variables {name!r} and {other!r} share memory: in one call each number may be"
                    " updated through one variable only"
                )
        self._ranges = [(start, stop) for start, stop, _ in ranges]

    def add(self, variables: Iterable[Variable]) -> None:
        """Add variables that are known to share no memory with the others."""
        self._ranges.extend(_byte_range(var._storage) for var in variables if var._storage.nbytes)
        self._ranges.sort()

    def overlaps(self, array: Array) -> bool:
        """Whether `array` shares a byte with one of the variables."""
        if not array.nbytes:
            return False
        start, stop = _byte_range(array)
        at = bisect.bisect_left(
            self._ranges, (stop, -1)
        )  # the first range that begins behind the array
        return at > 0 and self._ranges[at - 1][1] > start

    def apart(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs with gradients that lie elsewhere: those that don't are copied."""
        for gradient, var in pairs:
            array = values_of(gradient)
            yield with_values(gradient, array.copy()) if self.overlaps(array) else gradient, var


def require_step(global_step: Any) -> None:
    """Check a step counter before anything is changed.

    Raises
    ------
    UnsupportedTypeError
        If it is not a `Variable` (a `TypeError`, and an `AttributeError` as in TensorFlow).
    ValueError
        If it is not a writable scalar of a numeric dtype.
    OverflowError
        If its dtype has no number for the next step.
    """
    if not isinstance(global_step, Variable):
        raise UnsupportedTypeError(
            f"global_step must be a fastopt Variable or None, got {shown(global_step)}"
            + _TO_TRAIN * isinstance(global_step, list | tuple)
        )
    if global_step.shape:
        raise ValueError(
            f"global_step {global_step.name!r} must be a scalar, its shape is {global_step.shape}"
            f"{_TO_TRAIN}"
        )
    if global_step.dtype.kind not in "iuf":
        raise ValueError(
            f"global_step {global_step.name!r} must be a number, its dtype is {global_step.dtype}"
        )
    if not global_step._storage.flags.writeable:
        raise ValueError(
            f"global_step {global_step.name!r} cannot be advanced: its storage is read-only"
        )
    require_room(global_step)


def require_room(global_step: Variable) -> None:
    """Check that a step counter can count one step more."""
    counter = global_step._storage
    if not can_count(counter):
        raise OverflowError(
            f"global_step {global_step.name!r} cannot count beyond {counter.item()} in"
            f" {counter.dtype}"
        )


def _floating(var: Variable) -> np.dtype[Any] | None:
    # A gradient for integers is refused later, with the variable's name; here it must only be
    # readable.
    # Gradients of 16-bit variables are summed, and applied, in float32.
    return compute_dtype(var.dtype) if var.dtype.kind not in "iub" else None


def _byte_range(array: Array) -> tuple[int, int]:
    return np.lib.array_utils.byte_bounds(array)


def _name(var: Any) -> str:
    name = getattr(var, "name", None)
    return repr(name) if isinstance(name, str) else shown(var)
