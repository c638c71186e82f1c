"""What untouched rows miss, made up for in the masters of 16-bit tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels._deferred import Ledger
from fastopt._kernels._half import narrow, widen
from fastopt._kernels._plan import Plan
from tests.half.support import bits, both
from tests.kernels.support import Key, Slices, threads

ROWS = 300


class Table:
    """Adam's arrays for one table, 16-bit if `half` is given, with a ledger."""

    def __init__(self, start: Any, half: Any = None) -> None:
        self.w = start.astype(np.float32)
        self.half = None if half is None else narrow(self.w, half)
        self.slots = (np.zeros_like(self.w), np.zeros_like(self.w))
        self.ledger = Ledger("adam", self.w, self.slots, self.half)
        self.key = Key()
        self.plan = Plan(
            "adam",
            [self.key],
            [self.w],
            [self.slots],
            Slices,
            "update",
            ledgers=[self.ledger],
            halves=[self.half],
        )

    def step(self, gradient: Any) -> None:
        assert self.plan.bind([(gradient, self.key)])
        self.plan.run((0.01, 0.1, 0.001, 1e-8))
        self.plan.release()


@both()
@pytest.mark.parametrize("width", [3, 40])
@pytest.mark.parametrize("n", [1, 2])
def test_as_a_float32_table_rounded(half: Any, width: int, n: int) -> None:
    rng = np.random.default_rng(4)
    start = rng.normal(size=(ROWS, width)).astype(half).astype(np.float32)
    plain, narrowed = Table(start), Table(start, half)
    with threads(n):
        for step in range(30):
            ids = rng.integers(0, ROWS, size=20)
            values = rng.normal(size=(20, width)).astype(np.float32)
            for table in (plain, narrowed):
                table.step(Slices(values, ids))
            if step % 7 == 3:
                some = rng.integers(0, ROWS, size=11)
                seen = np.empty((11, width), np.float32), np.empty((11, width), np.float32)
                for table, out in zip((plain, narrowed), seen, strict=True):
                    table.ledger.gather(some, out)
                    table.ledger.settle_rows(some)
                assert seen[0].tobytes() == seen[1].tobytes()
                assert narrowed.half is not None
                assert (bits(narrowed.half[some]) == bits(narrow(plain.w[some], half))).all()
        dense = rng.normal(size=start.shape).astype(np.float32)
        for table in (plain, narrowed):
            table.step(dense)
            table.step(Slices(values, ids))
            table.ledger.settle()
    assert narrowed.w.tobytes() == plain.w.tobytes()
    assert narrowed.half is not None
    assert (bits(narrowed.half) == bits(narrow(plain.w, half))).all()


@both()
@pytest.mark.parametrize("others", [0, 20])
def test_what_somebody_writes_counts(half: Any, others: int) -> None:
    """Where few of the rows that are looked up wait, these are copied and stay as they are."""
    table = Table(np.ones((ROWS, 4)), half)
    table.step(Slices(np.ones((1, 4), np.float32), np.array([7])))
    table.ledger.settle()
    assert table.half is not None
    table.half[7] = 5
    table.step(Slices(np.ones((1, 4), np.float32), np.array([3])))
    table.half[7] = 6  # although the row has missed a step
    out = np.empty((others + 1, 4), np.float32)
    table.ledger.gather(np.array([3] * others + [7]), out)
    table.ledger.settle()
    assert out[-1].tobytes() == table.w[7].tobytes()
    moved = 0.01 * (0.1 * 0.9) / np.sqrt(0.001 * 0.999)  # m and v of one gradient, a step later
    np.testing.assert_allclose(table.w[7], 6 - moved, rtol=1e-6)
    assert (widen(table.half[7:8].copy()) == narrow(table.w[7:8], half).astype(np.float32)).all()


@both()
def test_of_another_table(half: Any) -> None:
    table = Table(np.ones((ROWS, 4)), half)
    with pytest.raises(ValueError, match="ledger 0 is of another rule or of other arrays"):
        Plan(
            "adam",
            [table.key],
            [table.w],
            [table.slots],
            Slices,
            "update",
            ledgers=[table.ledger],
        )
    with pytest.raises(ValueError, match="float32 of this shape"):
        Ledger("adam", table.w, table.slots, np.ones((ROWS, 5), half))


@both()
def test_adam_that_leaves_rows_for_later(half: Any) -> None:
    """Look-ups see rows of 16 bits that are up to date, and so does everybody else."""
    rng = np.random.default_rng(6)
    start = rng.uniform(1.2, 1.8, size=(ROWS, 8)).astype(half)
    place = 2.0**-10 if half == np.float16 else 2.0**-7  # of numbers from 1 to 2
    with fo.Graph().as_default():
        table = fo.Variable(start, name="table")
        twin = fo.Variable(start.astype(np.float64), name="twin")
        mine = fo.AdamOptimizer(0.002)
        other = fo.AdamOptimizer(0.002, sparse_updates="dense")
        for step in range(40):
            ids = rng.integers(0, ROWS, size=5)
            values = rng.normal(size=(5, 8)).astype(np.float32)
            mine.apply_gradients([(fo.IndexedSlices(values, ids), table)])
            other.apply_gradients([(fo.IndexedSlices(values.astype(np.float64), ids), twin)])
            some = rng.integers(0, ROWS, size=(4, 5))
            if step % 10 == 5:
                rows = np.asarray(fo.embedding_lookup(table, some)).astype(float)
                assert (np.abs(rows - twin.numpy()[some]) <= 0.501 * place).all()
            if step % 10 == 7:
                bags = np.asarray(fo.embedding_lookup_sparse(table, some.tolist(), None))
                wanted = twin.numpy()[some].mean(axis=1)
                assert (np.abs(bags.astype(float) - wanted) <= 1.001 * place).all()
        master = mine.get_slot(table, "master")
        assert master is not None
        np.testing.assert_allclose(master.numpy(), twin.numpy(), rtol=1e-6)  # 40 roundings
        assert (bits(table.numpy()) == bits(narrow(master.numpy(), half))).all()
