"""Replicas as threads: what they get and return, and how a run ends."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fastopt as fo
from fastopt import distribute as fd
from fastopt.distribute import LocalReplicas, PerReplica, ReplicaError


def me() -> int:
    context = fd.get_replica_context()
    assert context is not None
    return context.replica_id_in_sync_group


def meet(value: Any = None) -> Any:
    context = fd.get_replica_context()
    assert context is not None
    return context.merge_call(values_of, (value,))


def values_of(strategy: Any, values: Any) -> Any:
    return values.values if isinstance(values, PerReplica) else values


# ---------------------------------------------------------------------- arguments and results


@pytest.mark.parametrize("n", [1, 2, 5])
def test_each_replica_gets_its_own(n: int) -> None:
    shared: list[int] = []

    def work(mine: int, every: list[int], *, named: int, same: str) -> tuple[Any, ...]:
        return me(), mine, every is shared, named, same

    results = LocalReplicas(n).run(
        work,
        (PerReplica(range(n)), shared),
        {"named": PerReplica(range(10, 10 + n)), "same": "x"},
    )
    assert results.values == tuple((k, k, True, 10 + k, "x") for k in range(n))
    assert (
        len(results) == n and results[0] == list(results)[0] and results[:1] == results.values[:1]
    )


def test_the_default_strategy_runs_here() -> None:
    strategy = fd.get_strategy()
    assert strategy.run(lambda x, y: (x, y), (PerReplica([3]),), {"y": 4}).values == ((3, 4),)


def test_a_wrong_number_of_values_is_refused() -> None:
    with pytest.raises(ValueError, match="has 2 replicas, got PerReplica"):
        LocalReplicas(2).run(print, (PerReplica([1, 2, 3]),))


def test_split() -> None:
    strategy = LocalReplicas(2)
    array = np.arange(8).reshape(4, 2)
    first, second = strategy.split(array)
    assert first.base is array.base and second.tolist() == [[4, 5], [6, 7]]
    assert strategy.split([1, 2, 3, 4]).values == ([1, 2], [3, 4])
    matrix = scipy.sparse.csr_array(np.eye(4))
    assert [part.shape for part in strategy.split(matrix)] == [(2, 4), (2, 4)]
    with pytest.raises(ValueError, match="5 rows cannot be split into 2"):
        strategy.split(np.zeros(5))


def test_replicas_work_at_the_same_time() -> None:
    barrier = threading.Barrier(3)  # passed only by three at once
    LocalReplicas(3).run(lambda: barrier.wait(60))


def test_many_meetings_are_in_step() -> None:
    def work() -> list[Any]:
        return [meet(10 * step + me()) for step in range(200)]

    for result in LocalReplicas(3).run(work):
        assert result == [tuple(10 * step + k for k in range(3)) for step in range(200)]


# ---------------------------------------------------------------------- runs that end early


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_one_that_raises_ends_the_run_for_all(failing: int) -> None:
    passed: list[int] = []
    cleaned: list[int] = []

    def work() -> None:
        meet()
        try:
            if me() == failing:
                raise KeyError("nothing here")
            meet()
            passed.append(me())
        finally:
            cleaned.append(me())

    with pytest.raises(ReplicaError, match=rf"replica {failing} of 3 raised KeyError: 'noth") as e:
        LocalReplicas(3).run(work)
    assert e.value.replica_id == failing
    assert isinstance(e.value.__cause__, KeyError)
    assert passed == [] and sorted(cleaned) == [0, 1, 2]


def test_error_handling_of_a_replica_does_not_catch_the_end_of_the_run() -> None:
    def work() -> str:
        if me() == 0:
            raise ValueError("first")
        try:
            meet()
        except Exception:
            return "caught"
        return "met"

    with pytest.raises(ReplicaError, match="replica 0 of 2 raised ValueError: first"):
        LocalReplicas(2).run(work)


def test_of_several_errors_that_of_the_first_replica_is_named() -> None:
    start = threading.Barrier(3)

    def work() -> None:
        start.wait(60)
        if me():
            time.sleep(0.01)
        raise ValueError(f"from {me()}")

    for _ in range(5):
        with pytest.raises(ReplicaError, match="replica 0 of 3 raised ValueError: from 0"):
            LocalReplicas(3).run(work)
        start.reset()


def test_one_that_returns_early_is_named() -> None:
    def work() -> None:
        meet()
        if me() != 1:
            meet()

    with pytest.raises(ReplicaError, match="replica 1 of 3 returned without.*values_of") as error:
        LocalReplicas(3).run(work)
    assert error.value.replica_id == 1


def test_different_merges_are_named() -> None:
    def other(strategy: Any, value: Any) -> None: ...

    def work(different: str) -> None:
        context = fd.get_replica_context()
        assert context is not None
        if me() == 0 or different == "no":
            context.merge_call(values_of, (1,))
        elif different == "function":
            context.merge_call(other, (1,))
        elif different == "number":
            context.merge_call(values_of, (1, 2))
        else:
            context.merge_call(values_of, (), {"values": 1})

    strategy = LocalReplicas(2)
    strategy.run(work, ("no",))
    with pytest.raises(ReplicaError, match=r"replica 0 calls values_of, replica 1 calls .*other"):
        strategy.run(work, ("function",))
    for different in ("number", "keyword"):
        with pytest.raises(ReplicaError, match="same arguments to values_of"):
            strategy.run(work, (different,))


def test_a_function_that_each_replica_defines_is_the_same() -> None:
    def work() -> Any:
        context = fd.get_replica_context()
        assert context is not None
        return context.merge_call(lambda strategy: strategy.num_replicas_in_sync)

    assert LocalReplicas(2).run(work).values == (2, 2)


def test_partial_functions_are_the_same_if_what_they_call_is() -> None:
    def work() -> Any:
        context = fd.get_replica_context()
        assert context is not None
        return context.merge_call(functools.partial(values_of, values="bound"))

    assert LocalReplicas(2).run(work).values == ("bound", "bound")


def test_an_error_of_the_merge_is_raised_as_it_is() -> None:
    error = LookupError("in the merge")

    def merged(strategy: Any) -> None:
        raise error

    def work() -> None:
        context = fd.get_replica_context()
        assert context is not None
        context.merge_call(merged)

    with pytest.raises(LookupError) as raised:
        LocalReplicas(2).run(work)
    assert raised.value is error


def test_system_exit_is_not_wrapped() -> None:
    with pytest.raises(SystemExit):
        LocalReplicas(2).run(lambda: sys.exit(3) if me() else meet())


def test_an_interrupt_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does, which Python raises in the main thread while it waits."""
    from fastopt.distribute.meeting import Meeting

    waiting = threading.Event()

    def interrupted(self: Any) -> Any:
        waiting.wait(60)
        raise KeyboardInterrupt

    def work() -> None:
        waiting.set()
        meet()
        if me():
            meet()

    monkeypatch.setattr(Meeting, "_next", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LocalReplicas(2).run(work)


def test_a_run_after_a_failed_one_is_as_any() -> None:
    strategy = LocalReplicas(2)
    with pytest.raises(ReplicaError):
        strategy.run(lambda: 1 / 0)
    assert strategy.run(me).values == (0, 1)


# ---------------------------------------------------------------------- where it may be called


@pytest.mark.parametrize(
    "call",
    [
        lambda strategy: strategy.run(me),
        lambda strategy: strategy.scope().__enter__(),
        lambda strategy: strategy.reduce("sum", PerReplica([1, 2])),
        lambda strategy: LocalReplicas(2).run(me),
    ],
)
def test_what_a_replica_may_not_do(call: Callable[[Any], Any]) -> None:
    strategy = LocalReplicas(2)
    with pytest.raises(ReplicaError, match="RuntimeError: .*replica 0 of LocalReplicas") as error:
        strategy.run(call, (strategy,))
    assert isinstance(error.value.__cause__, RuntimeError)


def test_a_run_in_a_scope_is_that_strategys() -> None:
    strategy = LocalReplicas(2)
    with strategy.scope():
        assert strategy.run(me).values == (0, 1)
        with pytest.raises(RuntimeError, match="is in force"):
            LocalReplicas(2).run(me)


def test_a_run_within_a_loss_is_refused() -> None:
    w = fo.Variable(1.0)
    with pytest.raises(RuntimeError, match="while a loss is being recorded"):
        fo.GradientDescentOptimizer(0.1).compute_gradients(
            lambda: LocalReplicas(2).run(lambda: w * 2.0)[0]
        )


# ---------------------------------------------------------------------- reducing


def test_reduce_of_arrays_numbers_and_none() -> None:
    strategy = LocalReplicas(3)
    arrays = PerReplica(np.array([k, 2.0 * k]) for k in (1, 2, 4))
    np.testing.assert_array_equal(strategy.reduce("sum", arrays), [7, 14])
    np.testing.assert_array_equal(strategy.reduce("mean", arrays), [7 / 3, 14 / 3])
    assert strategy.reduce("sum", PerReplica([1, 2, 3])) == 6.0
    assert strategy.reduce("sum", 2.0) == 6.0 and strategy.reduce("mean", 2.0) == 2.0
    assert strategy.reduce("sum", PerReplica([None] * 3)) is None
    # A replica without anything counts as a zero.
    np.testing.assert_array_equal(
        strategy.reduce("mean", PerReplica([None, np.array([3.0]), None])), [1.0]
    )
    assert [a.tolist() for a in arrays] == [[1, 2], [2, 4], [4, 8]]  # as they were


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_terms_are_added_in_the_order_of_replicas(dtype: Any) -> None:
    big = dtype(2.0) ** (24 if dtype is np.float32 else 53)
    strategy = LocalReplicas(3)
    arrays = PerReplica(np.full(5, value, dtype) for value in (1.0, big, -big))
    assert strategy.reduce("sum", arrays).tolist() == [0.0] * 5  # type: ignore[union-attr]
    arrays = PerReplica(np.full(5, value, dtype) for value in (big, -big, 1.0))
    assert strategy.reduce("sum", arrays).tolist() == [1.0] * 5  # type: ignore[union-attr]


def test_float16_is_added_in_float32() -> None:
    arrays = PerReplica(np.array([value], np.float16) for value in (60000, 60000, -60000))
    total = LocalReplicas(3).reduce("sum", arrays)
    assert isinstance(total, np.ndarray)
    assert total.dtype == np.float16 and total.tolist() == [np.float16(60000)]


def test_slices_are_concatenated() -> None:
    """horovod/horovod#341: rows of all replicas, each summed once; the mean is over replicas."""
    strategy = LocalReplicas(2)
    slices = PerReplica(
        [
            fo.IndexedSlices(np.ones((2, 3)), [0, 1], (4, 3)),
            fo.IndexedSlices(np.ones((2, 3)), [0, 2], (4, 3)),
        ]
    )
    total = strategy.reduce("sum", slices)
    assert isinstance(total, fo.IndexedSlices)
    assert total.indices.tolist() == [0, 1, 0, 2]
    mean = strategy.reduce("mean", slices)
    assert isinstance(mean, fo.IndexedSlices)
    np.testing.assert_array_equal(mean.to_dense(), np.outer([1.0, 0.5, 0.5, 0.0], np.ones(3)))


def test_dense_and_sparse_gradients_have_one_divisor() -> None:
    """horovod/horovod PR#2279: the average was not taken of sparse gradients."""
    strategy = LocalReplicas(2)

    def row(value: float) -> fo.IndexedSlices:
        return fo.IndexedSlices([[value]], [0], (2, 1))

    for op, expected in (("mean", 3.0), ("sum", 6.0)):
        dense, sparse = strategy.batch_reduce(
            op, [PerReplica([np.array([2.0]), np.array([4.0])]), PerReplica([row(2), row(4)])]
        )
        assert dense == expected
        assert isinstance(sparse, fo.IndexedSlices)
        assert sparse.to_dense().tolist() == [[expected], [0.0]]
    empty = fo.IndexedSlices(np.zeros((0, 1)), np.zeros(0, np.int64), (2, 1))
    sparse = strategy.reduce("mean", PerReplica([row(2), empty]))
    assert isinstance(sparse, fo.IndexedSlices) and sparse.to_dense().tolist() == [[1.0], [0.0]]


def test_of_dense_and_sparse_the_sum_is_dense() -> None:
    slices = fo.IndexedSlices([[1.0], [2.0]], [1, 1], (3, 1))
    dense = np.ones((3, 1))
    for values in ([slices, dense], [dense, slices]):
        total = LocalReplicas(2).reduce("sum", PerReplica(values))
        assert isinstance(total, np.ndarray) and total.ravel().tolist() == [1, 4, 1]
    assert dense.ravel().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.zeros(3), np.zeros(4)),
        (np.zeros((3, 1)), fo.IndexedSlices([[1.0, 2.0]], [0])),
        (np.zeros((3, 1)), fo.IndexedSlices([[1.0]], [0], (4, 1))),
        (fo.IndexedSlices([[1.0]], [0], (3, 1)), fo.IndexedSlices([[1.0]], [0], (4, 1))),
    ],
)
def test_values_of_different_shapes_are_refused(first: Any, second: Any) -> None:
    with pytest.raises(ValueError, match="one shape on all replicas: on replica 0"):
        LocalReplicas(2).reduce("sum", PerReplica([first, second]))


def test_what_cannot_be_added_is_refused() -> None:
    with pytest.raises(TypeError, match="the value of replica 1"):
        LocalReplicas(2).reduce("sum", PerReplica([1.0, "one"]))
