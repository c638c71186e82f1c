"""`Meeting`: where the replicas of one run wait for each other.

Each replica has a thread. The thread that started the run presides: it waits until no replica is
working any more, and then either all wait with the same request, which it answers, or the run is
over. So it is known by counting when a replica waits in vain; no time limits are needed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any


class ReplicaError(RuntimeError):
    """A replica has failed, and with it the run of all.

    Attributes
    ----------
    replica_id : int
        Which one. Its own error is the cause of this one (``__cause__``).
    """

    def __init__(self, message: str, replica_id: int) -> None:
        super().__init__(message, replica_id)
        self.replica_id = replica_id

    def __str__(self) -> str:
        return str(self.args[0])


class Ended(BaseException):
    """Raised in replicas that wait, or come to wait, when the run is over.

    No `Exception`, so that the replica's own error handling lets it pass.
    """


class Request:
    """What one replica wants from a meeting."""

    __slots__ = ("answer", "answered", "args", "context", "function", "kwargs")

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.context: Context = copy_context()
        self.answered = False
        self.answer: Any = None

    def __str__(self) -> str:
        function = _unwrapped(self.function)
        name = getattr(function, "__qualname__", repr(function))
        owner = getattr(function, "__self__", None)
        return name if owner is None else f"{name} of {owner!r}"


class Meeting:
    """The replicas of one run.

    Parameters
    ----------
    n : int
        How many there are.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._changed = threading.Condition()
        self._waiting: dict[int, Request] = {}
        self._results: dict[int, Any] = {}
        self._errors: dict[int, BaseException] = {}
        self._over = False
        self._threads: list[threading.Thread] = []

    # ------------------------------------------------------------------ in the replicas' threads

    def wait(self, replica: int, request: Request) -> Any:
        """Wait for all other replicas, and return the answer."""
        with self._changed:
            if self._over:
                raise Ended
            self._waiting[replica] = request
            self._changed.notify_all()
            self._changed.wait_for(lambda: request.answered or self._over)
            if not request.answered:
                raise Ended
            return request.answer

    def _work(self, replica: int, work: Callable[[int], Any]) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = work(replica)
        except Ended:
            return
        except BaseException as raised:
            error = raised
        with self._changed:
            if error is None:
                self._results[replica] = result
            else:
                self._errors[replica] = error
            self._changed.notify_all()

    # ------------------------------------------------------------------ in the presiding thread

    def hold(
        self, work: Callable[[int], Any], merge: Callable[[list[Request]], list[Any]]
    ) -> list[Any]:
        """Let the replicas work, answer their requests, and return what they return.

        Parameters
        ----------
        work : callable
            What a replica does; called with its number, in a copy of this thread's context.
        merge : callable
            Returns the answers to requests, one of each replica.

        Raises
        ------
        ReplicaError
            If a replica raised, or does not come to a meeting at which others wait.
        Exception
            What `merge` raised.
        """
        try:
            for replica in range(self._n):
                thread = threading.Thread(
                    target=copy_context().run,
                    args=(self._work, replica, work),
                    name=f"replica {replica}",
                    daemon=True,
                )
                self._threads.append(thread)
                thread.start()
            while requests := self._next():
                answers = merge(requests)
                with self._changed:
                    self._waiting.clear()
                    for request, answer in zip(requests, answers, strict=True):
                        request.answer, request.answered = answer, True
                    self._changed.notify_all()
        finally:
            self._end()
        self._raise_errors()
        return [self._results[replica] for replica in range(self._n)]

    def _next(self) -> list[Request]:
        """Wait until all have come, and return what they want; nothing if the run is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._errors or len(self._waiting) + len(self._results) == self._n
            )
            if self._errors or not self._waiting:
                return []
            if self._results:
                waiting = min(self._waiting)
                gone = min(self._results)
                raise ReplicaError(
                    f"replica {gone} of {self._n} returned without the merge call in which replica"
                    f" {waiting} waits for it: {self._waiting[waiting]}; all replicas must make the"
                    " same calls of apply_gradients, minimize and merge_call",
                    gone,
                )
            return [self._waiting[replica] for replica in range(self._n)]

    def _end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _raise_errors(self) -> None:
        if not self._errors:
            return
        replica, error = min(self._errors.items(), key=lambda item: item[0])
        if not isinstance(error, Exception):  # SystemExit, KeyboardInterrupt
            raise error
        raise ReplicaError(
            f"replica {replica} of {self._n} raised {type(error).__name__}: {error}", replica
        ) from error


def require_same(requests: list[Request]) -> None:
    """Check that all replicas want the same.

    Raises
    ------
    ReplicaError
        If not; it names the first that differs from replica 0.
    """
    first = requests[0]
    for replica, request in enumerate(requests):
        if not _is_same(first.function, request.function):
            raise ReplicaError(
                "all replicas must make the same merge calls: replica 0 calls"
                f" {first}, replica {replica} calls {request}",
                replica,
            )
        if len(first.args) != len(request.args) or first.kwargs.keys() != request.kwargs.keys():
            raise ReplicaError(
                f"all replicas must pass the same arguments to {first}: replica 0 passes"
                f" {len(first.args)} and {sorted(first.kwargs)}, replica {replica}"
                f" {len(request.args)} and {sorted(request.kwargs)}",
                replica,
            )


def _is_same(f: Any, g: Any) -> bool:
    # A function that is defined in what each replica runs is another object on each of them.
    f, g = _unwrapped(f), _unwrapped(g)
    if f == g:
        return True
    code = getattr(f, "__code__", None)
    return (
        code is not None
        and code is getattr(g, "__code__", None)
        and getattr(f, "__self__", None) is getattr(g, "__self__", None)
    )


def _unwrapped(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function
