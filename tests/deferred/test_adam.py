"""Adam on sparse gradients: the numbers of the dense recurrence, at the cost of the listed rows."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests.deferred.oracles import Recurrence, far, walk

Array = np.ndarray[Any, Any]

HYPERPARAMETERS = [
    pytest.param(0.9, 0.999, 1e-8, id="default"),
    pytest.param(0.9, 0.999, 1e-2, id="large_epsilon"),
    pytest.param(0.9, 0.99, 1e-8, id="several_windows"),
    pytest.param(0.9, 0.9, 1e-8, id="many_windows"),
    pytest.param(0.99, 0.999, 1e-8, id="slow"),
    pytest.param(0.5, 0.9, 1e-8, id="fast"),
    pytest.param(0.0, 0.999, 1e-8, id="no_momentum"),
    pytest.param(0.9, 0.5, 1e-3, id="step_by_step"),
    pytest.param(0.9, 0.999, 0.0, id="no_epsilon"),
]


def rate(t: int) -> float:
    """Return a learning rate that changes with the step, and is now and then zero."""
    return 0.0 if t % 500 == 250 else 1e-3 * (1.0 + 0.5 * math.sin(t / 50))


def trained(
    dtype: Any,
    steps: int,
    betas: tuple[float, float, float],
    *,
    n_rows: int = 100,
    width: int = 8,
    look: Any = None,
    **kwargs: Any,
) -> tuple[fo.Variable, fo.AdamOptimizer, Recurrence, Recurrence]:
    """Train a table by sparse gradients, and by the recurrence in float64 and in its own dtype."""
    start = np.random.default_rng(1).normal(size=(n_rows, width)).astype(dtype)
    table = fo.Variable(start, name="table")
    step = fo.Variable(np.int64(0), trainable=False, name="step")
    optimizer = fo.AdamOptimizer(lambda: rate(int(step.value) + 1), *betas, **kwargs)
    exact = Recurrence("adam", start, *betas)
    dense = Recurrence("adam", start, *betas, dtype=dtype)
    draw = walk(n_rows, width)
    for t in range(1, steps + 1):
        (values, ids), gradient = draw()
        slices = fo.IndexedSlices(values.astype(dtype), ids, start.shape)
        optimizer.apply_gradients([(slices, table)], global_step=step)
        exact.step(rate(t), gradient, ids)
        dense.step(rate(t), gradient, ids)
        if look is not None:
            look(t, table, optimizer, exact)
    return table, optimizer, exact, dense


def slot(optimizer: fo.AdamOptimizer, table: fo.Variable, name: str) -> fo.Variable:
    found = optimizer.get_slot(table, name)
    assert found is not None
    return found


@pytest.mark.parametrize(("beta1", "beta2", "epsilon"), HYPERPARAMETERS)
def test_float32_is_as_near_as_the_dense_recurrence(
    beta1: float, beta2: float, epsilon: float
) -> None:
    table, optimizer, exact, dense = trained(np.float32, 3000, (beta1, beta2, epsilon))
    # Each of some hundred touches of a row rounds; a pass over all rows rounds 3,000 times.
    allowed = max(far(dense.w, exact.w), 8 * np.finfo(np.float32).eps)
    assert far(table.numpy(), exact.w) <= allowed
    # Averages go through some 1000 roundings of half an eps in their memory.
    for name, wanted in (("m", exact.m), ("v", exact.v)):
        found = slot(optimizer, table, name).numpy()
        assert far(found, wanted) <= 64 * np.finfo(np.float32).eps


@pytest.mark.parametrize(("beta1", "beta2", "epsilon"), HYPERPARAMETERS)
def test_float64_is_exact(beta1: float, beta2: float, epsilon: float) -> None:
    table, optimizer, exact, _ = trained(np.float64, 1500, (beta1, beta2, epsilon))
    assert far(table.numpy(), exact.w) <= 1e-12
    assert far(slot(optimizer, table, "m").numpy(), exact.m) <= 1e-12
    assert far(slot(optimizer, table, "v").numpy(), exact.v) <= 1e-12


@pytest.mark.parametrize("width", [1, 3, 7, 8, 65, 2050])
def test_rows_of_any_width(width: int) -> None:
    table, _, exact, _ = trained(np.float64, 60, (0.9, 0.99, 1e-8), n_rows=20, width=width)
    assert far(table.numpy(), exact.w) <= 1e-13


def test_rows_of_more_than_one_axis() -> None:
    start = np.random.default_rng(0).normal(size=(6, 2, 3))
    table = fo.Variable(start, name="table")
    exact = Recurrence("adam", start.reshape(6, 6))
    optimizer = fo.AdamOptimizer(0.1)
    for row in (0, 3, 3, 5, 0):
        gradient = np.zeros((6, 6))
        gradient[row] = row + 1.0
        slices = fo.IndexedSlices(gradient[[row]].reshape(1, 2, 3), [row])
        optimizer.apply_gradients([(slices, table)])
        exact.step(0.1, gradient, np.array([row]))
    np.testing.assert_allclose(table.numpy().reshape(6, 6), exact.w, 1e-14)


READS: dict[str, Any] = {
    "_read_rows": lambda v: fo.embedding_lookup(v, np.arange(100)),
    "pooled": lambda v: fo.embedding_lookup_sparse(
        v, fo.RaggedIds(np.arange(100), np.arange(101)), None, combiner="sum"
    ),
    "pooled_clipped": lambda v: fo.embedding_lookup_sparse(
        v, fo.RaggedIds(np.arange(100), np.arange(101)), None, combiner="sum", max_norm=1e9
    ),
    "indexing": lambda v: v[np.arange(100)],
    "slicing": lambda v: v[0:100],
    "value": lambda v: v.value,
    "numpy": lambda v: v.numpy(),
    "asarray": np.asarray,
    "read_value": lambda v: v.read_value(),
    "operator": lambda v: v + 0.0,
    "function": lambda v: np.add(v, 0.0),
    "matmul": lambda v: v @ np.eye(8),
    "iteration": lambda v: np.stack([np.asarray(row) for row in v]),
    "assign_add": lambda v: v.assign_add(np.zeros(v.shape)).numpy(),
    "deepcopy": lambda v: copy.deepcopy(v).numpy(),
    "copy": lambda v: copy.copy(v).numpy(),
    "pickle": lambda v: pickle.loads(pickle.dumps(v)).numpy(),
    "tolist": lambda v: v.tolist(),
    "assigned": lambda v: fo.Variable(np.zeros(v.shape)).assign(v).numpy(),
    "initial_value": lambda v: fo.Variable(v).numpy(),
    "save": lambda v: np.frombuffer(v.value.tobytes()).reshape(v.shape),
}


@pytest.mark.parametrize("route", READS)
def test_every_way_of_reading_sees_all_steps(route: str) -> None:
    table, _, exact, _ = trained(np.float64, 120, (0.9, 0.999, 1e-8))
    assert table._ledger is not None and table._ledger.pending
    assert far(np.asarray(READS[route](table)), exact.w) <= 1e-14


@pytest.mark.parametrize("route", ["_read_rows", "pooled", "value", "pickle", "slicing"])
@pytest.mark.parametrize("name", ["m", "v"])
def test_slots_are_seen_after_all_steps(name: str, route: str) -> None:
    table, optimizer, exact, _ = trained(np.float64, 120, (0.9, 0.999, 1e-8))
    assert far(np.asarray(READS[route](slot(optimizer, table, name))), getattr(exact, name)) < 1e-13
    assert far(table.numpy(), exact.w) <= 1e-14


@pytest.mark.parametrize("threads", [1, 3])
def test_look_ups_bring_many_waiting_rows_up_to_date(threads: int) -> None:
    """So the step that follows finds them so; repeated ids are made up for once."""
    table, _, exact, _ = trained(np.float64, 200, (0.9, 0.99, 1e-8), n_rows=4000)
    ledger = table._ledger
    assert ledger is not None
    before = ledger.last()
    ids = np.tile(np.arange(0, 4000, 2), 5)
    with fo.num_threads(threads):
        rows = table._read_rows(ids)
    assert far(rows, exact.w[ids]) <= 1e-13
    after = ledger.last()
    assert (after[::2] == ledger.clock).all() and (after[1::2] == before[1::2]).all()
    assert ledger.rows_made_up == np.sum(before[::2] < ledger.clock)
    assert table._storage[ids].tobytes() == rows.tobytes()


def test_look_ups_of_few_waiting_rows_change_nothing() -> None:
    table, _, exact, _ = trained(np.float64, 200, (0.9, 0.99, 1e-8), n_rows=4000)
    ledger = table._ledger
    assert ledger is not None
    table._read_at(np.arange(100))
    before, memory = ledger.last(), table._storage.tobytes()
    rows = table._read_rows(np.arange(110))
    assert far(rows, exact.w[:110]) <= 1e-13
    assert (ledger.last() == before).all() and table._storage.tobytes() == memory


@pytest.mark.parametrize("width", [8, 1300])
def test_waiting_rows_are_copied_as_if_made_up_for(width: int) -> None:
    """Whatever they have missed: less than a window, one more, several; a buffer or more of it."""
    table = fo.Variable(np.random.default_rng(3).normal(size=(24, width)), name="table")
    optimizer = fo.AdamOptimizer(0.01, 0.9, 0.9)  # windows of four steps
    rng = np.random.default_rng(4)
    for row in range(24):
        g = fo.IndexedSlices(rng.normal(size=(2, width)), [row, 23])
        optimizer.apply_gradients([(g, table)])
    ledger = table._ledger
    assert ledger is not None
    before = ledger.last()
    up_to_date = np.full(20, 23)  # of which few wait, so that they are copied
    copied = [table._read_rows(np.append(up_to_date, row))[-1] for row in range(24)]
    assert (ledger.last() == before).all()
    for row, expected in enumerate(table.numpy()):
        assert far(copied[row], expected) <= 1e-14, row


def test_looked_up_rows_are_those_that_a_full_read_finds() -> None:
    for betas in ((0.9, 0.999, 1e-8), (0.9, 0.95, 1e-8)):  # one window, and several
        table, *_ = trained(np.float32, 300, betas)
        ids = np.array([99, 0, 42, 42, 7], np.int32)
        rows = table._read_rows(ids)
        assert rows.tobytes() == table.numpy()[ids].tobytes()


@pytest.mark.parametrize("how", ["rows", "pooled", "all", "slot", "mixed"])
def test_when_a_row_is_read_makes_no_difference(how: str) -> None:
    """Beyond rounding: pytorch/FBGEMM PR#5908, where a multiplier of the wrong step was used."""
    rng = np.random.default_rng(5)

    def look(t: int, table: fo.Variable, optimizer: Any, exact: Recurrence) -> None:
        if t % 3:
            return
        ids = rng.integers(0, 100, 4)
        if how in ("rows", "mixed"):
            np.testing.assert_allclose(table._read_rows(ids), exact.w[ids], 1e-12)
        if how in ("pooled", "mixed"):
            bag = fo.embedding_lookup_sparse(table, [list(ids)], None, combiner="sum")
            np.testing.assert_allclose(bag[0], exact.w[ids].sum(axis=0), 1e-11)
        if how in ("all", "mixed") and t % 9 == 0:
            np.testing.assert_allclose(table.value, exact.w, 1e-12)
        if how in ("slot", "mixed") and t % 15 == 0:
            np.testing.assert_allclose(slot(optimizer, table, "v")._read_rows(ids), exact.v[ids])

    table, *_, exact, _ = trained(np.float64, 400, (0.9, 0.999, 1e-8), look=look)
    assert far(table.numpy(), exact.w) <= 1e-13


