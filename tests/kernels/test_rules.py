"""Each rule against the oracle, dense and sparse, and where its numbers end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastopt._kernels.rules import RULES
from tests import reference
from tests.kernels.support import (
    CASE_IDS,
    CASES,
    HYPER,
    SPARSE_CASES,
    SPARSE_IDS,
    Slices,
    apply,
    digits,
    kernel_of,
    state,
    takes,
    threads,
)

RULE_CASES = pytest.mark.parametrize(("rule", "hyper"), CASES, ids=CASE_IDS)
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def exact(array: Any) -> Any:
    return np.asarray(array, np.float64)


def check(
    result: Any, slots: dict[str, Any], expected: tuple[Any, dict[str, Any]], dtype: Any
) -> None:
    np.testing.assert_allclose(result, expected[0], **digits(dtype))
    for name, slot in slots.items():
        np.testing.assert_allclose(slot, expected[1][name], err_msg=name, **digits(dtype))


def test_the_page_has_no_rule_that_these_tests_leave_out() -> None:
    assert {kernel_of(rule, hyper) for rule, hyper in CASES} == set(RULES)


@RULE_CASES
@DTYPES
@pytest.mark.parametrize("shape", [(), (0,), (1,), (37,), (5, 7), (2, 3, 4), (4, 0)])
def test_dense(rule: str, hyper: dict[str, Any], dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    w, slots = state(kernel_of(rule, hyper), shape, dtype, rng)
    g = np.asarray(rng.normal(size=shape)).astype(dtype)
    expected = reference.dense_step(
        rule, exact(w), exact(g), {name: exact(slot) for name, slot in slots.items()}, **hyper
    )
    kept = g.copy()
    plan = apply(rule, hyper, w, slots, g)
    check(w, slots, expected, dtype)
    np.testing.assert_array_equal(g, kept)
    assert plan.dense_parameters == w.size
    assert plan.rows_touched == 0


INDICES = {
    "empty": [],
    "one": [3],
    "repeated": [5, 0, 5, 5, 2, 0],
    "all the same": [4] * 9,
    "descending": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
    "ends": [9, 0],
    "many": [(7 * k * k + 3) % 10 for k in range(200)],
}


@pytest.mark.parametrize(("rule", "hyper"), SPARSE_CASES, ids=SPARSE_IDS)
@DTYPES
@pytest.mark.parametrize("row", [(), (3,), (7,), (8,), (2, 19)])
@pytest.mark.parametrize("indices", INDICES.values(), ids=INDICES)
def test_sparse(
    rule: str, hyper: dict[str, Any], dtype: Any, row: tuple[int, ...], indices: list[int]
) -> None:
    rng = np.random.default_rng(2)
    w, slots = state(kernel_of(rule, hyper), (10, *row), dtype, rng)
    values = np.asarray(rng.normal(size=(len(indices), *row))).astype(dtype)
    ids = np.array(indices, np.int64)
    expected = reference.sparse_step(
        rule,
        exact(w),
        exact(values),
        ids,
        {name: exact(slot) for name, slot in slots.items()},
        **hyper,
    )
    untouched = np.setdiff1d(np.arange(10), ids)
    before = w[untouched].copy()
    plan = apply(rule, hyper, w, slots, Slices(values, ids))
    check(w, slots, expected, dtype)
    np.testing.assert_array_equal(w[untouched], before)
    assert plan.rows_touched == len(set(indices))
    assert plan.dense_parameters == 0


@DTYPES
@pytest.mark.parametrize("row", [(), (3,), (16,), (5000,)])
@pytest.mark.parametrize("indices", INDICES.values(), ids=INDICES)
@pytest.mark.parametrize("rule", [rule for rule in sorted(HYPER) if takes(rule, "update")])
def test_untouched_rows_are_updated_too(
    rule: str, dtype: Any, row: tuple[int, ...], indices: list[int]
) -> None:
    hyper = HYPER[rule][0]
    rng = np.random.default_rng(3)
    w, slots = state(rule, (10, *row), dtype, rng)
    values = np.asarray(rng.normal(size=(len(indices), *row))).astype(dtype)
    ids = np.array(indices, np.int32)
    summed = np.zeros(w.shape)
    np.add.at(summed, ids, exact(values))
    expected = reference.dense_step(
        rule, exact(w), summed, {name: exact(slot) for name, slot in slots.items()}, **hyper
    )
    plan = apply(rule, hyper, w, slots, Slices(values, ids), untouched="update")
    check(w, slots, expected, dtype)
    assert plan.rows_touched == len(set(indices))


@pytest.mark.parametrize("width", [1, 16, 3000])
def test_duplicates_in_order_of_arrival(width: int) -> None:
    """pytorch/FBGEMM PR#586: a sum of repeated ids that depends on the order of threads."""
    for values, total in (([1, 1e8, -1e8], 0.0), ([1e8, -1e8, 1], 1.0)):
        w = np.zeros((4, width), np.float32)
        accumulator = np.ones((4, width), np.float32)
        rows = np.repeat(np.array(values, np.float32)[:, None], width, axis=1)
        apply(
            "momentum",
            {"learning_rate": 1.0, "momentum": 0.0},
            w,
            {"momentum": accumulator},
            Slices(rows, np.array([2, 2, 2])),
        )
        assert (accumulator[2] == total).all()
        assert (w[2] == -total).all()


def test_gradient_descent_applies_repeated_rows_one_by_one() -> None:
    """pytorch/FBGEMM PR#586; the numbers are TensorFlow's, which subtracts row by row."""
    for values, result in (([1, 1e8, -1e8], 0.0), ([1e8, -1e8, 1], -1.0)):
        w = np.zeros((4, 1), np.float32)
        rows = np.array(values, np.float32)[:, None]
        apply("gradient_descent", {"learning_rate": 1.0}, w, {}, Slices(rows, np.array([2, 2, 2])))
        assert w[2, 0] == result


