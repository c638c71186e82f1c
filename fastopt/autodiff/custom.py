"""Gradients that a caller decides: `stop_gradient` and `custom_gradient`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from fastopt.autodiff.primitives import Primitive, is_inexact
from fastopt.autodiff.recording import Observing, current, mode_set_to
from fastopt.autodiff.tensor import (
    Differentiable,
    Node,
    Tensor,
    holds_differentiable,
    name_of,
    read_only,
    value_of,
)

__all__ = ["custom_gradient", "stop_gradient"]

_STOP = Primitive(lambda x: x, "stop_gradient")


def stop_gradient(x: Any) -> Any:
    """Return the value of `x` as a constant: no gradient flows through it.

    Parameters
    ----------
    x : array_like or Differentiable
        What to hold constant.

    Returns
    -------
    Tensor or ndarray
        A tensor of the same value if `x` is a variable or tensor and operations are recorded.

    Examples
    --------
    >>> from fastopt.autodiff import Tensor, gradients, stop_gradient
    >>> x = Tensor(3.0)
    >>> gradients(x * stop_gradient(x), x)
    [array(3.)]
    """
    if not isinstance(x, Differentiable):
        return x
    mode = current()
    value = x._read()
    if mode.watches and x._trainable:
        mode.watch(x)
    if not mode.records or not is_inexact(value.dtype):
        return read_only(value)
    # The node has no parents, but remembers what it read: the value may be the variable's own
    # storage.
    reads: tuple[Any, ...] = ()
    if x._node is not None:
        reads = x._node.reads
    elif mode.versions:
        reads = ((x, x._version),)
    node = Node(_STOP, (), (), (), {}, None, value.shape, value.dtype, reads)
    return Tensor._of(value, node)


class _CustomGradient(Primitive):
    """One call of a function that brings its own gradient."""

    opaque = True

    def __init__(self, name: str, gradient: Callable[..., Any], n_args: int) -> None:
        super().__init__(gradient, name)
        self.n_args = n_args

    def lacks(self, argnums: Iterable[int]) -> int | None:
        return None

    def pull(self, node: Node, argnums: Sequence[int], g: Any) -> Sequence[Any]:
        result = self.function(np.asarray(g))
        if not isinstance(result, (list, tuple)):
            result = (result,)
        if len(result) != self.n_args:
            raise ValueError(
                f"{self.name}: the gradient function returned {len(result)} gradients for "
                f"{self.n_args} arguments"
            )
        return [result[i] for i in argnums]


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function say what its gradient is.

    Parameters
    ----------
    function : callable
        Returns ``(y, grad_fn)``, where ``grad_fn(dy)`` returns the gradient of the only positional
        argument, or a list with one gradient (or None) for each positional argument. It is called
        with plain arrays.

    Returns
    -------
    callable
        Takes the same arguments and returns y, recorded if an argument is a variable or tensor.

    Raises
    ------
    TypeError
        When called, if `function` does not return such a pair, if a keyword argument is
        differentiable, or if it reads a trainable variable that is not an argument: that variable
        would silently get no gradient.

    Examples
    --------
    >>> import numpy as np
    >>> from fastopt.autodiff import Tensor, custom_gradient, gradients
    >>> @custom_gradient
    ... def log1pexp(x):
    ...     e = np.exp(x)
    ...     return np.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))
    >>> gradients(log1pexp(Tensor(100.0)), Tensor(0.0))
    [None]
    >>> x = Tensor(100.0)
    >>> gradients(log1pexp(x), x)
    [array(1.)]
    """
    name = name_of(function)

    def called(*args: Any, **kwargs: Any) -> Any:
        if holds_differentiable(kwargs) or any(
            holds_differentiable(x) for x in args if not isinstance(x, Differentiable)
        ):
            raise TypeError(
                f"{name}: differentiable objects must be positional arguments of a custom_gradient "
                "function, not keywords or inside lists"
            )
        mode = current()
        values = [value_of(x) for x in args]
        observed = Observing(mode.eager)
        with mode_set_to(observed):
            result = function(*values, **kwargs)
        if not (isinstance(result, tuple) and len(result) == 2 and callable(result[1])):
            raise TypeError(
                f"{name}: a custom_gradient function returns (y, grad_fn), got {result!r}"
            )
        if observed.read:
            names = ", ".join(dict.fromkeys(x.name for x in observed.read))
            raise TypeError(
                f"{name}: reads {names} without being given it; pass variables as arguments, or "
                "they would get no gradient"
            )
        operation = _CustomGradient(name, result[1], len(args))
        return operation.record(args, {}, result[0])

    return update_wrapper(called, function)