def test_values_of_known_failure_25() -> None:
    """pytorch/pytorch#18404, tensorflow/tensorflow#6460, apache/mxnet#9177."""
    expected = {
        fo.AdamOptimizer: [0.9900000, 0.9832994, 0.9781199, 0.9738771],
        fo.LazyAdamOptimizer: [0.9900000] * 4,
    }
    for cls, values in expected.items():
        table = fo.Variable(np.ones((2, 1)))
        optimizer = cls(0.01)
        for gradient, value in zip(([2.0], None, None, None), values, strict=True):
            rows = [1] if gradient is None else [0]
            slices = fo.IndexedSlices(np.zeros((1, 1)) if gradient is None else [gradient], rows)
            optimizer.apply_gradients([(slices, table)])
            assert table.numpy()[0, 0] == pytest.approx(value, abs=5e-8)


def test_values_of_known_failure_26() -> None:
    """tensorflow/tensorflow#23668, #27456."""
    expected = {
        fo.AdamOptimizer: [-0.1, -0.1670058, -0.2488061],
        fo.LazyAdamOptimizer: [-0.1, -0.1, -0.1858462],
    }
    for cls, values in expected.items():
        table = fo.Variable(np.zeros((2, 1)))
        optimizer = cls(0.1)
        for gradient, value in zip((1.0, None, 1.0), values, strict=True):
            slices = fo.IndexedSlices(np.full((1, 1), gradient or 0.0), [0 if gradient else 1])
            optimizer.apply_gradients([(slices, table)])
            assert table.numpy()[0, 0] == pytest.approx(value, abs=5e-8)


