"""Functions that are recorded, and their vector-Jacobian products.

`Primitive` is one recorded function: it takes the values out of its arguments, calls the function, and
wraps the result with a `Node`. `primitive` and `defvjp` make one out of a user's function; the modules of
`numpy_vjps` make them out of NumPy's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from fastopt.autodiff.recording import Observing, current, mode_set_to
from fastopt.autodiff.tensor import (
    HANDLERS,
    Differentiable,
    Form,
    Node,
    Tensor,
    holds_differentiable,
    name_of,
    read_only,
    value_of,
)

__all__ = ["Primitive", "custom_gradient", "defvjp", "defvjp_argnums", "primitive", "stop_gradient"]

VjpMaker = Callable[..., Callable[[Any], Any]]

_MISSING: Any = object()

ANS = -1
"""Stands for the result among the positions that a derivative reads."""


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Say whether gradients flow through numbers of this dtype: real and complex, also 16-bit ones."""
    kind = dtype.kind
    return kind in "fc" or (kind == "V" and dtype.names is None and "float" in dtype.name)


class Primitive:
    """A function whose calls are recorded.

    Parameters
    ----------
    function : callable
        Takes and returns plain values.
    name : str, optional
        What messages call it.
    elementwise : bool
        Gradients may have the shape of the result; they are summed down to that of the argument. The
        derivative does not see keyword arguments.
    holomorphic : bool
        The derivative is also right for complex arguments, up to the conjugation that `backward` does.
    builtin : bool
        Its derivatives return arrays of their own, or views of the gradient that they are given: never
        saved values.
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
        self.reads: dict[int, frozenset[int] | None] = {}
        self._kept: dict[tuple[int, ...], frozenset[int] | None] = {}
        self.joint: Callable[..., Callable[[Any], Sequence[Any]]] | None = None
        self.joint_reads: frozenset[int] | None = None

    # ------------------------------------------------------------------ forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode = current()
        if kwargs:
            args, kwargs = self._settle(args, kwargs, mode.records)
        values = list(args)
        argnums = []
        parents = []
        reads = []
        vjps = self.vjps
        for i, x in enumerate(args):
            if isinstance(x, Differentiable):
                node = x._node
                if node is not None:
                    values[i] = x._read()
                    if vjps.get(i, _MISSING) is not None:
                        argnums.append(i)
                        parents.append(node)
                    continue
                values[i] = value = x._read()
                if mode.watches:
                    if x._trainable:
                        mode.watch(x)
                elif mode.versions:
                    reads.append((x, x._version))
                if vjps.get(i, _MISSING) is not None and is_inexact(value.dtype):
                    argnums.append(i)
                    parents.append(x)
            elif type(x) is list or type(x) is tuple:
                values[i] = self._sequence(i, x)
        if not mode.records:
            return _closed(self.function(*values, **kwargs), args, values)
        ans = self.function(*values, **kwargs)
        if not parents:
            return _closed(ans, args, values)
        return self._record(values, kwargs, ans, argnums, parents, reads)

    def _record(
        self,
        values: list[Any],
        kwargs: dict[str, Any],
        ans: Any,
        argnums: list[int],
        parents: list[Any],
        reads: list[tuple[Any, int]],
    ) -> Any:
        if type(ans) is not np.ndarray and not isinstance(ans, np.generic):
            ans = self._as_array(ans)
        dtype = ans.dtype
        if not is_inexact(dtype):
            if dtype.hasobject:
                raise TypeError(f"{self.name} returned an array of objects, not of numbers")
            return ans
        positions = tuple(argnums)
        try:
            kept = self._kept[positions]
        except KeyError:
            kept = self._keep(positions)
        if kept is not None:
            for i, parent in zip(argnums, parents, strict=True):
                if i not in kept:
                    values[i] = parent
            for i, value in enumerate(values):
                if type(value) is np.ndarray and i not in kept:
                    values[i] = None if self.elementwise else Form(value)
        node = Node(
            self,
            positions,
            tuple(parents),
            values,
            {} if self.elementwise else kwargs,
            ans if kept is None or ANS in kept else None,
            ans.shape,
            dtype,
            tuple(reads),
        )
        return Tensor._of(ans, node)

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

    def record(self, args: Sequence[Any], kwargs: dict[str, Any], ans: Any) -> Any:
        """Record a call whose result the caller has computed.

        For functions that do not want the whole value of a variable, such as look-ups.

        Parameters
        ----------
        args : sequence
            The arguments. A `Differentiable` stays as it is and is seen by the derivative as an object
            with shape and dtype.
        kwargs : dict
            Further arguments of the derivative, all plain.
        ans : ndarray
            The result.

        Returns
        -------
        Tensor or ndarray
            `ans` itself where nothing is recorded.
        """
        mode = current()
        argnums, parents, reads = [], [], []
        values = list(args)
        for i, x in enumerate(args):
            if isinstance(x, Differentiable):
                node = x._node
                if node is None:
                    if mode.watches:
                        if x._trainable:
                            mode.watch(x)
                    elif mode.versions:
                        reads.append((x, x._version))
                    node = x  # type: ignore[assignment]
                values[i] = node
                if self.vjps.get(i, _MISSING) is not None and is_inexact(x.dtype):
                    argnums.append(i)
                    parents.append(node)
        if not mode.records or not parents:
            return ans
        return self._record(values, kwargs, ans, argnums, parents, reads)

    def _sequence(self, i: int, x: Any) -> Any:
        if holds_differentiable(x):
            if not current().records:
                return value_of(x)
            raise TypeError(
                f"{self.name}: argument {i} is a {type(x).__name__} that holds differentiable objects, "
                "which cannot be recorded; join them with np.stack or np.concatenate first"
            )
        return np.asarray(x) if self.elementwise else x

    def _as_array(self, ans: Any) -> Any:
        if isinstance(ans, (tuple, list)):
            raise TypeError(
                f"{self.name} returned a {type(ans).__name__}; a recorded function returns one array"
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
                    raise TypeError(f"{self.name}: {key}= is not supported on differentiable objects")
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

    def pull(self, node: Node, argnums: Sequence[int], g: Any) -> Sequence[Any]:
        """Return the gradients of the arguments at `argnums`, `g` being that of the result."""
        if self.joint is not None:
            return self.joint(argnums, node.ans, node.args, node.kwargs)(g)
        vjps = self.vjps
        args, kwargs, ans = node.args, node.kwargs, node.ans
        return [vjps[i](ans, *args, **kwargs)(g) for i in argnums]  # type: ignore[misc]

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


def is_default(value: Any) -> bool:
    """Say whether an optional argument of a NumPy function was left alone."""
    return (
        value is None
        or value is True
        or value is np._NoValue  # type: ignore[attr-defined]
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
        One for each differentiable argument. ``maker(ans, *args, **kwargs)`` gets the result and the
        arguments as plain values and returns a function that maps the gradient of the result to that
        of the argument: an array of the argument's shape, an `IndexedSlices`, or None for no
        contribution. It changes none of these arrays. None in place of a maker says that no gradient
        flows to that argument.
    argnums : iterable of int, optional
        The positions of these arguments; 0, 1, ... by default.
    reads : sequence of iterables of str, optional
        For each maker, the names of those of its own parameters whose values it reads. What no derivative
        reads is not kept until the backward pass; the maker gets an object with `shape`, `dtype`, `ndim` and
        `size` in its place. By default all values are kept.

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
        ``maker(argnums, ans, args, kwargs)`` returns a function that maps the gradient of the result to
        the sequence of gradients of the arguments at `argnums`.
    reads : iterable of int, optional
        The positions of the arguments whose values the derivatives read, -1 standing for the result. All
        by default.
    """
    made = _primitive_of(function)
    made.joint = maker
    made.joint_reads = None if reads is None else frozenset(reads)
    made._kept.clear()


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
    # The node has no parents, but remembers what it read: the value may be the variable's own storage.
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
        argument, or a list with one gradient (or None) for each positional argument. It is called with
        plain arrays.

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
            raise TypeError(f"{name}: a custom_gradient function returns (y, grad_fn), got {result!r}")
        if observed.read:
            names = ", ".join(dict.fromkeys(x.name for x in observed.read))
            raise TypeError(
                f"{name}: reads {names} without being given it; pass variables as arguments, or they "
                "would get no gradient"
            )
        operation = _CustomGradient(name, result[1], len(args))
        return operation.record(args, {}, result[0])

    return update_wrapper(called, function)
