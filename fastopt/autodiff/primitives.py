"""Functions that are recorded, and their vector-Jacobian products.

`Primitive` is one recorded function: it takes the values out of its arguments, calls the function,
and wraps the result with a `Node`; what every call runs through is compiled (`_kernels/_recorder`).
`primitive` and `defvjp` make one out of a user's function; the modules of `numpy_vjps` make them
out of NumPy's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from fastopt._kernels._recorder import Recorder, install, is_inexact
from fastopt.autodiff.recording import current
from fastopt.autodiff.tensor import (
    HANDLERS,
    Differentiable,
    Tensor,
    holds_differentiable,
    name_of,
    read_only,
    value_of,
)

__all__ = ["Primitive", "defvjp", "defvjp_argnums", "is_inexact", "primitive"]

VjpMaker = Callable[..., Callable[[Any], Any]]


class Primitive(Recorder):
    """A function whose calls are recorded.

    Parameters
    ----------
    function : callable
        Takes and returns plain values.
    name : str, optional
        What messages call it.
    elementwise : bool
        Gradients may have the shape of the result; they are summed down to that of the argument.
        The derivative does not see keyword arguments.
    holomorphic : bool
        The derivative is also right for complex arguments, up to the conjugation that `backward`
        does.
    builtin : bool
        Its derivatives return arrays of their own, or views of the gradient that they are given:
        never saved values.
    refuses : iterable of str
        Keyword arguments of the function without a recorded form.
    """

    opaque = False

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        *,
        elementwise: bool = False,
        holomorphic: bool = False,
        builtin: bool = False,
        refuses: Iterable[str] = ("out",),
    ) -> None:
        self.function = function
        self.name = name or name_of(function)
        self.elementwise = elementwise
        self.holomorphic = holomorphic
        self.builtin = builtin
        self.refuses = frozenset(refuses)
        self.vjps: dict[int, VjpMaker | None] = {}
        self.blocked: frozenset[int] = frozenset()
        self.reads: dict[int, frozenset[int] | None] = {}
        self._kept: dict[tuple[int, ...], frozenset[int] | None] = {}
        self.joint: Callable[..., Callable[[Any], Sequence[Any]]] | None = None
        self.joint_reads: frozenset[int] | None = None

    # ------------------------------------------------------------------ forward

    def _keep(self, argnums: tuple[int, ...]) -> frozenset[int] | None:
        """Return the positions that the derivatives for `argnums` read; None stands for all."""
        if self.joint is not None:
            kept = self.joint_reads
        else:
            kept = frozenset()
            for i in argnums:
                reads = self.reads.get(i)
                kept = None if reads is None or kept is None else kept | reads
        self._kept[argnums] = kept
        return kept

    def _sequence(self, i: int, x: Any) -> Any:
        if holds_differentiable(x):
            if not current().records:
                return value_of(x)
            raise TypeError(
                f"{self.name}: argument {i} is a {type(x).__name__} that holds differentiable "
                "objects, which cannot be recorded; join them with np.stack or np.concatenate "
                "first"
            )
        return np.asarray(x) if self.elementwise else x

    def _foreign(self, x: Any) -> Any:
        # Derivatives would meet arithmetic that isn't NumPy's: PyTorch's, JAX's, pandas'.
        return np.asarray(x) if self.builtin else x

    def _as_array(self, ans: Any) -> Any:
        if isinstance(ans, (tuple, list)):
            raise TypeError(
                f"{self.name} returned a {type(ans).__name__}; a recorded function returns one "
                "array"
            )
        array = np.asarray(ans)
        if array.dtype == object:
            raise TypeError(
                f"{self.name} returned {type(ans).__name__}, which is no array of numbers"
            )
        return array

    def _settle(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], records: bool
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Refuse keywords without recorded form; make differentiable ones positional."""
        for key, value in kwargs.items():
            if key in self.refuses and not is_default(value):
                if records or holds_differentiable(value):
                    raise TypeError(
                        f"{self.name}: {key}= is not supported on differentiable objects"
                    )
            elif holds_differentiable(value):
                return self._bound(args, kwargs)
        return args, kwargs

    def _bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            parameters = inspect.signature(self.function).parameters
        except ValueError:
            parameters = {}  # type: ignore[assignment]
        positional = list(args)
        rest = dict(kwargs)
        for i, (key, parameter) in enumerate(parameters.items()):
            if not holds_differentiable(list(rest.values())):
                break
            if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
                break
            if i >= len(args):
                positional.append(rest.pop(key) if key in rest else parameter.default)
        for key, value in rest.items():
            if holds_differentiable(value):
                raise TypeError(f"{self.name}: {key}= cannot be a differentiable object")
        return tuple(positional), rest

    # ------------------------------------------------------------------ backward

    def lacks(self, argnums: Iterable[int]) -> int | None:
        """Return the first of the positions for which there is no derivative, or None."""
        if self.joint is None:
            for i in argnums:
                if i not in self.vjps:
                    return i
        return None

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