@pytest.mark.parametrize("read", [True, False])
def test_values_of_known_failure_27(read: bool) -> None:
    """pytorch/FBGEMM PR#5908: a lazy multiplier used the step written in this very update."""
    table = fo.Variable(np.ones((2, 1)))
    optimizer = fo.AdamOptimizer(0.01)
    for t, gradient in enumerate((2.0, None, None, None, 1.0, None, 3.0), 1):
        slices = fo.IndexedSlices(np.full((1, 1), gradient or 0.0), [0 if gradient else 1])
        optimizer.apply_gradients([(slices, table)])
        if read and t in (4, 5):
            expected = {4: 0.9738771, 5: 0.9682274}[t]
            assert table._read_rows(np.array([0]))[0, 0] == pytest.approx(expected, abs=5e-8)
            assert table.numpy()[0, 0] == pytest.approx(expected, abs=5e-8)
    assert table.numpy()[0, 0] == pytest.approx(0.9567573, abs=5e-8)
    assert slot(optimizer, table, "m").numpy()[0, 0] == pytest.approx(0.4872882, abs=5e-8)
    assert slot(optimizer, table, "v").numpy()[0, 0] == pytest.approx(0.01397406, abs=5e-9)


def test_an_empty_gradient_is_a_step() -> None:
    """pytorch/pytorch#82486, PR#86459: moments decay, the weight moves."""
    table = fo.Variable(np.array([[1.0], [5.0]]))
    optimizer = fo.AdamOptimizer(0.001)
    optimizer.apply_gradients([(fo.IndexedSlices([[1.0]], [0]), table)])
    empty = fo.IndexedSlices(np.zeros((0, 1)), np.zeros(0, np.int64))
    optimizer.apply_gradients([(empty, table)])
    assert table.numpy()[0, 0] == pytest.approx(0.99832994, abs=5e-9)
    assert slot(optimizer, table, "m").numpy()[0, 0] == pytest.approx(0.09, rel=1e-12)
    assert slot(optimizer, table, "v").numpy()[0, 0] == pytest.approx(0.000999, rel=1e-12)


