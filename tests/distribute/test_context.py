"""Which replica am I, and who says how losses are combined."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt import distribute as fd
from fastopt.distribute import LocalReplicas, PerReplica, ReduceOp


def replica() -> int:
    context = fd.get_replica_context()
    assert context is not None
    return context.replica_id_in_sync_group


def test_outside_of_every_strategy_there_is_one_replica() -> None:
    assert not fd.has_strategy()
    assert not fd.in_cross_replica_context()
    context = fd.get_replica_context()
    assert context is not None
    assert (context.replica_id_in_sync_group, context.num_replicas_in_sync) == (0, 1)
    assert context.strategy is fd.get_strategy()
    assert fd.get_strategy().num_replicas_in_sync == 1
    assert fd.get_loss_reduction() is ReduceOp.SUM
    assert repr(context) == "<replica 0 of the default strategy>"


def test_a_scope_is_a_cross_replica_context() -> None:
    strategy = LocalReplicas(3)
    with strategy.scope() as entered:
        assert entered is strategy is fd.get_strategy()
        assert fd.has_strategy() and fd.in_cross_replica_context()
        assert fd.get_replica_context() is None
        with strategy.scope():  # the same once more
            assert fd.get_strategy() is strategy
        with pytest.raises(RuntimeError, match="cannot be nested"), LocalReplicas(3).scope():
            pass
    assert not fd.has_strategy()


def test_a_replica_knows_itself_and_its_thread_alone() -> None:
    strategy = LocalReplicas(3)

    def look() -> tuple[Any, ...]:
        context = fd.get_replica_context()
        assert context is not None
        return (
            context.replica_id_in_sync_group,
            context.num_replicas_in_sync,
            fd.get_strategy() is context.strategy is strategy,
            fd.has_strategy(),
            fd.in_cross_replica_context(),
            threading.get_ident(),
        )

    results = strategy.run(look)
    assert [result[:5] for result in results] == [(k, 3, True, True, False) for k in range(3)]
    assert threading.get_ident() not in {result[5] for result in results}
    assert not fd.has_strategy()


def test_a_merge_is_in_the_cross_replica_context() -> None:
    def merged(strategy: Any, one: Any, many: Any, *, named: Any) -> PerReplica:
        assert fd.in_cross_replica_context() and fd.get_strategy() is strategy
        assert one is shared and named is shared
        assert isinstance(many, PerReplica)
        calls.append(many.values)
        return PerReplica(10 * value for value in many)

    def work(mine: str) -> Any:
        context = fd.get_replica_context()
        assert context is not None
        value = [mine]
        return context.merge_call(merged, (shared, value), {"named": shared})

    shared, calls = object(), []
    assert LocalReplicas(2).run(work, (PerReplica("ab"),)).values == (["a"] * 10, ["b"] * 10)
    assert calls == [(["a"], ["b"])]


def test_a_merge_of_one_replica_is_a_call() -> None:
    def merged(strategy: Any, value: int) -> int:
        assert fd.in_cross_replica_context() and not fd.has_strategy()
        return strategy.num_replicas_in_sync + value

    context = fd.get_replica_context()
    assert context is not None and context.merge_call(merged, (4,)) == 5
    assert context.all_reduce("mean", 3.0) == 3.0
    assert not fd.in_cross_replica_context()


def test_a_merge_of_a_context_of_another_thread_is_refused() -> None:
    contexts = LocalReplicas(2).run(fd.get_replica_context)
    for context in contexts:
        with pytest.raises(RuntimeError, match="replica . of LocalReplicas.2"):
            context.merge_call(print)


@pytest.mark.parametrize(("op", "expected"), [("sum", 3.0), (ReduceOp.MEAN, 1.5), ("MEAN", 1.5)])
def test_all_reduce(op: Any, expected: float) -> None:
    def work() -> Any:
        context = fd.get_replica_context()
        assert context is not None
        same = context.all_reduce(op, 1.0)  # the same object on both
        return same, context.all_reduce(op, np.full(2, 1.0 + replica()))

    for same, array in LocalReplicas(2).run(work):
        assert same == (2.0 if expected == 3.0 else 1.0)
        np.testing.assert_array_equal(array, [expected, expected])


def test_all_reduce_of_different_operations_is_refused() -> None:
    def work() -> Any:
        context = fd.get_replica_context()
        assert context is not None
        return context.all_reduce("sum" if replica() else "mean", 1.0)

    with pytest.raises(ValueError, match="different operations"):
        LocalReplicas(2).run(work)


def test_default_graph_eager_mode_and_error_state_are_the_callers() -> None:
    graph = fo.Graph()

    def look() -> tuple[Any, ...]:
        return fo.get_default_graph() is graph, fo.executing_eagerly(), np.geterr()["over"]

    def merged(strategy: Any) -> tuple[Any, ...]:
        return look()

    def work() -> Any:
        context = fd.get_replica_context()
        assert context is not None
        with np.errstate(over="call"):
            return look(), context.merge_call(merged)

    with graph.as_default(), fo.eager_mode(), np.errstate(over="print"):
        results = LocalReplicas(2).run(work)
    assert results.values == (((True, True, "call"), (True, True, "call")),) * 2


# ---------------------------------------------------------------------- the reduction of losses


def test_loss_reduction_of_the_strategy() -> None:
    assert LocalReplicas(2).run(fd.get_loss_reduction).values == (ReduceOp.MEAN,) * 2
    summing = LocalReplicas(2, loss_reduction="sum")
    assert summing.loss_reduction is ReduceOp.SUM
    assert summing.run(fd.get_loss_reduction).values == (ReduceOp.SUM,) * 2


def test_what_was_said_before_holds_in_replicas_and_what_they_say_does_not_outlive_them() -> None:
    strategy = LocalReplicas(2)

    def say() -> ReduceOp:
        before = fd.get_loss_reduction()
        fd.set_loss_reduction(ReduceOp.MEAN)
        return before

    fd.set_loss_reduction("sum")
    try:
        assert strategy.run(say).values == (ReduceOp.SUM,) * 2
        assert strategy.run(fd.get_loss_reduction).values == (ReduceOp.SUM,) * 2
        assert fd.get_loss_reduction() is ReduceOp.SUM  # as always without a strategy
    finally:
        fd.set_loss_reduction(None)
    assert strategy.run(fd.get_loss_reduction).values == (ReduceOp.MEAN,) * 2


@pytest.mark.parametrize("bad", ["average", 1, ReduceOp])
def test_what_is_no_reduction_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"ReduceOp\.SUM or ReduceOp\.MEAN"):
        fd.set_loss_reduction(bad)
    with pytest.raises(ValueError, match="loss_reduction"):
        LocalReplicas(2, loss_reduction=bad)
    with pytest.raises(ValueError, match="op must be"):
        LocalReplicas(2).reduce(bad, PerReplica([1, 2]))


@pytest.mark.parametrize(("bad", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_what_is_no_number_of_replicas_is_refused(bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="num_replicas"):
        LocalReplicas(bad)
