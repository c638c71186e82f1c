"""The state of a thread: a replica, acting for all replicas, or neither.

It belongs to the context (`contextvars`), as the eager mode and the default graph do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# A ReplicaContext; a CrossReplica; or None outside of every strategy, where a thread is the one
# replica of the default strategy.
_CURRENT: ContextVar[Any] = ContextVar("fastopt_replica", default=None)
current = _CURRENT.get


class CrossReplica:
    """The state of a thread that acts for all replicas of a strategy."""

    __slots__ = ("strategy",)

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy


@contextmanager
def context_set_to(context: Any) -> Iterator[None]:
    """Put this thread into a state for a block."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)