def test_a_step_touches_the_listed_rows_only() -> None:
    table, optimizer, _, _ = trained(np.float32, 50, (0.9, 0.999, 1e-8))
    ledger = table._ledger
    assert ledger is not None
    before, memory = ledger.last(), table._storage.copy()
    state = [slot(optimizer, table, name)._storage.copy() for name in ("m", "v")]
    optimizer.apply_gradients([(fo.IndexedSlices(np.ones((2, 8), np.float32), [98, 98]), table)])
    after = ledger.last()
    assert after[98] == ledger.clock == 51
    others = np.arange(100) != 98
    assert (before[others] == after[others]).all()
    assert (memory[others] == table._storage[others]).all()
    for old, name in zip(state, ("m", "v"), strict=True):
        assert (old[others] == slot(optimizer, table, name)._storage[others]).all()
    assert ledger.rows_made_up == 0
    table._read_at(np.array([3, 3, 5]))
    assert ledger.rows_made_up == 2


def test_dense_after_sparse_after_dense() -> None:
    start = np.random.default_rng(0).normal(size=(10, 4))
    table = fo.Variable(start)
    optimizer = fo.AdamOptimizer(0.01)
    exact = Recurrence("adam", start)
    rng = np.random.default_rng(1)
    for t in range(60):
        gradient = np.zeros((10, 4))
        if t % 20 < 5:
            gradient[...] = rng.normal(size=(10, 4))
            optimizer.apply_gradients([(gradient, table)])
        else:
            row = int(rng.integers(10))
            gradient[row] = rng.normal(size=4)
            slices = fo.IndexedSlices(gradient[[row]], [row])
            optimizer.apply_gradients([(slices, table)])
        exact.step(0.01, gradient, np.arange(10))
    assert far(table.numpy(), exact.w) <= 1e-14
    assert far(slot(optimizer, table, "v").numpy(), exact.v) <= 1e-14


