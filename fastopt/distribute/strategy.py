"""`Strategy`: what runs replicas, and lets them meet. And the default one, of one replica."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from fastopt.distribute import reduction
from fastopt.distribute.context import CrossReplica, context_set_to, current
from fastopt.distribute.values import PerReplica, ReduceOp, as_reduce_op
from fastopt.indexed_slices import IndexedSlices

Gradient = np.ndarray[Any, Any] | IndexedSlices


class Strategy(ABC):
    """Base of strategies: how many replicas there are, how they run, and how they meet.

    A subclass gives

    - `num_replicas_in_sync`;
    - `run`: call a function once on each replica, with its `ReplicaContext` in force;
    - ``_merge_call``: hold a replica until all have come, then have a function called in the
      cross-replica context. It is the only barrier;
    - ``_sum``: add the gradients of all replicas, for all variables of a step at once.

    Replicas may be threads of one process, whose values meet in a `PerReplica`, or processes: then
    a `PerReplica` holds the values of this process, ``_merge_call`` calls the function in every
    process, and ``_sum`` is where they communicate. What it returns must have the same bits
    everywhere.

    Parameters
    ----------
    loss_reduction : ReduceOp or {"mean", "sum"}
        See `LocalReplicas`.
    """

    def __init__(self, loss_reduction: ReduceOp | str = ReduceOp.MEAN) -> None:
        self._loss_reduction = as_reduce_op(loss_reduction, "loss_reduction")

    # ------------------------------------------------------------------ what a strategy gives

    @property
    @abstractmethod
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""

    @abstractmethod
    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> PerReplica:
        """Call a function on every replica.

        Parameters
        ----------
        fn : callable
            What each replica does.
        args, kwargs : sequence, mapping
            Its arguments. Of a `PerReplica` each replica gets its own value, of anything else the
            same object.

        Returns
        -------
        PerReplica
            What the calls returned.
        """

    @abstractmethod
    def _merge_call(
        self,
        context: ReplicaContext,
        merge_fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """See `ReplicaContext.merge_call`. Called by every replica, in its own thread."""

    @abstractmethod
    def _sum(
        self, terms: list[Sequence[Gradient | None]], names: list[str]
    ) -> list[Gradient | None]:
        """Return the sum over all replicas for each entry of a list.

        Parameters
        ----------
        terms : list of list
            For each entry its terms on the replicas of this process, which fit each other. An entry
            is ``None`` where a replica has nothing to add.
        names : list of str
            What the entries are for: names of variables, empty where there is none.

        Returns
        -------
        list
            For each entry what `reduction.total` returns: slices if all terms are slices; ``None``
            if no replica has any.
        """

    # ------------------------------------------------------------------ what every strategy has

    @property
    def loss_reduction(self) -> ReduceOp:
        """How losses are reduced unless `set_loss_reduction` says otherwise."""
        return self._loss_reduction

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Return a context manager that makes this the strategy in force.

        The thread is then in the cross-replica context.

        Raises
        ------
        RuntimeError
            If the thread is a replica, or another strategy is in force.
        """
        state = current()
        if isinstance(state, ReplicaContext):
            raise RuntimeError(f"scope() was called in {state!r}")
        if state is not None and state.strategy is not self:
            raise RuntimeError(f"{state.strategy!r} is in force; strategies cannot be nested")
        with context_set_to(CrossReplica(self)):
            yield self

    def reduce(self, op: ReduceOp | str, value: Any) -> Gradient | None:
        """Return the sum or mean of a value of all replicas.

        Parameters
        ----------
        op : ReduceOp or {"sum", "mean"}
            How values become one.
        value : PerReplica
            Of arrays, numbers, `IndexedSlices` or ``None``. A value that is no `PerReplica` is the
            same on all replicas.

        Returns
        -------
        ndarray, IndexedSlices or None
            Slices if all values are, with the rows of all replicas one after the other; ``None`` if
            there is no value.

        Raises
        ------
        RuntimeError
            In a replica of a strategy: use `ReplicaContext.all_reduce` there.
        ValueError
            If `op` is none of these or the shapes differ.
        TypeError
            If a value is none of these.
        """
        return self.batch_reduce(op, [value])[0]

    def batch_reduce(
        self, op: ReduceOp | str, values: Sequence[Any], names: Sequence[str] | None = None
    ) -> list[Gradient | None]:
        """Do `reduce` for several values in one go.

        Parameters
        ----------
        op : ReduceOp or {"sum", "mean"}
            How values become one.
        values : sequence of PerReplica
            See `reduce`.
        names : sequence of str, optional
            Names of what the values are for, which messages give.

        Returns
        -------
        list
            A result for each value.
        """
        op = as_reduce_op(op, "op")
        if isinstance(state := current(), ReplicaContext):
            raise RuntimeError(f"reduce was called in {state!r}; use its all_reduce or merge_call")
        called = [""] * len(values) if names is None else list(names)
        terms = [
            reduction.read(self._local_values(value), name)
            for value, name in zip(values, called, strict=True)
        ]
        sums = self._sum(terms, called)
        return [reduction.divided(each, op, self.num_replicas_in_sync) for each in sums]

    @property
    def _num_local(self) -> int:
        """How many of the replicas are in this process."""
        return self.num_replicas_in_sync

    def _local_values(self, value: Any) -> tuple[Any, ...]:
        """Return the values of the replicas of this process."""
        if not isinstance(value, PerReplica):
            return (value,) * self._num_local
        if len(value) != self._num_local:
            raise ValueError(f"{self!r} has {self._num_local} replicas, got {value!r}")
        return value.values