def test_nonfinite_gradients_stay_in_their_element() -> None:
    bad = np.array([1, np.inf, -np.inf, np.nan, 1], np.float32)
    for rule, hyper in CASES:
        w, slots = state(kernel_of(rule, hyper), (5,), np.float32, np.random.default_rng(4))
        expected = reference.dense_step(rule, w, bad, slots, **hyper)
        apply(rule, hyper, w, slots, bad)
        np.testing.assert_array_equal(np.isfinite(w), np.isfinite(expected[0]), err_msg=rule)
        assert np.isfinite(w[[0, 4]]).all()


@DTYPES
def test_ftrl_without_any_denominator_is_zero(dtype: Any) -> None:
    """TensorFlow's sparse kernel divides zero by zero here, its dense one doesn't."""
    hyper = {"learning_rate": 0.5}
    for gradient in (
        np.zeros((3, 2), dtype),
        Slices(np.zeros((3, 2), dtype), np.arange(3)),
        np.full((3, 2), np.finfo(dtype).smallest_normal),  # its square is zero
    ):
        w = np.ones((3, 2), dtype)
        slots = {"accum": np.zeros((3, 2), dtype), "linear": np.zeros((3, 2), dtype)}
        apply("ftrl", hyper, w, slots, gradient)
        np.testing.assert_array_equal(w, 0)


@DTYPES
def test_ftrl_without_shrinkage_does_not_look_at_infinite_weights_twice(dtype: Any) -> None:
    w = np.array([np.inf], dtype)
    slots = {"accum": np.ones(1, dtype), "linear": np.ones(1, dtype)}
    expected = reference.dense_step("ftrl", w, np.ones(1, dtype), slots, learning_rate=0.5)
    apply("ftrl", {"learning_rate": 0.5}, w, slots, np.ones(1, dtype))
    np.testing.assert_array_equal(slots["linear"], expected[1]["linear"])


@RULE_CASES
@DTYPES
@pytest.mark.parametrize("n", [5, 1000, 70_001])
def test_decay_in_the_sweep_is_decay_before_it(
    rule: str, hyper: dict[str, Any], dtype: Any, n: int
) -> None:
    """The same operations on each element, so the same bits; and what is subnormal then is zero."""
    rng = np.random.default_rng(8)
    name = kernel_of(rule, hyper)
    w, slots = state(name, (n,), dtype, rng)
    w[::3] *= np.finfo(dtype).smallest_normal
    g = np.asarray(rng.normal(size=n)).astype(dtype)
    before = w - w * dtype(0.01)
    before[np.abs(before) < np.finfo(dtype).smallest_normal] = 0
    slots_before = {key: slot.copy() for key, slot in slots.items()}
    apply(rule, hyper, w, slots, g, decay=0.01)
    apply(rule, hyper, before, slots_before, g)
    np.testing.assert_array_equal(w, before, strict=True)
    for key, slot in slots.items():
        np.testing.assert_array_equal(slot, slots_before[key], err_msg=key)


@DTYPES
@pytest.mark.parametrize("rule", ["momentum", "adam"])
def test_moments_end_at_zero_and_not_among_subnormals(rule: str, dtype: Any) -> None:
    """clab/dynet#896, chainer/chainer#2554, dfdx#59: steps became many times slower."""
    hyper = HYPER[rule][0]
    tiny = np.finfo(dtype).smallest_normal
    w, slots = state(rule, (40,), dtype, np.random.default_rng(5))
    for slot in slots.values():
        slot[:] = tiny * 64
        slot[0] = -tiny * 64
    decay = {"momentum": 0.9, "m": 0.9, "v": 0.999}
    for _ in range(5):
        before = {name: slot.copy() for name, slot in slots.items()}
        apply(rule, hyper, w, slots, np.zeros(40, dtype))
        for name, slot in slots.items():
            if name != "v":
                normal = np.abs(slot) >= tiny
                np.testing.assert_allclose(
                    slot[normal], before[name][normal] * decay[name], rtol=1e-6
                )
    for name, slot in slots.items():
        for _ in range(60):
            apply(rule, hyper, w, slots, np.zeros(40, dtype))
        if name != "v":
            assert (slot == 0).all()


@pytest.mark.parametrize(("rule", "hyper"), SPARSE_CASES, ids=SPARSE_IDS)
@DTYPES
@pytest.mark.parametrize("row", [(), (1,), (3,)])
def test_short_rows_that_all_differ(
    rule: str, hyper: dict[str, Any], dtype: Any, row: tuple[int, ...]
) -> None:
    """They are updated as listed, others sorted: a row listed twice makes the difference."""
    n_rows, n = 12_000, 9_000
    rng = np.random.default_rng(17)
    name = kernel_of(rule, hyper)
    w, slots = state(name, (n_rows, *row), dtype, rng)
    listed = rng.permutation(n_rows - 1)[:n]
    values = np.asarray(rng.normal(size=(n, *row))).astype(dtype)
    w_sorted, slots_sorted = w.copy(), {key: slot.copy() for key, slot in slots.items()}
    twice = np.concatenate([[n_rows - 1, n_rows - 1], listed])
    more = np.concatenate([values[:2], values])
    with threads(2):
        plan = apply(rule, hyper, w, slots, Slices(values, listed))
        apply(rule, hyper, w_sorted, slots_sorted, Slices(more, twice))
    assert plan.rows_touched == n
    np.testing.assert_array_equal(w[:-1], w_sorted[:-1])
    for key, slot in slots.items():
        np.testing.assert_array_equal(slot[:-1], slots_sorted[key][:-1])
