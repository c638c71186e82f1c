"""How the table of derivatives is written: one `define` a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fastopt.autodiff.primitives import Primitive, VjpMaker, defvjp
from fastopt.autodiff.tensor import HANDLERS, holds_differentiable, name_of, value_of

Array = np.ndarray[Any, Any]


def define(
    function: Any,
    *makers: VjpMaker | None,
    reads: tuple[str, ...] | None = None,
    name: str | None = None,
    register: bool = True,
    argnums: Iterable[int] | None = None,
    **options: Any,
) -> Primitive:
    """Make a NumPy function a recorded one.

    Parameters
    ----------
    function : callable
        Of plain arrays.
    *makers
        As `defvjp` takes them.
    reads : tuple of str, optional
        For each maker the names, separated by spaces, of the values that it reads.
    name : str, optional
        What messages call it.
    register : bool
        Whether calls of `function` itself on differentiable objects come here.
    argnums
        As `defvjp` takes it.
    **options
        Of `Primitive`.

    Returns
    -------
    Primitive
        The recorded function.
    """
    made = Primitive(function, name, builtin=True, **options)
    split = None if reads is None else [item.split() for item in reads]
    defvjp(made, *makers, argnums=argnums, reads=split)
    if register:
        HANDLERS[function] = made
    return made


def handle(*functions: Any) -> Callable[[Any], Any]:
    """Return a decorator: what it decorates is called in place of NumPy's `functions`."""

    def register(handler: Any) -> Any:
        for function in functions:
            HANDLERS[function] = handler
        return handler

    return register


def plain(*functions: Any) -> None:
    """Let NumPy functions that have no gradient run on values and return plain arrays."""

    def handler_of(function: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if holds_differentiable(kwargs.get("out")):
                raise TypeError(f"{name_of(function)}: out= cannot be a differentiable object")
            return function(*value_of(args), **value_of(kwargs))

        return call

    for function in functions:
        HANDLERS[function] = handler_of(function)


def times(own: Any, g: Any) -> Any:
    """Return ``own * g``, in the memory of `own`, which nobody else sees, where that fits."""
    if type(own) is np.ndarray and own.ndim and own.shape == g.shape and own.dtype == g.dtype:
        return np.multiply(own, g, out=own)
    return own * g
