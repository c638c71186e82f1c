"""Clipping: TensorFlow's numbers, sparse gradients, extreme numbers, recorded tensors, errors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastopt.autodiff import Tensor, gradients
from fastopt.clip import (
    clip_by_average_norm,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
)
from fastopt.indexed_slices import IndexedSlices
from fastopt.threads import num_threads
from fastopt.variable import Variable

GOLDEN = np.load(Path(__file__).parent / "golden" / "clipping.npz")
CASES: dict[str, dict[str, Any]] = json.loads(str(GOLDEN["meta"]))["cases"]
# A few roundings in the dtype that TensorFlow computes in.
RTOL = {"float16": 4e-3, "float32": 5e-7, "float64": 1e-15}
DTYPES = list(RTOL)

X = np.array([[-3.0, 0.0, 0.0], [4.0, 0.0, 0.0]])


def close(actual: Any, expected: Any, dtype: str) -> None:
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, rtol=RTOL[dtype], atol=0)


def slices_of(dtype: str) -> IndexedSlices:
    return IndexedSlices(GOLDEN[f"{dtype}/list/values"], GOLDEN[f"{dtype}/list/indices"], (5, 2))


# ---------------------------------------------------------------------- TensorFlow's numbers


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [c for c in CASES if c.startswith("clip_by_norm")])
def test_golden_by_norm(case: str, dtype: str) -> None:
    x = GOLDEN[f"{dtype}/x"]
    before = x.copy()
    close(clip_by_norm(x, **CASES[case]), GOLDEN[f"{dtype}/{case}"], dtype)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_golden_by_value(dtype: str) -> None:
    x = GOLDEN[f"{dtype}/x"]
    close(clip_by_value(x, -0.5, 1.0), GOLDEN[f"{dtype}/clip_by_value/mid"], dtype)
    close(clip_by_value(x, 1.0, -0.5), GOLDEN[f"{dtype}/clip_by_value/crossed"], dtype)
    zeros = GOLDEN[f"{dtype}/clip_by_norm/zeros"]
    close(clip_by_norm(zeros, 1.0), zeros, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", [c for c in CASES if c.startswith("clip_by_global_norm")])
def test_golden_by_global_norm(case: str, dtype: str) -> None:
    """Their slices have repeated rows, whose norm they take as stored."""
    entries = [GOLDEN[f"{dtype}/list/a"], None, slices_of(dtype)]
    (a, none, s), norm = clip_by_global_norm(entries, **CASES[case], merge_repeated=False)
    assert none is None and s.dense_shape == (5, 2)
    close(a, GOLDEN[f"{dtype}/{case}/a"], dtype)
    close(s.values, GOLDEN[f"{dtype}/{case}/values"], dtype)
    np.testing.assert_array_equal(s.indices, GOLDEN[f"{dtype}/list/indices"])
    assert norm == pytest.approx(float(GOLDEN[f"{dtype}/{case}/norm"]), rel=RTOL[dtype])
    np.testing.assert_array_equal(entries[2].values, GOLDEN[f"{dtype}/list/values"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_golden_infinite_global_norm(dtype: str) -> None:
    """tensorflow/tensorflow#21363, PR#21428: an explosion was hidden by zeros."""
    prefix = f"{dtype}/clip_by_global_norm/inf"
    (out0, out1), norm = clip_by_global_norm([GOLDEN[f"{prefix}/in0"], GOLDEN[f"{prefix}/in1"]], 1)
    np.testing.assert_array_equal(out0, GOLDEN[f"{prefix}/out0"])
    np.testing.assert_array_equal(out1, GOLDEN[f"{prefix}/out1"])
    assert norm == math.inf and out0.dtype == dtype