def test_other_hyperparameters_from_some_step_on() -> None:
    """A beta or epsilon that changes brings all rows up to date by the old one first."""
    start = np.random.default_rng(0).normal(size=(10, 4))
    table, step = fo.Variable(start), fo.Variable(np.int64(0), trainable=False)
    now = {"beta2": 0.999, "epsilon": 1e-8}
    optimizer = fo.AdamOptimizer(
        0.01, 0.9, lambda: now["beta2"], lambda: now["epsilon"], sparse_updates="deferred"
    )
    dense = fo.AdamOptimizer(
        0.01, 0.9, lambda: now["beta2"], lambda: now["epsilon"], sparse_updates="dense"
    )
    other = fo.Variable(start)
    rng = np.random.default_rng(1)
    for t in range(90):
        now["beta2"] = 0.999 if t < 30 else 0.99
        now["epsilon"] = 1e-8 if t < 50 else 1e-3 * t
        slices = fo.IndexedSlices(rng.normal(size=(1, 4)), rng.integers(0, 10, 1))
        optimizer.apply_gradients([(slices, table)], global_step=step)
        dense.apply_gradients([(slices, other)])
    assert far(table.numpy(), other.numpy()) <= 1e-14


def test_more_moments_from_some_step_on() -> None:
    """The sums of many steps have room too where a step needs more of them than before."""
    betas = {"beta2": 0.9999}  # six moments in float64, then ten
    table, other = (fo.Variable(np.ones((2, 3))) for _ in range(2))
    deferred, dense = (
        fo.AdamOptimizer(0.01, 0.9, lambda: betas["beta2"], sparse_updates=how)
        for how in ("deferred", "dense")
    )
    for t in range(300):
        betas["beta2"] = 0.9999 if t < 3 else 0.999
        g = fo.IndexedSlices(np.ones((1, 3)), [int(t % 100 == 0)])
        deferred.apply_gradients([(g, table)])
        dense.apply_gradients([(g, other)])
    assert far(table.numpy(), other.numpy()) <= 1e-13