class ReplicaContext:
    """What one replica may ask and do; `get_replica_context` returns it.

    Attributes
    ----------
    strategy : Strategy
        The strategy that runs it.
    replica_id_in_sync_group : int
        Which replica this is, from 0.
    num_replicas_in_sync : int
        How many there are.

    Examples
    --------
    >>> import fastopt as fo
    >>> def triangle():
    ...     context = fo.distribute.get_replica_context()
    ...     return float(context.all_reduce("sum", context.replica_id_in_sync_group + 1.0))
    >>> fo.distribute.LocalReplicas(3).run(triangle).values
    (6.0, 6.0, 6.0)
    """

    __slots__ = ("_id", "_strategy")

    def __init__(self, strategy: Strategy, replica_id_in_sync_group: int) -> None:
        self._strategy = strategy
        self._id = replica_id_in_sync_group

    @property
    def strategy(self) -> Strategy:
        """The strategy that runs this replica."""
        return self._strategy

    @property
    def replica_id_in_sync_group(self) -> int:
        """Which replica this is, from 0."""
        return self._id

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""
        return self._strategy.num_replicas_in_sync

    def merge_call(
        self,
        merge_fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Wait for all replicas, and have one function called for all of them, once.

        Every replica must make the same call. An error of the function ends the run for all.

        Parameters
        ----------
        merge_fn : callable
            Called as ``merge_fn(strategy, *args, **kwargs)`` in the cross-replica context.
        args, kwargs : sequence, mapping
            An argument that is the same object on all replicas is passed on as it is, others as
            `PerReplica`.

        Returns
        -------
        object
            What the function returned; of a `PerReplica` the value of this replica.

        Raises
        ------
        RuntimeError
            If this is not the context that the thread is in.
        """
        if get_replica_context() is not self:
            raise RuntimeError(
                f"merge_call of {self!r}, but the thread is not in it: get_replica_context()"
                " returns the context of the thread"
            )
        return self._strategy._merge_call(self, merge_fn, tuple(args), dict(kwargs or {}))

    def all_reduce(self, op: ReduceOp | str, value: Any) -> Gradient | None:
        """Return the sum or mean of the values that all replicas pass, on each of them.

        Parameters
        ----------
        op : ReduceOp or {"sum", "mean"}
            How values become one.
        value : array_like, IndexedSlices or None
            As for `Strategy.reduce`.

        Returns
        -------
        ndarray, IndexedSlices or None
            Shared by the replicas: to be read only.
        """
        return self.merge_call(_reduced, (as_reduce_op(op, "op"), value))

    def __repr__(self) -> str:
        return f"<replica {self._id} of {self._strategy!r}>"


def _reduced(strategy: Strategy, op: Any, value: Any) -> Gradient | None:
    if isinstance(op, PerReplica):
        raise ValueError(f"all_reduce: the replicas want different operations, {op!r}")
    return strategy.reduce(op, value)


class DefaultStrategy(Strategy):
    """The strategy outside of every other: the thread that asks is the one replica."""

    @property
    def num_replicas_in_sync(self) -> int:
        """One."""
        return 1

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> PerReplica:
        """Call a function; see `Strategy.run`."""
        arguments = [self._local_values(arg)[0] for arg in args]
        named = {name: self._local_values(arg)[0] for name, arg in (kwargs or {}).items()}
        return PerReplica([fn(*arguments, **named)])

    def _merge_call(
        self,
        context: ReplicaContext,
        merge_fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        with context_set_to(CrossReplica(self)):
            answer = merge_fn(self, *args, **kwargs)
        return self._local_values(answer)[0]

    def _sum(
        self, terms: list[Sequence[Gradient | None]], names: list[str]
    ) -> list[Gradient | None]:
        return [term for (term,) in terms]

    def __repr__(self) -> str:
        return "the default strategy"


_DEFAULT = ReplicaContext(DefaultStrategy(ReduceOp.SUM), 0)
_LOSS_REDUCTION: ContextVar[ReduceOp | None] = ContextVar("fastopt_loss_reduction", default=None)


def get_strategy() -> Strategy:
    """Return the strategy in force.

    Returns
    -------
    Strategy
        That of the replica or of the `Strategy.scope` that the thread is in, else the default
        strategy, which has one replica.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.distribute.get_strategy().num_replicas_in_sync
    1
    """
    state = current()
    return _DEFAULT.strategy if state is None else state.strategy


def has_strategy() -> bool:
    """Say whether a strategy other than the default one is in force.

    Examples
    --------
    >>> import fastopt as fo
    >>> with fo.distribute.LocalReplicas(2).scope():
    ...     fo.distribute.has_strategy()
    True
    """
    return get_strategy() is not _DEFAULT.strategy


def in_cross_replica_context() -> bool:
    """Say whether the thread acts for all replicas: in a `Strategy.scope` or a merge.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.distribute.in_cross_replica_context()
    False
    """
    return isinstance(current(), CrossReplica)


def get_replica_context() -> ReplicaContext | None:
    """Return which replica the thread is.

    Returns
    -------
    ReplicaContext or None
        ``None`` in the cross-replica context. Outside of every strategy the context of the one
        replica of the default strategy.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.distribute.get_replica_context().replica_id_in_sync_group
    0
    """
    state = current()
    if state is None:
        return _DEFAULT
    return state if isinstance(state, ReplicaContext) else None


def get_loss_reduction() -> ReduceOp:
    """Return how the losses of the replicas are combined.

    Returns
    -------
    ReduceOp
        Without a strategy ``SUM``. Else what `set_loss_reduction` was last told in this context,
        or the strategy's own. Under ``MEAN`` ``compute_gradients`` divides the loss by the number
        of replicas, since the gradients of all replicas are added.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.distribute.get_loss_reduction()
    <ReduceOp.SUM: 'sum'>
    """
    if not has_strategy():
        return ReduceOp.SUM
    return _LOSS_REDUCTION.get() or get_strategy().loss_reduction


def set_loss_reduction(op: ReduceOp | str | None) -> None:
    """Say how losses that are computed from here on are combined over replicas.

    To be called by the function that computes the loss, or before. It holds in this context: what a
    replica says is forgotten at the end of its run.

    Parameters
    ----------
    op : ReduceOp, {"mean", "sum"} or None
        ``None``: as the strategy has it.

    Raises
    ------
    ValueError
        If it is none of these.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.distribute.set_loss_reduction("sum")
    >>> with fo.distribute.LocalReplicas(2).scope():
    ...     fo.distribute.get_loss_reduction()
    <ReduceOp.SUM: 'sum'>
    >>> fo.distribute.set_loss_reduction(None)
    """
    _LOSS_REDUCTION.set(None if op is None else as_reduce_op(op, "op"))


def loss_factor() -> float:
    """Return what a replica's loss is multiplied by."""
    if current() is None or get_loss_reduction() is ReduceOp.SUM:
        return 1.0
    return 1.0 / get_strategy().num_replicas_in_sync