def test_by_value() -> None:
    x = np.array([-5.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    np.testing.assert_array_equal(clip_by_value(x, -4.4, 4.4), [-4.4, 2.0, 3.0, 4.0, 4.4, 4.4])
    row = np.arange(1.0, 7.0).reshape(2, 3)
    low, high = np.array([2.0, 2.0, 3.0]), np.array([[3.0], [5.0]])
    np.testing.assert_array_equal(clip_by_value(row, low, high), [[2, 2, 3], [4, 5, 5]])
    special = clip_by_value(np.array([math.nan, math.inf, -math.inf]), -1.0, 1.0)
    np.testing.assert_array_equal(special, [math.nan, 1.0, -1.0])
    for dtype in (np.int8, np.int32, np.uint64):
        ints = clip_by_value(np.arange(1, 7, dtype=dtype), 2, 4)
        assert ints.dtype == dtype
        np.testing.assert_array_equal(ints, [2, 2, 3, 4, 4, 4])
    wide = clip_by_value(np.array([-100, 100], np.int8), -1000, 50)
    np.testing.assert_array_equal(wide, np.array([-100, 50], np.int8))
    np.testing.assert_array_equal(clip_by_value(Tensor(2.0), 0.0, Tensor(1.5)), 1.5)


def test_by_value_of_slices() -> None:
    s = IndexedSlices(np.array([[2.0, -1.0], [5.0, 1.0], [2.0, -1.0]]), [2, 0, 2], (4, 2))
    clipped = clip_by_value(s, -1.5, 3.0)
    np.testing.assert_array_equal(
        clipped.to_dense(), [[3.0, 1.0], [0, 0], [3.0, -1.5], [0, 0]]
    )  # row 2 is [4, -2]
    np.testing.assert_array_equal(clipped.indices, [2, 0])
    stored = clip_by_value(s, -1.5, 3.0, merge_repeated=False)
    np.testing.assert_array_equal(stored.values, [[2, -1], [3, 1], [2, -1]])
    np.testing.assert_array_equal(stored.indices, [2, 0, 2])


def test_by_value_errors() -> None:
    with pytest.raises(ValueError, match=r"clip_value_max of shape \(2, 1\) does not broadcast"):
        clip_by_value(np.zeros(3), -1.0, np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"clip_value_min of shape \(4,\) does not broadcast"):
        clip_by_value(np.zeros(3), np.zeros(4), 1.0)
    with pytest.raises(TypeError, match="clip_value_min must be of dtype int64"):
        clip_by_value(np.arange(3), 0.5, 2)
    with pytest.raises(TypeError, match="clip_value_max"):
        clip_by_value(np.zeros(3), 0.0, "1")
    with pytest.raises(TypeError, match="t must be an array or IndexedSlices, got None"):
        clip_by_value(None, 0.0, 1.0)
    with pytest.raises(TypeError, match="t must hold real numbers"):
        clip_by_value(np.zeros(3, complex), 0.0, 1.0)


def test_by_norm() -> None:
    np.testing.assert_allclose(clip_by_norm(X, 4.0), X * 0.8, rtol=1e-15)
    assert clip_by_norm(X, 6.0) is X
    for limit in (0.0, -4.0):
        np.testing.assert_array_equal(clip_by_norm(X, limit), np.zeros_like(X))
        np.testing.assert_array_equal(clip_by_norm(np.zeros(3), limit), np.zeros(3))
    np.testing.assert_allclose(clip_by_norm(X, np.float32(4.0)), X * 0.8, rtol=1e-15)
    y = np.array([[-3.0, 0.0, 0.0], [4.0, 0.0, 3.0]])
    columns = [[-2.4, 0.0, 0.0], [3.2, 0.0, 3.0]]
    np.testing.assert_allclose(clip_by_norm(y, 4.0, axes=0), columns, rtol=1e-15)
    rows = [[-3.0, 0.0, 0.0], [3.2, 0.0, 2.4]]
    for axis in (1, -1, [1], (-1,)):
        np.testing.assert_allclose(clip_by_norm(y, 4.0, axes=axis), rows, rtol=1e-15)
    np.testing.assert_array_equal(clip_by_norm(np.zeros((2, 2)), 0.0, axes=1), np.zeros((2, 2)))
    assert clip_by_norm(y, 10.0, axes=1) is y
    assert clip_by_norm(np.zeros((0, 3), np.float32), 1.0).shape == (0, 3)
    assert clip_by_norm(np.zeros((0, 3)), 1.0, axes=1).shape == (0, 3)
    assert clip_by_norm(-3.0, 1.0) == -1.0


def test_by_norm_of_slices() -> None:
    """keras-team/keras#3859, #5945, #18985: TypeError for sparse gradients."""
    original = np.array([[3.0, 4.0]])
    s = IndexedSlices(original, [2], (2**40, 2))  # too large to be made dense
    clipped = clip_by_norm(s, 1.0)
    assert isinstance(clipped, IndexedSlices) and clipped.dense_shape == (2**40, 2)
    np.testing.assert_allclose(clipped.values, [[0.6, 0.8]], rtol=1e-15)
    np.testing.assert_array_equal(clipped.indices, [2])
    np.testing.assert_array_equal(original, [[3.0, 4.0]])
    repeated = IndexedSlices(np.array([[3.0, 0.0], [0.0, 4.0]]), [2, 2])
    np.testing.assert_allclose(clip_by_norm(repeated, 1.0).values, [[0.6, 0.8]], rtol=1e-15)
    np.testing.assert_allclose(
        clip_by_norm(repeated, 1.0, axes=1, merge_repeated=False).values, [[1, 0], [0, 1]]
    )
    assert len(clip_by_norm(IndexedSlices(np.zeros((0, 2)), []), 1.0)) == 0


def test_average_norm() -> None:
    np.testing.assert_allclose(clip_by_average_norm([3.0, 4.0], 1.0), [1.2, 1.6], rtol=1e-15)
    np.testing.assert_allclose(clip_by_average_norm(X, 0.8), X * 0.96, rtol=1e-15)
    assert clip_by_average_norm(X, 0.9) is X
    assert clip_by_average_norm(X, -1.0) is X
    np.testing.assert_array_equal(clip_by_average_norm(np.zeros(3), 0.9), np.zeros(3))
    np.testing.assert_array_equal(clip_by_average_norm(X, 0.0), np.zeros_like(X))
    assert clip_by_average_norm(np.zeros((0, 2)), 1.0).shape == (0, 2)
    repeated = IndexedSlices(np.array([[3.0, 0.0], [0.0, 4.0]]), [2, 2])
    np.testing.assert_allclose(
        clip_by_average_norm(repeated, 1.0).values, [[1.2, 1.6]], rtol=1e-15
    )  # 2 elements
    assert clip_by_average_norm(repeated, 2.0, merge_repeated=False) is repeated  # 4 elements


def test_global_norm() -> None:
    x0, x1 = np.array([[-2.0, 0.0, 0.0], [4.0, 0.0, 0.0]]), np.array([1.0, -2.0])
    for entries in ([x0, x1], (x0, None, x1), [None, x1, x0]):
        assert global_norm(entries) == 5.0
    assert global_norm([]) == global_norm([None]) == 0.0
    (a, none, b), norm = clip_by_global_norm([x0, None, x1], 4.0)
    assert none is None and norm == 5.0
    np.testing.assert_allclose(a, x0 * 0.8, rtol=1e-15)
    np.testing.assert_allclose(b, x1 * 0.8, rtol=1e-15)
    for limit in (6.0, 5.0, -1.0):
        (a, b), norm = clip_by_global_norm([x0, x1], limit)
        assert a is x0 and b is x1 and norm == 5.0
    for limit in (0.0, 1.0):
        (a,), norm = clip_by_global_norm([np.zeros(3)], limit)
        np.testing.assert_array_equal(a, np.zeros(3))
        assert norm == 0.0
    (a, b), norm = clip_by_global_norm([x0, x1], 0.0)
    assert not a.any() and not b.any()
    (a, b), norm = clip_by_global_norm([x0, x1], 4.0, use_norm=np.float32(8.0))
    np.testing.assert_array_equal(a, x0 / 2)
    assert norm == 8.0
    assert clip_by_global_norm([], 1.0) == ([], 0.0)


def test_global_norm_merges_repeated_rows() -> None:
    s = IndexedSlices(np.array([[1.0], [2.0], [2.0]]), [1, 0, 0])
    assert global_norm([s]) == pytest.approx(math.sqrt(17.0), rel=1e-15)
    assert global_norm([s], merge_repeated=False) == 3.0
    (clipped,), _ = clip_by_global_norm([s], math.sqrt(17.0) / 2)
    np.testing.assert_allclose(clipped.values, [[0.5], [2.0]], rtol=1e-15)
    np.testing.assert_array_equal(clipped.indices, [1, 0])
    # rows that cancel out have no norm, and are not blown up
    cancelled = IndexedSlices(np.array([[5.0], [-5.0]]), [3, 3])
    assert global_norm([cancelled]) == 0.0


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("limit", [0.7, 1e-42])
def test_merged_rows_are_scaled_as_if_they_were_merged_first(dtype: str, limit: float) -> None:
    rng = np.random.default_rng(2)
    s = IndexedSlices(rng.normal(size=(300, 5)).astype(dtype), rng.integers(0, 90, 300), (90, 5))
    merged = s.coalesce()
    plain_norm = global_norm([merged])
    (clipped, again), norm = clip_by_global_norm([s, s], limit)
    assert norm == pytest.approx(plain_norm * math.sqrt(2.0), rel=1e-14)
    assert clipped.dtype == dtype
    np.testing.assert_array_equal(clipped.indices, merged.indices)
    expected = [np.asarray(row, dtype) for row in (merged.values.astype(float) * (limit / norm))]
    eps = 2 * np.finfo(dtype).eps
    tiny = float(np.finfo(dtype).smallest_subnormal)
    np.testing.assert_allclose(clipped.values, expected, rtol=eps, atol=tiny)
    np.testing.assert_array_equal(again.values, clipped.values)
    assert clip_by_norm(s, 1e4) is s  # repeated rows stay where nothing has to be scaled


def test_global_norm_merges_rows_beside_a_variable() -> None:
    repeated = IndexedSlices(np.array([[3.0], [1.0]]), [1, 1], (3, 1))
    beside = Variable(np.array([3.0]))
    assert np.asarray(global_norm([repeated, beside])) == 5.0
    apart = global_norm([repeated, beside], merge_repeated=False)
    assert float(apart) == pytest.approx(math.sqrt(3**2 + 1 + 3**2))


def test_global_norm_errors() -> None:
    for bad in ("text", (x for x in [X]), X, 3, None, {1: X}):
        with pytest.raises(TypeError, match="t_list must be a sequence of gradients"):
            global_norm(bad)
        with pytest.raises(TypeError, match="t_list must be a sequence of gradients"):
            clip_by_global_norm(bad, 1.0)
    with pytest.raises(TypeError, match=r"t_list\[1\]"):
        global_norm([X, "text"])
    pairs = [(X, Variable(X))]  # NumPy would make one array of both
    with pytest.raises(TypeError, match=r"^t_list\[0\] is a \(gradient, variable\) pair; pass the"):
        clip_by_global_norm(pairs, 1.0)
    with pytest.raises(IndexError, match="index -1 at position 1"):
        global_norm([IndexedSlices(np.ones((2, 1)), [0, -1])])
    for bad_norm in ("1", [1.0, 2.0], None):
        with pytest.raises((TypeError, ValueError), match="clip_norm must be a finite real number"):
            clip_by_global_norm([X], bad_norm)
    with pytest.raises(ValueError, match="clip_norm must be a finite real number"):
        clip_by_norm(X, math.nan)
    for bad_norm in ("1", [1.0, 2.0]):
        with pytest.raises(TypeError, match="use_norm must be a number"):
            clip_by_global_norm([X], 1.0, use_norm=bad_norm)
    with pytest.raises(ValueError, match="axes"):
        clip_by_norm(X, 1.0, axes=2)
    with pytest.raises(ValueError, match="repeated axis"):
        clip_by_norm(X, 1.0, axes=(1, -1))
    with pytest.raises(TypeError, match="only floating numbers can be scaled"):
        clip_by_norm(Tensor(np.arange(3)), 1.0)


# ---------------------------------------------------------------------- extreme numbers


def test_squares_beyond_float32() -> None:
    """jax-ml/jax PR#2426, HomebrewML/HeavyBall#72: squares overflow float32."""
    (clipped,), norm = clip_by_global_norm([np.full(4, 1e20, np.float32)], 1e20)
    assert norm == pytest.approx(2e20, rel=1e-6)
    np.testing.assert_allclose(clipped, np.full(4, 5e19), rtol=2e-7)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-155, 1.0, 1e153, 1e200, 3e307])
