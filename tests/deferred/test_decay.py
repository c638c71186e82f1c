"""Weight decay before every rule: once a step and row, of other rows when they are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels._deferred import Ledger
from fastopt._kernels._half import narrow
from fastopt._kernels._plan import Plan
from fastopt._kernels.rules import RULES
from tests import reference
from tests.deferred.oracles import far
from tests.kernels.support import (
    CASE_IDS,
    CASES,
    SPARSE_CASES,
    SPARSE_IDS,
    Key,
    Slices,
    kernel_of,
    scalars_of,
    state,
    takes,
)
from tests.optimizer_db import RECORDS, Record

N_ROWS = 12
EVERY_RULE = pytest.mark.parametrize(("rule", "hyper"), CASES, ids=CASE_IDS)
EVERY_SPARSE_RULE = pytest.mark.parametrize(("rule", "hyper"), SPARSE_CASES, ids=SPARSE_IDS)
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


class Table:
    """The arrays of one table, with a plan and a ledger, unless its rows decay only if listed."""

    def __init__(
        self,
        rule: str,
        hyper: dict[str, Any],
        shape: tuple[int, ...],
        dtype: Any,
        untouched: Any = "skip",
        half: Any = None,
        only_listed: bool = False,
    ) -> None:
        self.rule, self.hyper = kernel_of(rule, hyper), hyper
        self.scalars = scalars_of(rule, hyper)
        self.w, self.slots = state(self.rule, shape, dtype, np.random.default_rng(1))
        self.half = None if half is None else narrow(self.w, half)
        if self.half is not None:
            self.w[...] = self.half
        arrays = tuple(self.slots.values())
        self.ledger: Ledger | None = None
        if shape and untouched == "skip" and not only_listed:
            self.ledger = Ledger(self.rule, self.w, arrays, self.half)
        self.key = Key()
        self.plan = Plan(
            self.rule,
            [self.key],
            [self.w],
            [arrays],
            Slices,
            untouched,
            ledgers=[self.ledger],
            halves=[self.half],
            decay_listed=only_listed,
        )

    def step(self, gradient: Any, rate: float) -> None:
        assert self.plan.bind([(gradient, self.key)])
        self.plan.run(self.scalars, rate)
        self.plan.release()

    def decay(self, rate: float, rows: Any = ...) -> None:
        """Let rows decay as it is written, in the dtype of the weights."""
        self.w[rows] -= self.w[rows] * self.w.dtype.type(rate)
        if self.half is not None:
            self.half[rows] = narrow(np.ascontiguousarray(self.w[rows]), self.half.dtype)

    def settled(self) -> list[bytes]:
        if self.ledger is not None:
            self.ledger.settle()
        arrays = [self.w, *self.slots.values()] + ([] if self.half is None else [self.half])
        return [array.tobytes() for array in arrays]


@EVERY_RULE
@DTYPES
@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3, 4), (999, 65), (2, 5000)])
def test_a_dense_step_is_decay_and_then_the_rule(
    rule: str, hyper: dict[str, Any], dtype: Any, shape: tuple[int, ...]
) -> None:
    gradient = np.asarray(np.random.default_rng(2).normal(size=shape)).astype(dtype)
    for half in (None, np.float16) if dtype == np.float32 and shape else (None,):
        decayed, twice = (Table(rule, hyper, shape, dtype, half=half) for _ in range(2))
        decayed.step(gradient, 0.3)
        twice.decay(0.3)
        twice.step(gradient, 0.0)
        assert decayed.settled() == twice.settled()


INDICES: dict[str, list[int]] = {
    "empty": [],
    "repeated": [5, 0, 5, 5, 2, 0],
    "many": [(7 * k * k + 3) % 10 for k in range(200)],
}


@EVERY_SPARSE_RULE
@DTYPES
@pytest.mark.parametrize("row", [(), (3,), (8,), (2100,)])
@pytest.mark.parametrize("indices", INDICES.values(), ids=INDICES)
@pytest.mark.parametrize("only_listed", [False, True], ids=["all", "listed"])
def test_a_sparse_step_is_decay_and_then_the_rule(
    rule: str,
    hyper: dict[str, Any],
    dtype: Any,
    row: tuple[int, ...],
    indices: list[int],
    only_listed: bool,
) -> None:
    """A row that is listed often decays once; rates of which no digit is lost, for equal bits."""
    values = np.random.default_rng(2).normal(size=(len(indices), *row)).astype(dtype)
    slices = Slices(values, np.array(indices, np.int64))
    for half in (None, np.float16) if dtype == np.float32 else (None,):
        for untouched in ("skip", "update"):
            if not takes(kernel_of(rule, hyper), untouched):
                continue
            arguments = (rule, hyper, (N_ROWS, *row), dtype, untouched, half)
            decayed, twice = (Table(*arguments, only_listed) for _ in range(2))
            listed = np.isin(np.arange(N_ROWS), indices)
            decayed.step(slices, 0.25)
            twice.decay(0.25, listed if only_listed else ...)
            twice.step(slices, 0.0)
            a, b = decayed.settled(), twice.settled()
            if RULES[twice.rule].untouched is None or decayed.ledger is None:
                assert a == b
            else:
                eps = np.finfo(dtype).eps
                np.testing.assert_allclose(decayed.w, twice.w, 8 * eps, 8 * eps)
                assert decayed.w[listed].tobytes() == twice.w[listed].tobytes()
                assert a[1 : len(twice.slots)] == b[1 : len(twice.slots)]


def schedule() -> Iterator[float]:
    """Rates that change, are sometimes 0, and now and then turn weights to zero or around."""
    rng = np.random.default_rng(3)
    while True:
        yield from rng.uniform(0, 0.02, size=9)
        yield 0.0
        yield from rng.uniform(0, 0.3, size=5)
        yield -0.1
        yield 1e-9
        yield 1.5


@EVERY_SPARSE_RULE
@pytest.mark.parametrize("row", [(3,), (9,)])
def test_many_steps(rule: str, hyper: dict[str, Any], row: tuple[int, ...]) -> None:
    """Sparse and dense steps mixed, against a recurrence that lets all rows decay in each step."""
    table = Table(rule, hyper, (N_ROWS, *row), np.float64)
    assert table.ledger is not None
    untouched = RULES[table.rule].untouched
    every_row = untouched is not None and untouched.moving is not None
    if "vhat" in table.slots:  # it is never less
        np.maximum(table.slots["vhat"], table.slots["v"], out=table.slots["vhat"])
    w, slots = table.w.copy(), {name: slot.copy() for name, slot in table.slots.items()}
    rng = np.random.default_rng(4)
    p = 1.0 / np.arange(1, N_ROWS + 1) ** 2
    for t, rate in zip(range(120), schedule(), strict=False):
        w = w - w * rate
        if t % 50 == 49:
            gradient: Any = rng.normal(size=w.shape)
            w, slots = reference.dense_step(rule, w, gradient, slots, **hyper)
        else:
            ids = rng.choice(N_ROWS, 4, p=p / p.sum())
            gradient = Slices(rng.normal(size=(4, *row)), ids)
            faded = {name: slot.copy() for name, slot in slots.items()}
            before = w
            way = "skip" if untouched is None else "update"
            w, slots = reference.sparse_step(
                rule, w, gradient.values, ids, faded, untouched=way, **hyper
            )
            if untouched is not None and not every_row:  # slots fade, weights stay
                others = np.setdiff1d(np.arange(N_ROWS), ids)
                w[others] = before[others]
        table.step(gradient, rate)
        if t % 7 == 3:
            some = rng.integers(0, N_ROWS, size=5)
            out = np.empty((5, *row))
            table.ledger.gather(some, out)
            np.testing.assert_allclose(out, w[some], 1e-11, 1e-12)
            table.ledger.settle_rows(some[:2])
    table.ledger.settle()
    assert far(table.w, w) <= 1e-12
    for name, slot in table.slots.items():
        assert far(slot, slots[name]) <= 1e-12


def test_rows_that_decay_for_long_end_at_zero() -> None:
    """And not among subnormal numbers, where arithmetic is slow."""
    table = Table("adagrad", {"learning_rate": 0.1}, (4, 3), np.float32)
    slices = Slices(np.zeros((1, 3), np.float32), np.array([0]))
    tiny = np.finfo(np.float32).smallest_normal
    for _ in range(400):
        table.step(slices, 0.3)
    table.settled()
    assert (table.w == 0).all()
    table.w[:] = 4 * tiny
    for _ in range(3):
        table.step(np.zeros((4, 3), np.float32), 0.5)
    assert (table.w == 0).all()


def test_a_small_rate_of_many_steps() -> None:
    """One minus the rate has seven digits of it: ten thousand factors lose three of sixteen."""
    table = Table("adagrad", {"learning_rate": 0.1}, (4, 3), np.float64)
    start = table.w.copy()
    slices = Slices(np.zeros((1, 3)), np.array([0]))
    for _ in range(10_000):
        table.step(slices, 1e-9)
    table.settled()
    np.testing.assert_allclose(table.w[1:], start[1:] * np.exp(10_000 * np.log1p(-1e-9)), 1e-15)


def test_rows_that_decay_need_a_ledger() -> None:
    w = np.ones((3, 2))
    key = Key()
    plan = Plan("gradient_descent", [key], [w], [()], Slices)
    assert plan.bind([(Slices(np.ones((1, 2)), np.array([0])), key)])
    with pytest.raises(ValueError, match="rows of array 0 decay, which needs a ledger"):
        plan.run((1.0,), 0.5)
    with pytest.raises(ValueError, match="2 rates of decay for 1 variables"):
        plan.run((1.0,), [0.5, 0.5])
    with pytest.raises(TypeError):
        plan.run((1.0,), "x")  # type: ignore[arg-type]
    assert (w == 1).all()
    plan.run((1.0,), 0.0)
    np.testing.assert_array_equal(w, [[0, 0], [1, 1], [1, 1]])


# ------------------------------------------------------------------ through optimizers


def decaying(record: Record, **flags: bool) -> Any:
    if "weight_decay" in record.cls._constraints:
        return record.make(weight_decay=0.25, **flags)
    return fo.decouple(record.make(), 0.25, **flags)


SPARSE_RECORDS = [record for record in RECORDS if not record.whole]


@pytest.mark.parametrize("record", SPARSE_RECORDS, ids=lambda record: record.id)
def test_a_sparse_step_leaves_other_rows_for_later(record: Record) -> None:
    """What a step costs goes by the rows that its gradient lists, whatever the rule."""
    table = fo.Variable(np.ones((50, 3)), name="table")
    optimizer = decaying(record)
    for _ in range(3):
        slices = fo.IndexedSlices(np.ones((2, 3)), [4, 4])
        optimizer.apply_gradients([(slices, table)])
    ledger = table._ledger
    assert ledger is not None and ledger.pending
    assert (np.delete(table._storage, 4, axis=0) == 1).all()
    assert ledger.rows_made_up == 0
    rows = fo.embedding_lookup(table, np.array([4, 7]))
    assert (np.asarray(rows)[1] < 1).all()
    assert ledger.rows_made_up == 1
    assert (np.delete(table._storage, [4, 7], axis=0) == 1).all()
    rate = 0.25
    if optimizer._decay.times_learning_rate:
        rate *= optimizer._hyperparameters["learning_rate"]
    np.testing.assert_allclose(np.delete(table.numpy(), 4, axis=0), (1 - rate) ** 3, 1e-15)
    assert not ledger.pending


def test_only_listed_rows_have_no_ledger() -> None:
    table = fo.Variable(np.ones((5, 2)))
    optimizer = fo.decouple(fo.AdagradOptimizer(0.1), 0.5, listed_rows_only=True)
    optimizer.apply_gradients([(fo.IndexedSlices(np.zeros((2, 2)), [1, 1]), table)])
    assert table._ledger is None
    np.testing.assert_array_equal(table._storage[:, 0], [1, 0.5, 1, 1, 1])


def test_decay_that_begins_and_ends_between_steps() -> None:
    table = fo.Variable(np.ones((4, 1)))
    optimizer = fo.AdagradOptimizer(0.1)
    slices = fo.IndexedSlices(np.zeros((1, 1)), [0])
    optimizer.apply_gradients([(slices, table)])
    assert table._ledger is None
    optimizer.configure(table, weight_decay=0.5)
    optimizer.apply_gradients([(slices, table)])
    optimizer.apply_gradients([(slices, table)])
    assert table._ledger is not None and table._ledger.pending
    optimizer.configure(table, weight_decay=0.0)
    optimizer.apply_gradients([(slices, table)])
    np.testing.assert_array_equal(table.numpy(), np.full((4, 1), 0.25))
    assert table._ledger is None


def test_variables_that_do_not_decay_have_nothing_waiting() -> None:
    a, b = fo.Variable(np.ones((4, 1)), name="a"), fo.Variable(np.ones((4, 1)), name="b")
    optimizer = fo.decouple(fo.AdagradOptimizer(0.1), 0.5)
    optimizer.configure(b, weight_decay=0.0)
    slices = fo.IndexedSlices(np.zeros((1, 1)), [0])
    optimizer.apply_gradients([(slices, a), (slices, b)])
    assert a._ledger is not None and a._ledger.pending
    assert b._ledger is None or not b._ledger.pending
    assert (a.numpy() == 0.5).all() and (b.numpy() == 1).all()


def test_a_gradient_that_is_refused_lets_nothing_decay() -> None:
    """Decay and update are one step."""
    table = fo.Variable(np.ones((4, 1)))
    optimizer = fo.decouple(fo.AdagradOptimizer(0.1), 0.5)
    with pytest.raises(IndexError):
        optimizer.apply_gradients([(fo.IndexedSlices(np.zeros((1, 1)), [4]), table)])
    assert (table.numpy() == 1).all()


# ------------------------------------------------------------------ L2 of gradient descent


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_an_l2_penalty_is_that_of_all_rows(dtype: Any) -> None:
    """The gradient of ``l2 / 2 * sum(w**2)`` added to the dense gradient, as PyTorch's SGD does."""
    rng = np.random.default_rng(5)
    start = rng.normal(size=(6, 4)).astype(dtype)
    table = fo.Variable(start)
    step = fo.Variable(np.int64(0), trainable=False)
    rate = fo.schedules.ExponentialDecay(0.5, 10, 0.5)
    optimizer = fo.GradientDescentOptimizer(rate, l2_regularization_strength=0.1)
    exact = start.astype(np.float64)
    for t in range(40):
        ids = rng.integers(0, 3, size=3)
        values = rng.normal(size=(3, 4)).astype(np.float32 if dtype == np.float16 else dtype)
        dense = np.zeros_like(exact)
        np.add.at(dense, ids, values.astype(np.float64))
        exact -= rate(t) * (dense + 0.1 * exact)
        optimizer.apply_gradients([(fo.IndexedSlices(values, ids), table)], global_step=step)
    assert table._ledger is not None and table._ledger.pending
    assert far(table.numpy().astype(np.float64), exact) <= 32 * np.finfo(dtype).eps


