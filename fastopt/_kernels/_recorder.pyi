from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Any

import numpy as np

class Mode:
    eager: bool
    records: bool
    versions: bool
    watches: bool
    def __init__(self, *, eager: bool, records: bool, versions: bool, watches: bool) -> None: ...

def current() -> Any: ...
def enter(mode: Mode) -> Token[Mode | None]: ...
def leave(token: Token[Mode | None]) -> None: ...
def set_default(mode: Mode) -> None: ...
def install(
    tensor: type, differentiable: type, plain_result: Callable[[Any, Any, Any], Any]
) -> None: ...
def is_inexact(dtype: np.dtype[Any]) -> bool: ...

class Form:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...

class Node(Form):
    id: int
    operation: Any
    argnums: tuple[int, ...]
    parents: tuple[Any, ...]
    args: Any
    kwargs: dict[str, Any]
    ans: Any
    reads: tuple[tuple[Any, int], ...]
    def __init__(
        self,
        operation: Any,
        argnums: tuple[int, ...],
        parents: tuple[Any, ...],
        args: Any,
        kwargs: dict[str, Any],
        ans: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        reads: tuple[tuple[Any, int], ...],
    ) -> None: ...

class Cell:
    _value: Any
    _node: Any
    _name: Any

def wrapped(value: Any, node: Any) -> Any: ...
def binary(
    ufunc: np.ufunc, handlers: dict[Any, Any], symbol: str
) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]: ...
def undo(
    step: tuple[Node, Sequence[int], Sequence[Any]],
    pending: dict[int, Any],
    total: Callable[[Any, Any], Any],
    pull: Callable[[Any, Node, Sequence[int], Any], Sequence[Any]],
    fit: Callable[[Any, Any, Any, int], Any],
    collect: Callable[[dict[int, Any], Any, Any, bool], None],
    apart: Callable[[Any], Any] | None,
) -> None: ...
def reachable(y_keys: Sequence[Any], stopped: set[int]) -> list[Node]: ...
def steps(
    nodes: list[Node], wanted: set[int], stopped: set[int]
) -> list[tuple[Node, Sequence[int], Sequence[Any]]]: ...

class Recorder:
    function: Callable[..., Any]
    name: str
    elementwise: bool
    blocked: frozenset[int]
    _kept: dict[tuple[int, ...], frozenset[int] | None]
    vjps: dict[int, Callable[..., Callable[[Any], Any]] | None]
    joint: Callable[..., Callable[[Any], Sequence[Any]]] | None
    def pull(self, node: Node, argnums: Sequence[int], g: Any) -> Sequence[Any]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def record(self, args: Sequence[Any], kwargs: dict[str, Any], ans: Any) -> Any: ...
    def _record(
        self,
        values: list[Any],
        kwargs: dict[str, Any],
        ans: Any,
        argnums: tuple[int, ...],
        parents: tuple[Any, ...],
        reads: tuple[tuple[Any, int], ...],
    ) -> Any: ...
