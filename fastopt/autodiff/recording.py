"""What is recorded, and when.

Three states: in graph mode (the default) every operation on a `Differentiable` is recorded; in
eager mode none is; inside a `Recording` every one is, whatever the mode, and the recording notes
which trainable objects were read. The state belongs to the thread (more exactly, to its context).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Token
from types import TracebackType
from typing import Any

from fastopt._kernels._recorder import Mode, current, enter, leave, set_default

__all__ = [
    "Recording",
    "current",
    "eager_mode",
    "enable_eager_execution",
    "executing_eagerly",
    "graph_mode",
]


# The two modes without a recording.
GRAPH = Mode(eager=False, records=True, versions=True, watches=False)
EAGER = Mode(eager=True, records=False, versions=False, watches=False)


set_default(GRAPH)


class Observing(Mode):
    """A mode in which nothing is recorded but what is read is noted."""

    __slots__ = ("read",)

    def __init__(self, eager: bool) -> None:
        super().__init__(eager=eager, records=False, versions=False, watches=True)
        self.read: list[Any] = []

    def watch(self, x: Any) -> None:
        """Note that `x` is read."""
        self.read.append(x)


class Recording(Mode):
    """Record what a callable computes, and which variables it reads.

    Use it as a context manager. Operations on differentiable objects inside it are recorded in
    graph mode and in eager mode alike. A recording belongs to the thread that opened it; another
    thread may have its own at the same time. Recordings may be nested: what an inner one saw, the
    outer one saw too.

    Unlike in graph mode outside a recording, a variable may change between its being read and the
    backward pass: other threads may train at the same time.

    Attributes
    ----------
    watched : list of Differentiable
        The trainable objects that were read, in the order of their first reading, each once, and
        those given to `watch`.

    Examples
    --------
    >>> from fastopt.autodiff import Recording, Tensor
    >>> x = Tensor([1.0, 2.0])
    >>> with Recording() as recording:
    ...     recording.watch(x)
    ...     y = (x * x).sum()
    >>> recording.watched[0] is x
    True
    """

    __slots__ = ("watched", "_seen", "_outer", "_token")

    def __init__(self) -> None:
        super().__init__(eager=False, records=True, versions=False, watches=True)
        self.watched: list[Any] = []
        self._seen: set[int] = set()
        self._outer: Mode | None = None
        self._token: Token[Mode | None] | None = None

    def watch(self, x: Any) -> None:
        """Add `x` to `watched`, unless it is there.

        Parameters
        ----------
        x : Differentiable
            A variable or tensor, trainable or not.
        """
        if id(x) not in self._seen:
            self._seen.add(id(x))
            self.watched.append(x)

    def __enter__(self) -> Recording:
        if self._token is not None:
            raise RuntimeError("this Recording is open already; make a new one for each use")
        outer = current()
        self.eager = outer.eager
        self._outer = outer if outer.watches else None
        self._token = enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._token is not None
        leave(self._token)
        self._token = None
        outer: Any = self._outer
        self._outer = None
        if outer is not None:
            for x in self.watched:
                outer.watch(x)


def enable_eager_execution() -> None:
    """Make eager mode the default of the whole process.

    Operations outside a callable loss are then plain NumPy operations: they return arrays and
    record nothing, and a loss must be a callable. `eager_mode` does the same for a block of code.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.enable_eager_execution()  # doctest: +SKIP
    """
    set_default(EAGER)


def executing_eagerly() -> bool:
    """Say whether eager mode is on in this thread.

    Returns
    -------
    bool
        True in eager mode, also inside a callable loss that is being recorded there.

    Examples
    --------
    >>> from fastopt.autodiff import eager_mode, executing_eagerly
    >>> with eager_mode():
    ...     executing_eagerly()
    True
    """
    return current().eager


@contextmanager
def mode_set_to(mode: Mode) -> Iterator[None]:
    """Put this thread into `mode` for a block."""
    token = enter(mode)
    try:
        yield
    finally:
        leave(token)


def eager_mode() -> Any:
    """Return a context manager that turns eager mode on in this thread.

    Returns
    -------
    context manager
        Inside it operations return plain arrays and record nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from fastopt.autodiff import Tensor, eager_mode
    >>> with eager_mode():
    ...     type(np.exp(Tensor(0.0)))
    <class 'numpy.float64'>
    """
    return mode_set_to(EAGER)


def graph_mode() -> Any:
    """Return a context manager that turns graph mode on in this thread.

    Returns
    -------
    context manager
        Inside it every operation on a variable or tensor is recorded.

    Examples
    --------
    >>> from fastopt.autodiff import executing_eagerly, graph_mode
    >>> with graph_mode():
    ...     executing_eagerly()
    False
    """
    return mode_set_to(GRAPH)