def test_an_l2_penalty_of_single_variables() -> None:
    w, bias = fo.Variable(np.ones(2)), fo.Variable(np.ones(2))
    optimizer = fo.GradientDescentOptimizer(0.5, l2_regularization_strength=0.5)
    optimizer.configure(bias, l2_regularization_strength=0.0)
    optimizer.apply_gradients([(np.zeros(2), w), (np.zeros(2), bias)])
    assert (w.numpy() == 0.75).all() and (bias.numpy() == 1).all()


def test_an_l2_penalty_and_a_weight_decay_are_one_too_many() -> None:
    var = fo.Variable(np.ones(2))
    optimizer = fo.GradientDescentOptimizer(0.5, l2_regularization_strength=0.5)
    with pytest.raises(ValueError, match="can't have a weight_decay too"):
        fo.decouple(optimizer, 0.1)
    with pytest.raises(ValueError, match="can't have a weight_decay too"):
        optimizer.configure(var, weight_decay=0.1)
    optimizer = fo.decouple(fo.GradientDescentOptimizer(0.5), 0.5)
    with pytest.raises(TypeError, match="no hyperparameter 'l2_regularization_strength'"):
        optimizer.configure(var, l2_regularization_strength=0.1)
    optimizer.apply_gradients([(np.zeros(2), var)])
    assert (var.numpy() == 0.5).all()
