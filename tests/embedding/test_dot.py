"""`embedding_dot`: inner products of rows, and what flows back."""

import numpy as np
import pytest

import fastopt as fo
from fastopt.autodiff import Tensor, eager_mode
from fastopt.embedding import dot
from tests.autodiff.check import check


def normal(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def by_lookups(a, ids, b, other_ids):
    rows, others = np.take(a, ids, axis=0), np.take(b, other_ids, axis=0)
    extra = others.ndim - rows.ndim
    rows = rows.reshape(*np.shape(ids), *(1,) * extra, *rows.shape[np.ndim(ids) :])
    axes = tuple(range(np.ndim(other_ids), others.ndim))
    return np.sum(rows * others, axis=axes)


SHAPES = [
    ((), ()),
    ((5,), (5,)),
    ((5,), (5, 3)),
    ((2, 3), (2, 3)),
    ((2, 3), (2, 3, 4, 2)),
    ((), (4,)),
]


@pytest.mark.parametrize(("shape", "other_shape"), SHAPES)
def test_values_and_derivatives(shape, other_shape):
    rng = np.random.default_rng(3)
    ids, other_ids = rng.integers(0, 6, shape), rng.integers(0, 7, other_shape)
    a, b = normal(6, 5, seed=1), normal(7, 5, seed=2)
    expected = by_lookups(a, ids, b, other_ids)
    np.testing.assert_allclose(fo.embedding_dot(a, ids, b, other_ids), expected, rtol=1e-13)
    check(lambda a, b: fo.embedding_dot(a, ids, b, other_ids), a, b)
    check(lambda a, b: fo.embedding_dot(a * 2.0, ids, b, other_ids) ** 2, a, b)


@pytest.mark.parametrize("row_shape", [(), (2, 3)])
def test_rows_of_other_shapes(row_shape):
    a, b = normal(6, *row_shape, seed=1), normal(7, *row_shape, seed=2)
    ids, other_ids = [0, 5, 5], [[1, 2], [6, 6], [0, 1]]
    expected = by_lookups(a, ids, b, other_ids)
    np.testing.assert_allclose(fo.embedding_dot(a, ids, b, other_ids), expected, rtol=1e-13)
    check(lambda a, b: fo.embedding_dot(a, ids, b, other_ids), a, b)


def test_the_gradient_of_a_variable_is_slices():
    a = fo.Variable(normal(6, 4, seed=1), name="a")
    b = fo.Variable(normal(7, 4, seed=2), name="b")
    ids, other_ids = [2, 2], [[3, 1], [1, 5]]
    up = np.array([[1.0, 2.0], [4.0, 8.0]])
    to_a, to_b = fo.gradients(fo.embedding_dot(a, ids, b, other_ids), [a, b], grad_ys=[up])
    assert to_a.indices.tolist() == [2, 2]
    assert to_a.dense_shape == (6, 4)
    np.testing.assert_allclose(to_a.values, [b[3] + 2 * b[1], 4 * b[1] + 8 * b[5]], rtol=1e-13)
    assert to_b.indices.tolist() == [3, 1, 5]
    np.testing.assert_allclose(to_b.values, [a[2], 6 * a[2], 8 * a[2]], rtol=1e-13)


def test_one_table_twice():
    ids, other_ids = [0, 1, 2], [[1, 2], [1, 1], [0, 3]]
    check(lambda a: fo.embedding_dot(a, ids, a, other_ids), normal(4, 3))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtypes_stay(dtype):
    a, b = fo.Variable(normal(6, 4, dtype=dtype)), fo.Variable(normal(7, 4, seed=1, dtype=dtype))
    out = fo.embedding_dot(a, [1, 2], b, [[3, 4], [0, 0]])
    assert out.dtype == dtype
    exact = by_lookups(a.numpy().astype(float), [1, 2], b.numpy().astype(float), [[3, 4], [0, 0]])
    np.testing.assert_allclose(out.numpy(), exact, atol=8 * np.finfo(dtype).eps)
    for g in fo.gradients(out, [a, b]):
        assert isinstance(g, fo.IndexedSlices)
        assert g.dtype == dtype


def test_tables_in_parts_and_of_two_dtypes():
    a, b = normal(6, 4), normal(8, 4, seed=1, dtype=np.float32)
    ids, other_ids = [5, 0], [[7, 2], [3, 3]]
    whole = fo.embedding_dot(a, ids, b, other_ids)
    in_parts = fo.embedding_dot([a[::2], a[1::2]], ids, b, other_ids)
    np.testing.assert_allclose(in_parts, whole, rtol=1e-13)
    assert whole.dtype == np.float64


def test_nothing_is_recorded_in_eager_mode():
    a = fo.Variable(normal(6, 4))
    with eager_mode():
        assert type(fo.embedding_dot(a, [1], a, [[2, 3]])) is np.ndarray
    assert type(fo.embedding_dot(a, [1], a, [[2, 3]])) is Tensor


def test_no_ids():
    a = fo.Variable(normal(6, 4))
    none = np.empty((0, 3), np.int64)
    out = fo.embedding_dot(a, none[:, 0], a, none)
    assert out.shape == (0, 3)
    (g,) = fo.gradients(out, [a])
    assert g.values.shape == (0, 4)
    out = fo.embedding_dot(a, [1, 2], a, np.empty((2, 0), np.int64))
    np.testing.assert_array_equal(fo.gradients(out, [a])[0].to_dense(), np.zeros((6, 4)))


def test_rows_that_a_rule_has_put_off_are_brought_up_to_date():
    """Adam moves a row in every step; what untouched rows have missed is made up for when read."""
    start = normal(6, 4, seed=1)
    results = []
    for read in (lambda t: fo.embedding_dot(t, [4, 5], t, [[0, 1], [4, 4]]), lambda t: t):
        table = fo.Variable(start)
        adam = fo.AdamOptimizer(0.1)
        for row in (4, 0, 1, 2):
            adam.apply_gradients([(fo.IndexedSlices(np.ones((1, 4)), [row]), table)])
        with eager_mode():
            read(table)
            value = fo.embedding_dot(table, [4, 5], table, [[0, 1], [4, 4]])
        results.append(np.array(value))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)


