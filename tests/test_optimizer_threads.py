"""Many threads that apply at once: with locks every update counts, without them memory is safe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests.optimizer_db import Record, every_record, fresh_graph

__all__ = ["fresh_graph"]

THREADS, STEPS = 4, 60


def in_threads(work: Callable[[int], None], n: int = THREADS) -> None:
    """Run `work` in threads that begin together; raise what one of them raises."""
    errors: list[BaseException] = []
    start = threading.Barrier(n)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


@every_record()
def test_a_step_in_a_fresh_thread(record: Record) -> None:
    rng = np.random.default_rng(0)
    start, gradient = rng.normal(size=4), rng.normal(size=4)
    results = []
    for in_thread in (False, True):
        v = fo.Variable(start)
        optimizer = record.make()
        for _ in range(3):
            if in_thread:
                in_threads(lambda _, o=optimizer, v=v: o.apply_gradients([(gradient, v)]), 1)
            else:
                optimizer.apply_gradients([(gradient, v)])
        results.append(v.numpy().tobytes())
    assert results[0] == results[1]


@pytest.mark.parametrize("n", [3, 100_000], ids=["small", "large"])
def test_with_locks_every_update_counts(n: int) -> None:
    v, w = fo.Variable(np.zeros(n)), fo.Variable(np.zeros((n, 1)))
    step = fo.Variable(np.int64(0), trainable=False)
    optimizer = fo.GradientDescentOptimizer(1.0, use_locking=True)
    slices = fo.IndexedSlices(np.ones((2, 1)), [0, n - 1])

    def work(number: int) -> None:
        pairs = [(np.ones(n), v), (slices, w)]
        if number % 2:
            pairs.reverse()  # another order of variables must not end in a deadlock
        for _ in range(STEPS):
            optimizer.apply_gradients(pairs, global_step=step)

    in_threads(work)
    assert (v.numpy() == -THREADS * STEPS).all()
    assert w.numpy()[[0, -1], 0].tolist() == [-THREADS * STEPS] * 2
    assert step.numpy() == THREADS * STEPS


def test_with_locks_two_optimizers_may_share_variables() -> None:
    v = fo.Variable(np.zeros(50_000))
    optimizers = [fo.GradientDescentOptimizer(1.0, use_locking=True) for _ in range(2)]

    def work(number: int) -> None:
        for _ in range(STEPS):
            optimizers[number % 2].apply_gradients([(np.ones(50_000), v)])

    in_threads(work)
    assert (v.numpy() == -THREADS * STEPS).all()


def test_locks_are_those_of_the_variables() -> None:
    v = fo.Variable(np.zeros(2))
    locking = fo.GradientDescentOptimizer(1.0, use_locking=True)
    free = fo.GradientDescentOptimizer(1.0)
    locking.apply_gradients([(np.ones(2), v)])
    done = threading.Event()

    def step() -> None:
        locking.apply_gradients([(np.ones(2), v)])
        done.set()

    thread = threading.Thread(target=step)
    with v._lock:
        thread.start()
        assert not done.wait(0.05)  # waits for as long as the lock is held
        free_thread = threading.Thread(target=lambda: free.apply_gradients([(np.ones(2), v)]))
        free_thread.start()
        free_thread.join(30)
        assert not free_thread.is_alive()  # asks for no lock
        assert v.numpy().tolist() == [-2, -2]
    thread.join(30)
    assert done.is_set() and v.numpy().tolist() == [-3, -3]


@pytest.mark.parametrize("use_locking", [False, True])
def test_powers_and_counter_count_every_call(use_locking: bool) -> None:
    v = fo.Variable(np.zeros(3))
    step = fo.Variable(np.int64(0), trainable=False)
    optimizer = fo.AdamOptimizer(use_locking=use_locking)

    def work(_: int) -> None:
        for _ in range(STEPS):
            optimizer.apply_gradients([(np.ones(3), v)], global_step=step)

    in_threads(work)
    calls = THREADS * STEPS
    assert step.numpy() == calls
    power = optimizer._get_non_slot_variable("beta2_power").numpy()
    assert power == pytest.approx(0.999 ** (calls + 1), rel=1e-12)
    assert len(optimizer.variables()) == 4  # made once, although all began together


@every_record()
def test_with_locks_threads_take_turns(record: Record) -> None:
    """Any order of equal updates gives the numbers of one thread."""
    gradient = np.linspace(-1, 1, 6).reshape(3, 2)
    slices = fo.IndexedSlices(gradient, [2, 0, 2])
    dense, table = fo.Variable(np.ones((3, 2))), fo.Variable(np.ones((3, 2)))
    optimizer = record.make(use_locking=True)

    def work(_: int) -> None:
        for _ in range(STEPS):
            optimizer.apply_gradients([(gradient, dense), (slices, table)])

    in_threads(work)
    a, b = fo.Variable(np.ones((3, 2))), fo.Variable(np.ones((3, 2)))
    alone = record.make()
    for _ in range(THREADS * STEPS):
        alone.apply_gradients([(gradient, a), (slices, b)])
    assert dense.numpy().tobytes() == a.numpy().tobytes()
    assert table.numpy().tobytes() == b.numpy().tobytes()


@every_record()
def test_without_locks_memory_is_safe(record: Record) -> None:
    """Hogwild: values race, but stay numbers, and nothing else is touched."""
    guard = np.zeros((300, 4), np.float32)
    table = fo.Variable(guard[100:200], copy=False)
    v = fo.Variable(np.zeros(1000))
    optimizer = record.make()

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for k in range(STEPS):
            ids = rng.integers(0, 100, 50)
            slices = fo.IndexedSlices(rng.normal(size=(50, 4)).astype(np.float32), ids)
            pairs = [(rng.normal(size=1000), v), (slices, table)]
            optimizer.apply_gradients(pairs[k % 2 :])

    in_threads(work)
    assert np.isfinite(v.numpy()).all() and np.isfinite(guard).all()
    assert not guard[:100].any() and not guard[200:].any()
    # Each made once, however many threads asked for it.
    others = optimizer._non_slot_variables()
    assert len(optimizer.variables()) == len(record.slots) * 2 + len(others)
    assert all("_power_" not in var.name for var in others)


def test_threads_that_minimize_have_recordings_of_their_own() -> None:
    variables = [fo.Variable(np.ones(3), name=f"v{k}") for k in range(THREADS)]
    optimizer = fo.GradientDescentOptimizer(0.125)

    def work(number: int) -> None:
        v = variables[number]
        for gate in (0, 1, 2) * 10:
            done = optimizer.minimize(lambda: np.sum(v * v), gate_gradients=gate)
            assert len(done.variables) == 1 and done.variables[0] is v

    in_threads(work)
    assert all((v.numpy() == 0.75**30).all() for v in variables)


def test_a_rule_in_python_with_locks() -> None:
    class Slow(fo.Optimizer):
        def _apply_dense(self, grad: Any, var: Any) -> None:
            value = var.numpy()
            pause.wait(0.001)  # let the others run between reading and writing
            var.assign(value - grad)

    pause = threading.Event()
    v = fo.Variable(np.zeros(2))
    optimizer = Slow(True, "slow")

    def work(_: int) -> None:
        for _ in range(5):
            optimizer.apply_gradients([(np.ones(2), v)])

    in_threads(work)
    assert v.numpy().tolist() == [-5.0 * THREADS] * 2