def test_slots_after_about_1024_steps() -> None:
    """Powers of the factors by which slots shrink are looked up digit by digit, 1024 of each."""
    table, optimizer = fo.Variable(np.ones((4, 1))), fo.AdamOptimizer(0.01, beta1=0.0)
    for t in range(1026):
        g = fo.IndexedSlices(np.ones((1, 1)), [min(t, 3)])
        optimizer.apply_gradients([(g, table)])
    missed = np.array([1025, 1024, 1023])
    found = slot(optimizer, table, "v").numpy()[:3, 0]
    np.testing.assert_allclose(found, 0.001 * 0.999**missed, rtol=1e-12)


def test_steps_without_a_gradient_for_the_variable_do_not_count() -> None:
    """None leaves a variable alone: nothing decays, only the powers advance."""
    results = []
    for updates in ("deferred", "dense"):
        table, w = fo.Variable(np.ones((5, 2))), fo.Variable(np.ones(3))
        optimizer = fo.AdamOptimizer(0.01, sparse_updates=updates)
        for t in range(40):
            slices = fo.IndexedSlices(np.full((1, 2), t + 1.0), [t % 3])
            gradient = None if t % 4 == 1 else slices
            optimizer.apply_gradients([(gradient, table), (np.ones(3), w)])
        results.append(table.numpy())
    assert far(*results) <= 1e-14


def test_another_optimizer_on_the_same_variable() -> None:
    tables = [fo.Variable(np.ones((6, 2))) for _ in range(2)]
    rng = np.random.default_rng(0)
    gradients = [
        fo.IndexedSlices(rng.normal(size=(1, 2)), [int(rng.integers(6))]) for _ in range(90)
    ]
    for table, updates in zip(tables, ("deferred", "dense"), strict=True):
        first = fo.AdamOptimizer(0.01, sparse_updates=updates)
        second = fo.AdamOptimizer(0.1, 0.5, 0.9, sparse_updates=updates, name="Second")
        third = fo.FtrlOptimizer(0.1)
        for t, slices in enumerate(gradients):
            optimizer = (first, first, second, first, third, second)[t % 6]
            optimizer.apply_gradients([(slices, table)])
    # Ftrl, as a function of its own slots, forgets what came before on listed rows: not on others.
    assert far(tables[0].numpy(), tables[1].numpy()) <= 1e-14


def test_a_rule_written_in_python_on_the_same_variable() -> None:
    class Halve(fo.Optimizer):
        def _apply_sparse(self, grad: Any, var: fo.Variable) -> None:
            var.assign(0.5 * np.asarray(var))

    tables = [fo.Variable(np.ones((6, 2))) for _ in range(2)]
    for table, updates in zip(tables, ("deferred", "dense"), strict=True):
        adam, halve = fo.AdamOptimizer(0.01, sparse_updates=updates), Halve(False, "Halve")
        for t in range(30):
            slices = fo.IndexedSlices(np.ones((1, 2)), [t % 4])
            (halve if t % 7 == 3 else adam).apply_gradients([(slices, table)])
    assert far(tables[0].numpy(), tables[1].numpy()) <= 1e-14


def test_assignments_in_between() -> None:
    tables = [fo.Variable(np.ones((6, 2))) for _ in range(2)]
    for table, updates in zip(tables, ("deferred", "dense"), strict=True):
        optimizer = fo.AdamOptimizer(0.01, sparse_updates=updates)
        for t in range(40):
            slices = fo.IndexedSlices(np.full((1, 2), 1.0 + t), [t % 4])
            optimizer.apply_gradients([(slices, table)])
            if t == 11:
                table.assign(np.full((6, 2), 3.0))
            if t == 17:
                table.assign_sub(np.full((6, 2), 0.5))
            if t == 19:
                table.scatter_add(fo.IndexedSlices(np.ones((2, 2)), [1, 5]))
            if t == 21:
                table.scatter_update(fo.IndexedSlices(np.ones((1, 2)), [2]))
            if t == 23:
                slot(optimizer, table, "m").assign(np.full((6, 2), 0.1))
            if t == 31:
                slot(optimizer, table, "v").assign_add(np.full((6, 2), 0.1))
    assert far(tables[0].numpy(), tables[1].numpy()) <= 1e-14