@pytest.mark.parametrize("gate", [0, 1, 2])
def test_updates_wait_until_the_tables_have_been_read(gate):
    start = normal(6, 4, seed=1), normal(7, 4, seed=2)
    a, b = map(fo.Variable, start)
    ids, other_ids = [1, 2, 1], [[0, 1], [2, 3], [4, 4]]
    fo.GradientDescentOptimizer(0.5).minimize(
        lambda: np.sum(fo.embedding_dot(a, ids, b, other_ids) ** 2), gate_gradients=gate
    )
    c, d = map(Tensor, start)
    by_hand = fo.gradients(np.sum(fo.embedding_dot(c, ids, d, other_ids) ** 2), [c, d])
    for variable, first, g in zip((a, b), start, by_hand, strict=True):
        np.testing.assert_allclose(variable.numpy(), first - 0.5 * g.to_dense(), rtol=1e-12)


def test_the_caller_may_reuse_its_ids():
    a = fo.Variable(normal(6, 4))
    ids, other_ids = np.array([1, 2]), np.array([[3, 4], [5, 5]])
    out = fo.embedding_dot(a, ids, a, other_ids)
    expected = fo.gradients(out, [a])[0].to_dense()
    ids[:], other_ids[:] = 0, 0
    np.testing.assert_array_equal(fo.gradients(out, [a])[0].to_dense(), expected)


@pytest.mark.parametrize(
    ("ids", "other_ids", "error", "message"),
    [
        ([6], [0], IndexError, "ids of 'embedding_dot': id 6 at position 0 .* 'table' of 6 rows"),
        ([0], [[0, -1]], IndexError, "other_ids .*: id -1 at position .0, 1. .* 'other' of 7 rows"),
        ([0, 1], [0], ValueError, r"other_ids must have the shape of ids.*\(1,\).*\(2,\)"),
        ([[0, 1]], [0, 1], ValueError, "other_ids must have the shape of ids"),
        ([0.5], [0], TypeError, "ids of 'embedding_dot'"),
        ([0], ["x"], TypeError, "other_ids of 'embedding_dot'"),
    ],
)
def test_bad_ids(ids, other_ids, error, message):
    with fo.Graph().as_default():
        a = fo.Variable(normal(6, 4), name="table")
        b = fo.Variable(normal(7, 4), name="other")
    with pytest.raises(error, match=message):
        fo.embedding_dot(a, ids, b, other_ids)


def test_bad_tables():
    with fo.Graph().as_default():
        a = fo.Variable(normal(6, 4), name="table")
        b = fo.Variable(normal(7, 5), name="other")
    with pytest.raises(ValueError, match=r"'other' .* of table 'table': \(5,\) and \(4,\)"):
        fo.embedding_dot(a, [0], b, [0])


@pytest.mark.parametrize("per_id", [1, 6])
def test_gradients_without_a_map_of_rows_have_the_same_bits(monkeypatch, per_id):
    """Where another thread has the map, or the table too many rows, look-ups are sorted."""
    rng = np.random.default_rng(3)
    a, b = (fo.Variable(rng.normal(size=(50, 20)).astype(np.float32)) for _ in range(2))
    ids, other_ids = rng.integers(0, 50, 300), rng.integers(0, 50, (300, per_id))
    weights = rng.normal(size=other_ids.shape).astype(np.float32)
    ways = [fo.gradients(fo.embedding_dot(a, ids, b, other_ids), [a, b], weights)]
    for kernel in ("pair_gradients", "sum_by_row"):
        monkeypatch.setattr(dot, kernel, lambda *_: None)
        ways.append(fo.gradients(fo.embedding_dot(a, ids, b, other_ids), [a, b], weights))
    for way in ways[1:]:
        for one, other in zip(ways[0], way, strict=True):
            np.testing.assert_array_equal(one.indices, other.indices)
            np.testing.assert_array_equal(one.values, other.values)
