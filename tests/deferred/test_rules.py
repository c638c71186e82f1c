"""Relatives of Adam: the same mechanism, told by data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels._deferred import Ledger
from fastopt._kernels._expansion import expansion
from fastopt._kernels._plan import Plan
from fastopt._kernels.rules import RULES
from tests.deferred.oracles import Recurrence, far, walk


class Key:
    """Something to hold a plan by."""


def scalars(rule: str, lr: float, beta1: float, beta2: float, epsilon: float) -> tuple[float, ...]:
    known = {
        "lr": lr,
        "beta1": beta1,
        "one_minus_beta1": 1.0 - beta1,
        "beta2": beta2,
        "one_minus_beta2": 1.0 - beta2,
        "epsilon": epsilon,
    }
    return tuple(known[name] for name in RULES[rule].scalars)


@pytest.mark.parametrize("beta2", [0.999, 0.95, 0.5])
@pytest.mark.parametrize("rule", ["adam", "amsgrad", "adamax", "nadam"])
def test_numbers_of_the_dense_recurrence(rule: str, beta2: float) -> None:
    n_rows, width = 60, 9
    w = np.random.default_rng(0).normal(size=(n_rows, width))
    exact = Recurrence(rule, w, 0.9, beta2, 1e-6)
    slots = tuple(np.zeros_like(w) for _ in RULES[rule].slots)
    ledger, key = Ledger(rule, w, slots), Key()
    plan = Plan(rule, [key], [w], [slots], fo.IndexedSlices, ledgers=[ledger])
    draw = walk(n_rows, width)
    for t in range(400):
        (values, ids), gradient = draw()
        lr = 0.01 * (1 + t % 3)
        step = scalars(rule, lr * exact.correction(), 0.9, beta2, 1e-6)
        assert plan.bind([(fo.IndexedSlices(values.astype(np.float64), ids, w.shape), key)])
        plan.run(step)
        plan.release()
        exact.step(lr, gradient, ids)
        if t % 7 == 0:
            ledger.settle_rows(np.arange(t % n_rows))
        if t % 100 == 99:
            out = np.empty_like(w)
            ledger.gather(np.arange(n_rows), out)
            assert far(out, exact.w) <= 1e-12
    ledger.settle()
    assert far(w, exact.w) <= 1e-12
    wanted: dict[str, Any] = {"m": exact.m, "v": exact.v, "vhat": exact.vhat}
    for name, array in zip(RULES[rule].slots, slots, strict=True):
        assert far(array, wanted[name]) <= 1e-12


def test_nadam_as_an_optimizer() -> None:
    """Averages fade in all rows, weights move in the listed ones."""
    table = fo.Variable(np.ones((20, 3)))
    optimizer = fo.NadamOptimizer(0.01)
    exact = Recurrence("nadam", table.numpy())
    draw = walk(20, 3)
    for _ in range(100):
        (values, ids), gradient = draw()
        slices = fo.IndexedSlices(values.astype(np.float64), ids)
        optimizer.apply_gradients([(slices, table)])
        exact.step(0.01, gradient, ids)
    assert table._ledger is not None and table._ledger.pending
    for name, wanted in (("m", exact.m), ("v", exact.v)):
        slot = optimizer.get_slot(table, name)
        assert slot is not None and far(slot.numpy(), wanted) <= 1e-13
    assert far(table.numpy(), exact.w) <= 1e-13


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(
    ("first", "ratio"),
    [(0.9, 0.999**0.5), (0.9, 0.9**0.5), (0.999, 0.9999), (0.5, 0.1), (0.9, 0.0), (0.9, 1.0)],
)
def test_an_expansion_keeps_its_promise(first: float, ratio: float, single: bool) -> None:
    """Whatever root and epsilon are, and after how many steps one looks."""
    found = expansion(first, ratio, single)
    j = np.arange(1, found.window + 1)
    q = ratio**j
    bound = 2.0**-26 if single else 2.0**-50  # beyond 2**-52 the sums here round themselves
    for share in (0.0, 1e-6, 0.3, 1.0, 1e6, 1e30):  # the root, with epsilon 1
        a = share * found.centre + 1.0
        r = share / a
        terms = first**j / (share * q + 1.0)
        series = (found.coefficients * r ** np.arange(found.n_moments)).sum(axis=1) / a
        sums, expanded = np.cumsum(terms), np.cumsum(series)
        assert np.max(np.abs(expanded - sums) / sums) <= 2 * bound


def test_an_expansion_of_what_does_not_move() -> None:
    assert expansion(0.0, 0.999, True).reach == 0
    assert expansion(0.9, 0.999**0.5, True).n_moments == 4
    assert expansion(0.9, 0.999**0.5, True).window == expansion(0.9, 0.999**0.5, True).reach


def test_a_ledger_checks_its_arrays() -> None:
    w, slots = np.zeros((3, 2)), (np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="no rule 'adams'; there are gradient_descent, "):
        Ledger("adams", w, slots)
    with pytest.raises(ValueError, match="has slots"):
        Ledger("adam", w, slots[:1])
    with pytest.raises(ValueError, match="must have rows"):
        Ledger("adam", np.zeros(()), slots)
    with pytest.raises(ValueError, match="slot 'v' must have dtype float64 and shape"):
        Ledger("adam", w, (slots[0], np.zeros((3, 3))))
    with pytest.raises(TypeError, match="float32 or float64"):
        Ledger("adam", np.zeros((3, 2), np.int64), slots)
    ledger = Ledger("adam", w, slots)
    with pytest.raises(ValueError, match="ids must be a C-contiguous array"):
        ledger.settle_rows(np.zeros((2, 2), np.int64))
    with pytest.raises(ValueError, match="out must have dtype"):
        ledger.gather(np.zeros(2, np.int64), np.zeros((2, 3)))
    with pytest.raises(IndexError):
        ledger.gather(np.array([0, -1]), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="of another rule or of other arrays"):
        Plan("adam", [Key()], [np.zeros((3, 2))], [slots], fo.IndexedSlices, ledgers=[ledger])


def test_the_count_begins_anew() -> None:
    """After 65,536 steps all rows are brought up to date, and no more memory is taken."""
    w = np.ones((3, 1))
    slots = (np.zeros((3, 1)), np.zeros((3, 1)))
    ledger, key = Ledger("adam", w, slots), Key()
    plan = Plan("adam", [key], [w], [slots], fo.IndexedSlices, ledgers=[ledger])
    exact = Recurrence("adam", w, 0.9, 0.99999)
    exact.t = 10**6  # no correction: the loop below is quick
    gradient = np.zeros((3, 1))
    for t in range(65_600):
        row = 0 if t else 1
        slices = fo.IndexedSlices(np.full((1, 1), 1.0), np.array([row]))
        assert plan.bind([(slices, key)])
        plan.run((1e-5, 1.0 - 0.9, 1.0 - 0.99999, 1e-8))
        plan.release()
        gradient[:] = 0.0
        gradient[row] = 1.0
        exact.step(1e-5 / exact.correction(), gradient, np.array([row]))
    assert ledger.clock == 65_600 - 65_536
    ledger.settle()
    assert far(w, exact.w) <= 1e-11
    assert far(slots[1], exact.v) <= 1e-11