def test_a_variable_listed_twice_is_updated_twice() -> None:
    tables = [fo.Variable(np.ones((6, 2))) for _ in range(2)]
    for table, updates in zip(tables, ("deferred", "dense"), strict=True):
        optimizer = fo.AdamOptimizer(0.01, sparse_updates=updates)
        for t in range(20):
            one = fo.IndexedSlices(np.full((1, 2), 1.0 + t), [t % 4])
            two = fo.IndexedSlices(np.full((1, 2), -1.0), [3])
            optimizer.apply_gradients([(one, table), (two, table)])
    assert far(tables[0].numpy(), tables[1].numpy()) <= 1e-14


def constant(steps: int) -> tuple[fo.Variable, fo.AdamOptimizer]:
    """Train with a constant learning rate: an optimizer that can be pickled."""
    table = fo.Variable(np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32))
    optimizer = fo.AdamOptimizer(0.01)
    draw = walk(50, 8)
    for _ in range(steps):
        (values, ids), _ = draw()
        optimizer.apply_gradients([(fo.IndexedSlices(values, ids), table)])
    return table, optimizer


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_in_the_middle_of_training_go_on_alike(copied: Any) -> None:
    table, optimizer = constant(60)
    other, twin = copied((optimizer, table))
    for t in range(30):
        slices = fo.IndexedSlices(np.ones((1, 8), np.float32), [t % 9])
        optimizer.apply_gradients([(slices, table)])
        other.apply_gradients([(slices, twin)])
    assert table.numpy().tobytes() == twin.numpy().tobytes()
    for name in ("m", "v"):
        mine, theirs = slot(optimizer, table, name), slot(other, twin, name)
        assert mine.numpy().tobytes() == theirs.numpy().tobytes()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copied_optimizer_has_slots_after_all_steps(copied: Any) -> None:
    table, optimizer = constant(60)
    other, twin = copied((optimizer, table))
    for name in ("m", "v"):
        theirs = slot(other, twin, name)._storage.tobytes()
        assert theirs == slot(optimizer, table, name).numpy().tobytes()


def test_shared_memory_is_always_up_to_date() -> None:
    """Whoever owns the memory looks at it without asking."""
    memory = np.ones((6, 2))
    table = fo.Variable(memory, copy=False)
    exact = Recurrence("adam", memory)
    optimizer = fo.AdamOptimizer(0.01)
    for t in range(20):
        gradient = np.zeros((6, 2))
        gradient[t % 3] = 1.0
        optimizer.apply_gradients([(fo.IndexedSlices(gradient[[t % 3]], [t % 3]), table)])
        exact.step(0.01, gradient, np.array([t % 3]))
        np.testing.assert_allclose(memory, exact.w, 1e-14)


def test_tables_of_one_row_and_of_none() -> None:
    one, none = fo.Variable(np.ones((1, 3))), fo.Variable(np.ones((0, 3)))
    optimizer = fo.AdamOptimizer(0.5)
    for _ in range(2):
        empty = fo.IndexedSlices(np.ones((0, 3)), np.zeros(0, np.int64))
        optimizer.apply_gradients([(fo.IndexedSlices(np.ones((1, 3)), [0]), one), (empty, none)])
    exact = Recurrence("adam", np.ones((1, 3)))
    for _ in range(2):
        exact.step(0.5, np.ones((1, 3)), np.array([0]))
    np.testing.assert_allclose(one._storage, exact.w, 1e-14)
    assert none.numpy().shape == (0, 3)


def test_errors_leave_everything_as_it_is() -> None:
    table, optimizer, exact, _ = trained(np.float64, 30, (0.9, 0.999, 1e-8))
    ledger = table._ledger
    assert ledger is not None
    before, clock = ledger.last(), ledger.clock
    memory = table._storage.tobytes()
    with pytest.raises(IndexError):
        optimizer.apply_gradients([(fo.IndexedSlices(np.ones((1, 8)), [100]), table)])
    assert (ledger.last() == before).all() and ledger.clock == clock
    assert table._storage.tobytes() == memory
    with pytest.raises(IndexError):
        fo.embedding_lookup(table, np.array([0, 100]))
    assert far(table.numpy(), exact.w) <= 1e-13