def test_squares_beyond_float64(scale: float) -> None:
    x = np.array([3.0, 0.0, 4.0, 0.0]) * scale
    eps = 1e-15 if scale > 1e-300 else 1e-3  # few bits are left of subnormal numbers
    assert global_norm([x[:2], x[2:]]) == pytest.approx(5 * scale, rel=eps)
    np.testing.assert_allclose(clip_by_norm(x, scale), x / 5, rtol=eps)
    np.testing.assert_allclose(clip_by_norm(x[None], scale, axes=1), x[None] / 5, rtol=eps)
    scalar = np.array(x[0])  # the gradient of a bias
    assert global_norm([scalar, x[2:], None]) == pytest.approx(5 * scale, rel=eps)
    (clipped, _), _ = clip_by_global_norm([scalar, x[2:]], scale)
    assert clipped.shape == () and clipped == pytest.approx(0.6 * scale, rel=2 * eps)
    assert clip_by_norm(scalar, scale) == pytest.approx(scale, rel=eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_for_every_number_of_threads(dtype: Any) -> None:
    """cython/cython#3618: a parallel loop ran once a thread, sums were 8 times too large."""
    rng = np.random.default_rng(5)
    dense = rng.normal(size=300_000).astype(dtype)
    rows = rng.zipf(1.3, 20_000).clip(max=5000) - 1
    s = IndexedSlices(rng.normal(size=(20_000, 16)).astype(dtype), rows, (5000, 16))
    norms = set()
    for n in (1, 2, 3, 8):
        with num_threads(n):
            norms.add(global_norm([dense, IndexedSlices(s.values, s.indices, s.dense_shape)]))
    expected = math.hypot(*(np.linalg.norm(x.astype(float)) for x in (dense, s.to_dense())))
    assert len(norms) == 1
    assert norms.pop() == pytest.approx(expected, rel=1e-12 if dtype == np.float64 else 1e-6)


def test_factor_below_float32() -> None:
    """A factor that float32 cannot hold must not lose bits of the product."""
    x = np.full(4, 1e30, np.float32)
    np.testing.assert_allclose(clip_by_norm(x, 1e-12), np.full(4, 5e-13), rtol=2e-7)
    half = np.full(4, 3e4, np.float16)
    np.testing.assert_allclose(clip_by_norm(half, 1e-3), np.full(4, 5e-4), rtol=1e-3)


def test_norms_that_are_no_numbers() -> None:
    s = IndexedSlices(np.array([[1.0]], np.float32), [3])
    for bad, shown in ((math.inf, math.inf), (-math.inf, math.inf), (math.nan, math.nan)):
        (a, none, b), norm = clip_by_global_norm([np.array([bad, 1.0]), None, s], 1.0)
        assert none is None
        np.testing.assert_array_equal(norm, shown)
        np.testing.assert_array_equal(a, [math.nan, math.nan])
        np.testing.assert_array_equal(b.values, [[math.nan]])
        assert b.dtype == np.float32
    (a,), norm = clip_by_global_norm([np.array([math.inf, math.nan])], 1.0)
    assert math.isnan(norm)
    (a,), norm = clip_by_global_norm([np.ones(2)], 1.0, use_norm=math.inf)
    assert norm == math.inf and np.isnan(a).all()
    # one tensor's norm: as TensorFlow's elementwise formula has it
    np.testing.assert_array_equal(clip_by_norm(np.array([math.inf, 1.0]), 1.0), [math.nan, 0.0])
    np.testing.assert_array_equal(clip_by_norm(np.array([math.nan, 1.0]), 1.0), [math.nan] * 2)
    mixed = np.array([[math.inf, 1.0], [math.nan, 1.0], [3.0, 4.0], [0.3, 0.4]])
    np.testing.assert_allclose(
        clip_by_norm(mixed, 1.0, axes=1),
        [[math.nan, 0.0], [math.nan, math.nan], [0.6, 0.8], [0.3, 0.4]],
    )


# ---------------------------------------------------------------------- properties

floats = st.floats(-1e3, 1e3, allow_nan=False, width=32)


@st.composite
def slices(draw: Any) -> IndexedSlices:
    n = draw(st.integers(0, 8))
    indices = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    values = draw(st.lists(floats, min_size=3 * n, max_size=3 * n))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    kind = draw(st.sampled_from([np.int32, np.int64]))
    return IndexedSlices(np.array(values, dtype).reshape(n, 3), np.array(indices, kind), (6, 3))


@given(s=slices(), limit=st.floats(0, 100), low=st.floats(-10, 0), high=st.floats(0, 10))
def test_slices_are_clipped_as_what_they_stand_for(
    s: IndexedSlices, limit: float, low: float, high: float
) -> None:
    dense = s.to_dense()
    eps = 4 * np.finfo(s.dtype).eps
    np.testing.assert_array_equal(
        clip_by_value(s, low, high).to_dense(), clip_by_value(dense, low, high)
    )
    for axes in (None, 0, 1):
        np.testing.assert_allclose(
            clip_by_norm(s, limit, axes).to_dense(), clip_by_norm(dense, limit, axes), rtol=eps
        )
    (a, b), norm = clip_by_global_norm([s, dense], limit)
    assert norm == pytest.approx(math.sqrt(2) * np.linalg.norm(dense.astype(float)), rel=1e-14)
    np.testing.assert_allclose(a.to_dense(), b, rtol=eps)
    assert global_norm([a, b]) <= limit * (1 + eps) + 1e-30


@given(s=slices(), limit=st.floats(0, 100))
def test_recorded_gives_the_same_numbers(s: IndexedSlices, limit: float) -> None:
    x = s.values
    for axes in (None, 0, 1):
        np.testing.assert_array_equal(
            clip_by_norm(Tensor(x), limit, axes), clip_by_norm(x, limit, axes)
        )
    np.testing.assert_array_equal(
        clip_by_average_norm(Tensor(x), limit / 10), clip_by_average_norm(x, limit / 10)
    )
    recorded, norm = clip_by_global_norm([Tensor(x), None, s, x], limit, merge_repeated=False)
    plain, plain_norm = clip_by_global_norm([x, None, s, x], limit, merge_repeated=False)
    assert float(norm) == plain_norm
    for a, b in zip(recorded, plain, strict=True):
        if isinstance(b, IndexedSlices):
            np.testing.assert_array_equal(a.values, b.values)
        elif b is not None:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------------- derivatives


def numeric(function: Any, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Central differences of the weighted sum of ``function``."""
    result = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-6
        result[at] = np.sum(weights * (function(x + step) - function(x - step))) / 2e-6
    return result


@pytest.mark.parametrize("limit", [0.5, 2.0, 100.0])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, limit: clip_by_norm(x, limit),
        lambda x, limit: clip_by_norm(x, limit, axes=0),
        lambda x, limit: clip_by_norm(x, limit, axes=1),
        lambda x, limit: clip_by_average_norm(x, limit / 4),
        lambda x, limit: clip_by_value(x, -limit / 2, limit / 3),
        lambda x, limit: clip_by_global_norm([x, np.ones(3)], limit)[0][0],
        lambda x, limit: clip_by_global_norm([np.ones((2, 3)), x], limit)[0][1],
        lambda x, limit: global_norm([x, np.ones(3)]),
        lambda x, limit: clip_by_global_norm([x], limit, use_norm=global_norm([x, x]))[0][0],
    ],
)
def test_derivatives(function: Any, limit: float) -> None:
    rng = np.random.default_rng(3)
    x, weights = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    t = Tensor(x)
    y = function(t, limit)
    (got,) = gradients(y, t, grad_ys=weights if y.shape else np.sum(weights))
    expected = numeric(lambda v: function(v, limit), x, weights)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)


def test_derivative_at_zero() -> None:
    t = Tensor(np.zeros(3, np.float32))
    (got,) = gradients(clip_by_norm(t, 1.0), t)
    np.testing.assert_array_equal(got, np.ones(3))
    assert got.dtype == np.float32
    (got,) = gradients(global_norm([t]), t)
    np.testing.assert_array_equal(got, np.zeros(3))


class Elsewhere:
    """An array on another device: it cannot be read."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("can't convert device type tensor to numpy")


@pytest.mark.parametrize("axes", ["01", 1.5, [0.0], [2**70], object(), np.ma.masked])
def test_what_is_no_axis_is_named(axes: Any) -> None:
    with pytest.raises(TypeError, match="^axes must be an axis, a sequence of axes or None, got "):
        clip_by_norm(np.ones((2, 2)), 1.0, axes=axes)


@pytest.mark.parametrize("bad", [np.ma.masked, Elsewhere()])
def test_limits_that_cannot_be_read_are_named(bad: Any) -> None:
    with pytest.raises(TypeError, match="^clip_value_min "):
        clip_by_value(np.ones(2), bad, 1.0)
    with pytest.raises(TypeError, match="^clip_value_max "):
        clip_by_value(np.ones(2), 0.0, bad)
    with pytest.raises(TypeError, match="^clip_by_global_norm: use_norm "):
        clip_by_global_norm([np.ones(2)], 1.0, use_norm=bad)


def test_a_norm_that_is_given_leaves_rows_as_they_are_stored() -> None:
    slices = IndexedSlices(np.ones((2, 1)), [0, 0])
    (clipped,), norm = clip_by_global_norm([slices], 1.0, use_norm=4.0)
    assert norm == 4.0
    np.testing.assert_array_equal(clipped.indices, [0, 0])
    np.testing.assert_array_equal(clipped.values, [[0.25], [0.25]])


@pytest.mark.parametrize("limits", [(math.nan, 1.0), (0.0, math.nan)])
def test_a_limit_that_is_no_number_makes_none(limits: tuple[float, float]) -> None:
    assert np.isnan(clip_by_value(np.ones(3), *limits)).all()
