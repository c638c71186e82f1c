"""Constraints against their formulas, after dense and after sparse updates."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastopt as fo
from fastopt import constraints as con
from tests.optimizer_db import RECORDS, fresh_graph, state_of

__all__ = ["fresh_graph"]


def norms(w: np.ndarray[Any, Any], axis: Any) -> np.ndarray[Any, Any]:
    return np.sqrt((w.astype(np.float64) ** 2).sum(axis=axis, keepdims=True))


def keras(w: np.ndarray[Any, Any], low: float, high: float, rate: float, axis: Any) -> Any:
    """What Keras computes, in float64."""
    n = norms(w, axis)
    desired = rate * np.clip(n, low, high) + (1 - rate) * n
    return w * (desired / (1e-7 + n))


@pytest.mark.parametrize("axis", [0, 1, (0, 1), -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_as_keras(axis: Any, dtype: Any) -> None:
    w = np.random.default_rng(0).normal(size=(6, 4)).astype(dtype)
    for made, low, high, rate in (
        (con.max_norm(1.5, axis), 0.0, 1.5, 1.0),
        (con.unit_norm(axis), 1.0, 1.0, 1.0),
        (con.min_max_norm(1.0, 1.5, 0.5, axis), 1.0, 1.5, 0.5),
    ):
        got = made(w)
        assert got.dtype == dtype and got is not w
        # Keras divides by norm + 1e-7, with norms of about 1.
        np.testing.assert_allclose(got, keras(w, low, high, rate, axis), rtol=1e-6, atol=1e-7)


def test_defaults_are_those_of_keras() -> None:
    assert con.MaxNorm().get_config() == {"max_value": 2.0, "axis": (0,)}
    assert con.UnitNorm().get_config() == {"axis": (0,)}
    assert con.MinMaxNorm().get_config() == {
        "min_value": 0.0,
        "max_value": 1.0,
        "rate": 1.0,
        "axis": (0,),
    }
    assert repr(con.MaxNorm(1, axis=1)) == "MaxNorm(max_value=1.0, axis=(1,))"
    assert repr(con.NonNeg()) == "NonNeg()" and con.NonNeg().get_config() == {}


def test_what_is_within_keeps_its_bits() -> None:
    w = np.array([[1e-30, 0.0], [3.0, 4.0], [0.0, 0.0], [-0.0, 30.0]], np.float32)
    got = con.MaxNorm(5.0, axis=1)(w)
    assert got[:3].tobytes() == w[:3].tobytes()
    assert got[3].tolist() == [0.0, 5.0]


@given(st.integers(-37, 37), st.sampled_from([np.float32, np.float64]))
def test_norms_of_any_magnitude(exponent: int, dtype: Any) -> None:
    w = np.array([[3.0, 4.0], [0.0, 0.0]], dtype) * dtype(10.0**exponent)
    got = con.UnitNorm(axis=1)(w)
    np.testing.assert_allclose(got, [[0.6, 0.8], [0.0, 0.0]], rtol=3 * np.finfo(dtype).eps)


def test_non_neg() -> None:
    w = np.array([-1.0, 0.0, 2.0, -np.inf, np.nan], np.float32)
    got = con.non_neg()(w)
    np.testing.assert_array_equal(got, np.array([0, 0, 2, 0, np.nan], np.float32))
    assert got.dtype == np.float32


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: con.MaxNorm(-1.0), ValueError, "max_value"),
        (lambda: con.MaxNorm(np.nan), ValueError, "max_value"),
        (lambda: con.MaxNorm("2"), TypeError, "max_value"),
        (lambda: con.MinMaxNorm(2.0, 1.0), ValueError, "max_value must be .* >= 2"),
        (lambda: con.MinMaxNorm(rate=0.0), ValueError, "rate"),
        (lambda: con.MinMaxNorm(rate=1.5), ValueError, "rate"),
        (lambda: con.UnitNorm(axis=0.5), TypeError, "axis"),
        (lambda: con.UnitNorm(axis=()), TypeError, "axis"),
        (lambda: con.UnitNorm(axis=None), TypeError, "axis"),
    ],
)
def test_arguments_are_checked(make: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_which_constraints_act_on_rows() -> None:
    assert con.NonNeg().rows and con.MaxNorm(axis=1).rows and con.UnitNorm(axis=(1, 2)).rows
    for whole in (con.MaxNorm(), con.UnitNorm(axis=(0, 1)), con.MinMaxNorm(axis=-1)):
        assert not con.acts_on_rows(whole)
    assert not con.acts_on_rows(np.abs)


# ------------------------------------------------------------------ with optimizers


def each_rule() -> Any:
    return pytest.mark.parametrize("record", [pytest.param(r, id=r.id) for r in RECORDS])


@each_rule()
def test_after_a_dense_update(record: Any) -> None:
    rng = np.random.default_rng(4)
    start, g = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    free = fo.Variable(start)
    bound = fo.Variable(start, constraint=con.MaxNorm(0.5))
    record.make().apply_gradients([(g, free)])
    record.make().apply_gradients([(g, bound)])
    assert bound.numpy().tobytes() == con.MaxNorm(0.5)(free.numpy()).tobytes()
    assert norms(bound.numpy(), 0).max() <= 0.5 + 1e-12


@each_rule()
@pytest.mark.parametrize("kept", [False, True])
def test_after_a_sparse_update(record: Any, kept: bool) -> None:
    """Only rows that the update has moved are looked at; the others may lie outside."""
    rng = np.random.default_rng(6)
    start = 3 * rng.normal(size=(40, 3))
    slices = fo.IndexedSlices(rng.normal(size=(4, 3)), [9, 2, 9, 30], (40, 3))
    constraint = con.UnitNorm(axis=1)
    free, bound = fo.Variable(start), fo.Variable(start, constraint=constraint)
    plain, watched = record.make(), record.make()
    for _ in range(2 if kept else 1):  # the second time by a kept plan
        free.assign(bound)
        plain.apply_gradients([(slices, free)])
        watched.apply_gradients([(slices, bound)])
    expected = free.numpy()
    if record.other_rows:
        expected = constraint(expected)
    else:
        expected[[2, 9, 30]] = constraint(expected[[2, 9, 30]])
    np.testing.assert_allclose(bound.numpy(), expected, rtol=1e-14)
    if not record.other_rows:
        assert bound.numpy()[10:30].tobytes() == start[10:30].tobytes()


def test_rows_that_only_decay_are_moved_too() -> None:
    table = fo.Variable(np.full((4, 2), np.sqrt(0.5)), constraint=con.UnitNorm(axis=1))
    slices = fo.IndexedSlices(np.ones((1, 2)), [2])
    for listed_rows_only in (False, True):
        opt = fo.decouple(fo.GradientDescentOptimizer(0.1), 0.5, listed_rows_only=listed_rows_only)
        opt.apply_gradients([(slices, table)])
        np.testing.assert_allclose(norms(table.numpy(), 1), 1.0, rtol=1e-15)


def test_a_constraint_on_columns_refuses_slices() -> None:
    table = fo.Variable(np.ones((3, 2)), name="table", constraint=con.MaxNorm(1.0))
    opt = fo.GradientDescentOptimizer(0.1)
    slices = fo.IndexedSlices(np.ones((1, 2)), [0])
    for _ in range(2):
        before = state_of(opt, table)
        with pytest.raises(RuntimeError, match=r"'table' has a constraint.*MaxNorm.*row by row"):
            opt.apply_gradients([(slices, table)])
        assert state_of(opt, table) == before
        opt.apply_gradients([(np.ones((3, 2)), table)])


def test_a_constraint_of_ones_own_on_rows() -> None:
    seen = []

    class Clip:
        rows = True

        def __call__(self, w: Any) -> Any:
            seen.append(np.asarray(w).copy())
            return np.clip(w, -1.0, 1.0)

    table = fo.Variable(np.zeros((6, 1)), constraint=Clip())
    slices = fo.IndexedSlices(np.array([[3.0], [-4.0], [3.0]]), [5, 0, 5])
    fo.GradientDescentOptimizer(1.0).apply_gradients([(slices, table)])
    assert [w.tolist() for w in seen] == [[[4.0], [-6.0]]]  # each row once
    assert table.numpy().ravel().tolist() == [1, 0, 0, 0, 0, -1]
    fo.GradientDescentOptimizer(1.0).apply_gradients([(np.zeros((6, 1)), table)])
    assert seen[-1].shape == (6, 1)


def test_a_constraint_that_returns_no_rows() -> None:
    class Wrong:
        rows = True

        def __call__(self, w: Any) -> Any:
            return w[0]

    table = fo.Variable(np.zeros((6, 2)), name="table", constraint=Wrong())
    with pytest.raises(ValueError, match="rows"):
        fo.GradientDescentOptimizer(1.0).apply_gradients(
            [(fo.IndexedSlices(np.ones((2, 2)), [0, 1]), table)]
        )


def test_a_rule_in_python_with_a_constraint_on_rows() -> None:
    class Mine(fo.Optimizer):
        def __init__(self) -> None:
            super().__init__(False, "mine")

        def _apply_sparse(self, grad: Any, var: Any) -> Any:
            return var.scatter_sub(grad * 0.5)

    table = fo.Variable(np.zeros((4, 2)), constraint=con.NonNeg())
    slices = fo.IndexedSlices(np.array([[2.0, -2.0], [2.0, -2.0]]), [3, 3])
    Mine().apply_gradients([(slices, table)])
    assert table.numpy().tolist() == [[0, 0], [0, 0], [0, 0], [0, 2]]


def test_copies_keep_the_constraint() -> None:
    for other in (
        copy.deepcopy(fo.Variable(np.ones(2), constraint=con.MaxNorm(3.0))),
        pickle.loads(pickle.dumps(fo.Variable(np.ones(2), constraint=con.MaxNorm(3.0)))),
    ):
        assert other.constraint.get_config() == {"max_value": 3.0, "axis": (0,)}


def test_in_minimize() -> None:
    table = fo.Variable(np.ones((100, 2)), constraint=con.MaxNorm(1.0, axis=1))
    opt = fo.AdagradOptimizer(0.5)
    for gate in (fo.Optimizer.GATE_OP, fo.Optimizer.GATE_NONE):
        opt.minimize(lambda: -np.sum(fo.embedding_lookup(table, [3, 7, 3])), gate_gradients=gate)
        lengths = norms(table.numpy(), 1)[:, 0]
        np.testing.assert_allclose(lengths[[3, 7]], 1.0, rtol=1e-15)
        np.testing.assert_allclose(lengths[[0, 99]], np.sqrt(2.0), rtol=1e-15)
