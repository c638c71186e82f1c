"""Regularisation against formulas written out, dense and on touched rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt import regularizers as reg
from tests.optimizer_db import fresh_graph

__all__ = ["fresh_graph"]


def term(x: np.ndarray[Any, Any], l1: float, l2: float) -> float:
    """The definition, in float64."""
    wide = x.astype(np.float64).ravel()
    return sum(l1 * abs(v) + l2 * v * v for v in wide.tolist())


def slope(x: np.ndarray[Any, Any], l1: float, l2: float) -> np.ndarray[Any, Any]:
    wide = x.astype(np.float64)
    return l1 * ((wide > 0).astype(float) - (wide < 0)) + 2 * l2 * wide


MADE = [
    (reg.l1(0.3), 0.3, 0.0),
    (reg.l2(0.2), 0.0, 0.2),
    (reg.l1_l2(0.3, 0.2), 0.3, 0.2),
    (reg.L1L2(0.3), 0.3, 0.0),
    (reg.l1_regularizer(0.3), 0.3, 0.0),
    (reg.l2_regularizer(0.2), 0.0, 0.1),
    (reg.l1_l2_regularizer(0.3, 0.2), 0.3, 0.1),
    (reg.l1(), 0.01, 0.0),
    (reg.l2(), 0.0, 0.01),
    (reg.l1_l2(), 0.01, 0.01),
    (reg.L1L2(), 0.0, 0.0),
]


@pytest.mark.parametrize(("regularizer", "l1", "l2"), MADE, ids=lambda v: repr(v))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_term_and_gradient(regularizer: Any, l1: float, l2: float, dtype: Any) -> None:
    x = np.random.default_rng(3).normal(size=(5, 4)).astype(dtype)
    x[1, 2] = 0.0
    w = fo.Variable(x)
    total = regularizer(w)
    assert total.dtype == dtype and total.shape == ()
    rtol = 2 * float(np.finfo(dtype).eps)  # one rounding of a sum taken in float64
    np.testing.assert_allclose(float(total), term(x, l1, l2), rtol=rtol, atol=1e-300)
    (gradient,) = fo.gradients(total * 3.0, [w])
    np.testing.assert_allclose(gradient, 3 * slope(x, l1, l2), rtol=4 * rtol, atol=1e-300)
    assert gradient.dtype == dtype
    np.testing.assert_allclose(regularizer(x), float(total), rtol=0)
    np.testing.assert_allclose(regularizer.gradient(x), slope(x, l1, l2), rtol=4 * rtol)
    assert reg.L1L2(**regularizer.get_config())(x) == regularizer(x)


def test_float16_sums_beyond_its_range() -> None:
    w = fo.Variable(np.full(1000, 10.0, np.float16))
    total = reg.l1_l2(1.0, 1.0)(w)
    assert total.dtype == np.float32 and float(total) == 110000.0
    (gradient,) = fo.gradients(total, [w])
    assert gradient.dtype == np.float16 and (gradient == 21).all()


def test_weights_that_changed_since() -> None:
    w = fo.Variable(np.array([1.0, 2.0]))
    total = reg.l2(0.5)(w)
    w.assign([5.0, 5.0])
    assert float(total) == 2.5
    with pytest.raises(RuntimeError, match="changed"):
        fo.gradients(total, [w])


def test_in_a_loss_it_is_weight_decay() -> None:
    start = np.array([[1.0, -2.0], [0.5, 4.0]])
    w = fo.Variable(start)
    penalty = reg.l2_regularizer(0.1)
    fo.GradientDescentOptimizer(0.5).minimize(lambda: np.sum(w) + penalty(w))
    np.testing.assert_allclose(w.numpy(), start - 0.5 * (1 + 0.1 * start), rtol=1e-15)


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf, "0.1", None])
def test_coefficients_are_checked(bad: Any) -> None:
    error = ValueError if isinstance(bad, float) else TypeError
    for make in (reg.l1, reg.l2, reg.l1_regularizer, reg.l2_regularizer):
        with pytest.raises(error, match="a finite real number >= 0"):
            make(bad)


def test_what_is_no_array_of_numbers() -> None:
    with pytest.raises(TypeError, match="real numbers"):
        reg.l2(0.1)(np.array([1j]))


def test_apply_regularization() -> None:
    with fo.Graph().as_default():
        with pytest.raises(ValueError, match="weights_list is empty"):
            reg.apply_regularization(reg.l2(0.5))
        a, b = fo.Variable(np.array([1.0, 2.0])), fo.Variable(np.array(3.0))
        still = fo.Variable(np.array(9.0), trainable=False)
        total = reg.apply_regularization(reg.l2(0.5))
        assert float(total) == 7.0
        grads = fo.gradients(total, [a, b, still])
        assert [g if g is None else g.tolist() for g in grads] == [[1.0, 2.0], 3.0, None]
        assert float(reg.apply_regularization(reg.l2(0.5), still)) == 40.5
        assert float(reg.apply_regularization(reg.l2(0.5), [still, a])) == 43.0


# ------------------------------------------------------------------ touched rows


def test_on_rows_counts_each_row_once() -> None:
    rng = np.random.default_rng(1)
    start = rng.normal(size=(50, 3))
    table = fo.Variable(start)
    ids = rng.integers(0, 50, size=(8, 5))
    total = reg.on_rows(reg.l1_l2(0.3, 0.2), table, ids)
    touched = np.unique(ids)
    np.testing.assert_allclose(float(total), term(start[touched], 0.3, 0.2), rtol=1e-14)
    (gradient,) = fo.gradients(total, [table])
    assert isinstance(gradient, fo.IndexedSlices)
    assert sorted(gradient.indices.tolist()) == touched.tolist()
    np.testing.assert_allclose(
        gradient.values, slope(start[gradient.indices], 0.3, 0.2), rtol=1e-14
    )


@pytest.mark.parametrize("bad", [[3], [-1]])
def test_on_rows_checks_ids(bad: Any) -> None:
    with pytest.raises(IndexError, match="out of range for"):
        reg.on_rows(reg.l2(), fo.Variable(np.ones((3, 2))), bad)
    with pytest.raises(TypeError, match="integers"):
        reg.on_rows(reg.l2(), fo.Variable(np.ones((3, 2))), [0.5])
    assert float(reg.on_rows(reg.l2(), np.ones((3, 2)), np.zeros(0, np.int64))) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_added_to_gradients(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    start = rng.normal(size=(9, 2)).astype(dtype)
    table, dense, other = (fo.Variable(start) for _ in range(3))
    values = rng.normal(size=(4, 2)).astype(dtype)
    slices = fo.IndexedSlices(values, [7, 2, 7, 0])
    g = rng.normal(size=(9, 2)).astype(dtype)
    given = [(slices, table), (g, dense), (None, other)]
    pairs = reg.add_gradients(given, reg.l1_l2(0.1, 0.2))
    assert [var for _, var in pairs] == [table, dense, other] and pairs[2][0] is None
    got = pairs[0][0]
    assert got.indices.tolist() == [7, 2, 0] and got.dtype == dtype
    expected = np.stack([values[0] + values[2], values[1], values[3]])
    expected = expected + slope(start[[7, 2, 0]], 0.1, 0.2)
    tolerance = 1e-6 if dtype == np.float32 else 1e-14  # a few roundings
    np.testing.assert_allclose(got.values, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        pairs[1][0], g + slope(start, 0.1, 0.2), rtol=tolerance, atol=tolerance
    )
    assert (slices.values == values).all()  # what was passed is as it was
    only = reg.add_gradients(given, reg.l2(1.0), var_list=[dense])
    assert only[0][0] is slices and only[1][0] is not g


def test_added_gradients_train_touched_rows_only() -> None:
    table = fo.Variable(np.ones((5, 2)))
    opt = fo.GradientDescentOptimizer(0.5)
    slices = fo.IndexedSlices(np.zeros((3, 2)), [1, 4, 1])
    opt.apply_gradients(reg.add_gradients([(slices, table)], reg.l2_regularizer(0.5)))
    assert table.numpy()[:, 0].tolist() == [1, 0.75, 1, 1, 0.75]


def test_gradients_that_are_none_of_a_regularizer() -> None:
    w = fo.Variable(np.ones(2))
    with pytest.raises(TypeError, match=r"method gradient\(x\)"):
        reg.add_gradients([(np.ones(2), w)], lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        reg.add_gradients([(np.ones(3), w)], reg.l2())
    with pytest.raises(ValueError, match="grads_and_vars is empty"):
        reg.add_gradients([], reg.l2())
