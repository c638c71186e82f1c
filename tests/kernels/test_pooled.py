"""Pooled look-ups in one go: against NumPy, what is kept, and what is left to the caller."""

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels._pooled import pooled

N_ROWS, OFFSETS = 40, np.array([0, 3, 3, 10, 11, 400])


def arguments(dtype=np.float32, width=5, ids_dtype=np.int64):
    rng = np.random.default_rng(width)
    table = rng.normal(size=(N_ROWS, width)).astype(dtype)
    ids = rng.integers(0, N_ROWS, OFFSETS[-1]).astype(ids_dtype)
    weights = rng.normal(size=ids.size).astype(dtype)
    weights[:3] = 0, 1, -1  # their sum is 0
    return table, ids, weights


def factors(weights, combiner, dtype):
    """Return what the row of each id is multiplied by, bag by bag, and the factor of each bag."""
    each, bags = [], []
    for lo, hi in zip(OFFSETS[:-1], OFFSETS[1:], strict=True):
        if weights is None:
            root = {"mean": float, "sqrtn": np.sqrt, "sum": lambda n: 1.0}[combiner]
            bags.append(dtype(1.0 / root(max(hi - lo, 1))))
            each.append(np.ones(hi - lo, dtype))
            continue
        w = weights[lo:hi].astype(np.float64)
        divisor = 1.0
        if combiner != "sum":
            total = sum(w if combiner == "mean" else w * w)
            divisor = total if combiner == "mean" else np.sqrt(total)
        each.append((w / divisor if divisor != 0 else w * 0).astype(dtype))
        bags.append(dtype(1))
    return np.concatenate(each), np.array(bags)


@pytest.mark.parametrize("width", [1, 3, 16, 50])
@pytest.mark.parametrize("combiner", ["mean", "sqrtn", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_as_term_by_term(width, combiner, weighted, dtype):
    table, ids, weights = arguments(dtype, width)
    each, bags = factors(weights if weighted else None, combiner, dtype)
    expected = np.zeros((OFFSETS.size - 1, width), dtype)
    for b in range(OFFSETS.size - 1):
        for k in range(OFFSETS[b], OFFSETS[b + 1]):
            expected[b] += each[k] * table[ids[k]]
        expected[b] *= bags[b]
    for threads in (1, 2, 5):
        with fo.num_threads(threads):
            found = pooled(table, ids, OFFSETS, weights if weighted else None, combiner, True)
        assert found is not None
        np.testing.assert_array_equal(found[0], expected, strict=True)
        if weighted:
            np.testing.assert_array_equal(found[3], each, strict=True)
            assert found[4] is None
        else:
            assert found[3] is None
            assert (found[4] is None) == (combiner == "sum")


@pytest.mark.parametrize("ids_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("offsets_dtype", [np.int32, np.int64])
def test_what_is_kept(ids_dtype, offsets_dtype):
    table, ids, weights = arguments(ids_dtype=ids_dtype)
    offsets = OFFSETS.astype(offsets_dtype)
    given = (ids, offsets, weights)
    kept = pooled(table, *given, "sum", True)[1:4]
    for mine, theirs in zip(kept, given, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert not np.shares_memory(mine, theirs)
    assert kept[0].dtype == ids_dtype and kept[1].dtype == np.int64
    seen = pooled(table, *given, "sum", False)
    assert seen[1] is ids and seen[3] is weights


def test_many_tasks():
    """Each task keeps and divides its own bags, whose length differs widely."""
    rng = np.random.default_rng(0)
    counts = rng.geometric(0.02, 3000) - 1
    offsets = np.concatenate([[0], np.cumsum(counts)])
    table = rng.normal(size=(1000, 64)).astype(np.float32)
    ids = rng.integers(0, 1000, offsets[-1])
    weights = rng.uniform(0.5, 1, ids.size).astype(np.float32)
    with fo.num_threads(2):
        out, kept, _, each, _ = pooled(table, ids, offsets, weights, "mean", True)
    np.testing.assert_array_equal(kept, ids)
    bag = np.repeat(np.arange(3000), counts)
    divisors = np.bincount(bag, weights=weights, minlength=3000)
    np.testing.assert_array_equal(each, (weights / divisors[bag]).astype(np.float32))
    one = pooled(table, ids, offsets, weights, "mean", False)[0]
    np.testing.assert_array_equal(out, one)


@pytest.mark.parametrize("offsets", [[0], [0, 0, 0]])
def test_no_ids(offsets):
    table, _, _ = arguments()
    none = np.empty(0, np.int64)
    out, *_ = pooled(table, none, np.array(offsets), None, "mean", True)
    np.testing.assert_array_equal(out, np.zeros((len(offsets) - 1, 5), np.float32), strict=True)


def changed(array, position, value):
    array = array.copy()
    array[position] = value
    return array


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": "table"},
        {"table": np.zeros((), np.float32)},
        {"table": np.zeros((N_ROWS, 0), np.float32)},
        {"table": np.zeros((N_ROWS, 5), np.float16)},
        {"table": np.zeros((N_ROWS, 5), np.float32, order="F")},
        {"table": np.zeros((N_ROWS, 5), ">f4")},
        {"table": np.zeros((N_ROWS, 5), np.float32).view(np.matrix)},
        {"ids": [0] * 400},
        {"ids": np.zeros((20, 20), np.int64)},
        {"ids": np.zeros(400)},
        {"ids": np.zeros(400, np.uint64)},
        {"ids": np.zeros(800, np.int64)[::2]},
        {"ids": np.zeros(399, np.int64)},
        {"ids": changed(np.zeros(400, np.int64), 399, N_ROWS)},
        {"ids": changed(np.zeros(400, np.int32), 0, -1)},
        {"offsets": list(OFFSETS)},
        {"offsets": OFFSETS.astype(float)},
        {"offsets": np.empty(0, np.int64)},
        {"offsets": changed(OFFSETS, 0, 1)},
        {"offsets": changed(OFFSETS, 0, -1)},
        {"offsets": changed(OFFSETS, 1, 4)},
        {"offsets": changed(OFFSETS, 2, 2**62)},
        {"offsets": changed(OFFSETS, 5, 399)},
        {"weights": np.ones(400)},
        {"weights": np.ones(399, np.float32)},
        {"weights": np.ones((400, 1), np.float32)},
        {"weights": np.ones(800, np.float32)[::2]},
        {"combiner": "max"},
        {"combiner": None},
        {"combiner": ["sum"]},
    ],
)
def test_what_is_left_to_the_caller(wrong):
    table, ids, weights = arguments()
    given = {"table": table, "ids": ids, "offsets": OFFSETS, "weights": weights}
    assert pooled(**given, combiner="sum", keep=True) is not None
    assert pooled(**{**given, "combiner": "sum", **wrong}, keep=True) is None