def test_two_threads_that_read_do_not_make_up_twice() -> None:
    table, optimizer, exact, _ = trained(np.float64, 200, (0.9, 0.999, 1e-8), n_rows=3000)
    barrier = threading.Barrier(4)
    errors: list[BaseException] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            barrier.wait()
            for k in range(40):
                ids = rng.integers(0, 3000, 700)
                found = table._read_at(ids)[ids] if k % 2 else table._read_rows(ids)
                np.testing.assert_allclose(found, exact.w[ids], 1e-10, 1e-13)
            assert far(np.asarray(table), exact.w) <= 1e-13
            assert far(slot(optimizer, table, "m").numpy(), exact.m) <= 1e-13
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_reading_while_another_thread_trains() -> None:
    """The averages end as those of a training that nobody looked at."""

    def train(table: fo.Variable, optimizer: fo.AdamOptimizer) -> None:
        draw = walk(500, 8, seed=3, listed=20)
        for _ in range(300):
            (values, ids), _ = draw()
            slices = fo.IndexedSlices(values.astype(np.float64), ids, (500, 8))
            optimizer.apply_gradients([(slices, table)])

    start = np.random.default_rng(0).normal(size=(500, 8))
    looked_at, alone = fo.Variable(start), fo.Variable(start)
    optimizers = fo.AdamOptimizer(0.01), fo.AdamOptimizer(0.01)
    stop = threading.Event()

    def look() -> None:
        rng = np.random.default_rng(0)
        while not stop.is_set():
            looked_at._read_rows(rng.integers(0, 500, 50))
            looked_at._read_at(rng.integers(0, 500, 50))
            looked_at._read()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        train(looked_at, optimizers[0])
    finally:
        stop.set()
        thread.join()
    train(alone, optimizers[1])
    assert far(looked_at.numpy(), alone.numpy()) <= 1e-12
    for name in ("m", "v"):
        seen, unseen = slot(optimizers[0], looked_at, name), slot(optimizers[1], alone, name)
        assert far(seen.numpy(), unseen.numpy()) <= 1e-12


def test_a_step_after_the_optimizer_is_gone() -> None:
    table, optimizer, exact, _ = trained(np.float64, 60, (0.9, 0.999, 1e-8))
    del optimizer
    assert far(table.numpy(), exact.w) <= 1e-14


def test_the_dense_way_can_be_asked_for() -> None:
    table, *_, exact, dense = trained(np.float32, 50, (0.9, 0.999, 1e-8), sparse_updates="dense")
    assert table._ledger is None
    assert far(table._storage, exact.w) <= 64 * np.finfo(np.float32).eps
    with pytest.raises(ValueError, match="sparse_updates must be one of 'deferred', 'dense'"):
        fo.AdamOptimizer(sparse_updates="lazy")


@pytest.mark.parametrize("look", ["rows", "all"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.2, 0.9), (0.9, 0.5)])
def test_an_infinite_weight_stays(betas: tuple[float, float], dtype: Any, look: str) -> None:
    """A mask of minus infinity in a table: TensorFlow's numbers are infinite too."""
    start = np.array([[1.0, 2.0], [-np.inf, np.inf], [3.0, -0.0]], dtype)
    table = fo.Variable(start, name="table")
    optimizer = fo.AdamOptimizer(0.1, *betas)
    for row in (0, 0, 1, 0):
        slices = fo.IndexedSlices(np.ones((1, 2), dtype), [row], start.shape)
        optimizer.apply_gradients([(slices, table)])
        found = table._read_rows(np.arange(3)) if look == "rows" else table.numpy()
        np.testing.assert_array_equal(found[1:], start[1:])
        assert np.signbit(found[2, 1])
        assert np.isfinite(found[0]).all()