def _closed(ans: Any, args: Sequence[Any], values: Sequence[Any]) -> Any:
    """Make a plain result that lies in the memory of a differentiable argument read-only."""
    if type(ans) is np.ndarray and any(
        ans is value or (ans.base is not None and np.may_share_memory(ans, value))
        for x, value in zip(args, values, strict=True)
        if isinstance(x, Differentiable)
    ):
        return read_only(ans)
    return ans


install(Tensor, Differentiable, _closed)


def is_default(value: Any) -> bool:
    """Say whether an optional argument of a NumPy function was left alone."""
    return (
        value is None
        or value is True
        or value is np._NoValue
        or (isinstance(value, tuple) and all(item is None for item in value))
    )


def primitive(function: Callable[..., Any]) -> Any:
    """Make a function of plain arrays one whose calls are recorded.

    When an argument is a variable or tensor, the function is called with the values and the call is
    recorded; its derivatives come from `defvjp`. Without one, differentiating through it is a
    `LookupError`.

    Parameters
    ----------
    function : callable
        Takes arrays and returns one array, which it does not change afterwards.

    Returns
    -------
    Primitive
        A callable of the same signature.

    Examples
    --------
    >>> import numpy as np
    >>> from fastopt.autodiff import Tensor, defvjp, gradients, primitive
    >>> @primitive
    ... def cube(x):
    ...     return x * x * x
    >>> defvjp(cube, lambda ans, x: lambda g: g * 3 * x * x)
    >>> x = Tensor(2.0)
    >>> gradients(cube(x), x)
    [array(12.)]
    """
    made = Primitive(function)
    update_wrapper(made, function)
    return made


def _primitive_of(function: Any) -> Primitive:
    if isinstance(function, Primitive):
        return function
    known = HANDLERS.get(function) if callable(function) else None
    if isinstance(known, Primitive):
        return known
    raise TypeError(f"{function!r} is not a recorded function: decorate it with fastopt.primitive")


def defvjp(
    function: Any,
    *makers: VjpMaker | None,
    argnums: Iterable[int] | None = None,
    reads: Sequence[Iterable[str]] | None = None,
) -> None:
    """Give a recorded function its vector-Jacobian products.

    Parameters
    ----------
    function : Primitive
        What `primitive` returned.
    *makers : callable or None
        One for each differentiable argument. ``maker(ans, *args, **kwargs)`` gets the result and
        the arguments as plain values and returns a function that maps the gradient of the result to
        that of the argument: an array of the argument's shape, an `IndexedSlices`, or None for no
        contribution. It changes none of these arrays. None in place of a maker says that no
        gradient flows to that argument.
    argnums : iterable of int, optional
        The positions of these arguments; 0, 1, ... by default.
    reads : sequence of iterables of str, optional
        For each maker, the names of those of its own parameters whose values it reads. What no
        derivative reads is not kept until the backward pass; the maker gets an object with `shape`,
        `dtype`, `ndim` and `size` in its place. By default all values are kept.

    Raises
    ------
    TypeError
        If `function` is not recorded.

    Examples
    --------
    >>> from fastopt.autodiff import defvjp, primitive
    >>> @primitive
    ... def scaled(x, factor):
    ...     return x * factor
    >>> defvjp(scaled, lambda ans, x, factor: lambda g: g * factor, None)
    """
    positions = range(len(makers)) if argnums is None else list(argnums)
    made = _primitive_of(function)
    if len(positions) != len(makers):
        raise ValueError(f"{made.name}: {len(makers)} derivatives for {len(positions)} argnums")
    for n, (i, maker) in enumerate(zip(positions, makers, strict=True)):
        made.vjps[i] = maker
        if reads is not None and maker is not None:
            code = maker.__code__
            names = code.co_varnames[: code.co_argcount]
            made.reads[i] = frozenset(names.index(name) - 1 for name in reads[n])
    made.blocked = frozenset(i for i, maker in made.vjps.items() if maker is None)
    made._kept.clear()


def defvjp_argnums(
    function: Any,
    maker: Callable[..., Callable[[Any], Sequence[Any]]],
    reads: Iterable[int] | None = None,
) -> None:
    """Give a recorded function the derivatives of all its arguments at once.

    Parameters
    ----------
    function : Primitive
        What `primitive` returned.
    maker : callable
        ``maker(argnums, ans, args, kwargs)`` returns a function that maps the gradient of the
        result to the sequence of gradients of the arguments at `argnums`.
    reads : iterable of int, optional
        The positions of the arguments whose values the derivatives read, -1 standing for the
        result. All by default.

    Examples
    --------
    >>> from fastopt.autodiff import Tensor, defvjp_argnums, gradients, primitive
    >>> @primitive
    ... def product(x, y):
    ...     return x * y
    >>> defvjp_argnums(
    ...     product, lambda argnums, ans, args, kwargs: lambda g: [g * args[1 - i] for i in argnums]
    ... )
    >>> x, y = Tensor(3.0), Tensor(5.0)
    >>> gradients(product(x, y), [x, y])
    [array(5.), array(3.)]
    """
    made = _primitive_of(function)
    made.joint = maker
    made.joint_reads = None if reads is None else frozenset(reads)
    made._kept.clear()
