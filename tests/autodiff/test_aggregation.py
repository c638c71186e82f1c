"""Sums of gradient terms: kinds, orders, memory."""

import tracemalloc

import numpy as np
import pytest

from fastopt.autodiff import AggregationMethod, Tensor, custom_gradient, gradients
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable

ADD_N = AggregationMethod.ADD_N
TREE = AggregationMethod.EXPERIMENTAL_TREE
ACCUMULATE_N = AggregationMethod.EXPERIMENTAL_ACCUMULATE_N
METHODS = [ADD_N, TREE, ACCUMULATE_N]


def test_values():
    assert (ADD_N, TREE, ACCUMULATE_N) == (0, 1, 2)
    assert AggregationMethod.DEFAULT == ADD_N


def peak_of(function):
    """Return what `function` returns and how many bytes more than before it needed at once."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = function()
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def sum_of_products(x, n):
    return sum(np.sum(x * (i + 1.0)) for i in range(n))


@pytest.mark.parametrize("n", [8, 32])
def test_peak_memory_of_the_methods(n):
    """ADD_N keeps all terms; a running sum needs room for two, however many there are."""
    x = Variable(np.ones(100_000))
    loss = sum_of_products(x, n)
    peaks = {}
    for method in METHODS:
        (g,), peaks[method] = peak_of(lambda m=method: gradients(loss, x, aggregation_method=m))
        np.testing.assert_array_equal(g, np.full(100_000, n * (n + 1) / 2))
    size = x.nbytes
    assert n * size < peaks[ADD_N] < (n + 2) * size
    assert peaks[TREE] < 2.5 * size
    assert peaks[ACCUMULATE_N] < 2.5 * size


@pytest.mark.parametrize("method", METHODS)
def test_dense_and_sparse_terms_share_one_buffer(method):
    """horovod/horovod#554: memory grew with the number of terms of a table used in both ways."""
    table = Variable(np.ones((100_000, 16), np.float32))
    ids = np.arange(1000)
    loss = np.sum(table**2)
    for k in range(3):
        loss = loss + np.sum(table[ids + k])
    (g,), peak = peak_of(lambda: gradients(loss, table, aggregation_method=method))
    assert type(g) is np.ndarray
    expected = np.full(100_000, 2.0)
    expected[:1002] += np.array([1, 2] + [3] * 998 + [2, 1])
    np.testing.assert_array_equal(g, np.repeat(expected[:, None], 16, axis=1))
    assert peak < 1.2 * table.nbytes


def test_slices_of_something_computed_need_one_buffer():
    table = Variable(np.ones((100_000, 16), np.float32))
    h = table * 1.0
    loss = sum(np.sum(h[np.arange(100) * k]) for k in range(1, 6))
    _, peak = peak_of(lambda: gradients(loss, h))
    assert peak < 1.2 * table.nbytes


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_terms_of_every_shape_and_dtype(method, dtype, shape):
    x = Variable(np.ones(shape, dtype))
    y = x * 1.0
    loss = np.sum(x + y * 2 + np.exp(x - x) * x + x.T.T + x)
    (g,) = gradients(loss, x, aggregation_method=method)
    assert g.dtype == dtype
    np.testing.assert_array_equal(g, np.full(shape, 6.0))


@pytest.mark.parametrize("method", METHODS)
def test_terms_are_never_summed_into_what_others_see(method):
    """A term may be the gradient of another tensor as well, or an array of the user's."""
    mine = np.array([1.0, 2.0])

    @custom_gradient
    def f(x):
        return x * 1.0, lambda dy: mine

    x, y = Variable(np.zeros(2)), Variable(np.zeros(2))
    loss = np.sum(f(x) + (x + y) + f(x) + x * 3.0)
    by_x, by_y = gradients(loss, [x, y], aggregation_method=method)
    np.testing.assert_array_equal(by_x, 2 * mine + 4.0)
    np.testing.assert_array_equal(by_y, [1.0, 1.0])
    np.testing.assert_array_equal(mine, [1.0, 2.0])


@pytest.mark.parametrize("method", METHODS)
def test_users_slices_are_left_alone(method):
    mine = IndexedSlices(np.array([[1.0, 1.0], [2.0, 2.0]]), [1, 1], (3, 2))

    @custom_gradient
    def f(x):
        return x * 1.0, lambda dy: mine

    x = Variable(np.zeros((3, 2)))
    (g,) = gradients(f(x) + f(x), x, aggregation_method=method)
    assert isinstance(g, IndexedSlices)
    assert g.indices.tolist() == [1, 1, 1, 1]
    (g,) = gradients(f(x) + x, x, aggregation_method=method)
    np.testing.assert_array_equal(g, [[1.0, 1.0], [4.0, 4.0], [1.0, 1.0]])
    np.testing.assert_array_equal(mine.values, [[1.0, 1.0], [2.0, 2.0]])


def test_slices_out_of_range_are_refused_before_they_are_summed():
    @custom_gradient
    def f(x):
        return x * 1.0, lambda dy: IndexedSlices(np.ones((1, 2)), [7])

    x = Variable(np.zeros((3, 2)))
    with pytest.raises(IndexError, match="7"):
        gradients(f(x) + x, x)


def test_sums_go_from_left_to_right():
    """In float32 1e8 + 1 - 1e8 is 0 and 1e8 - 1e8 + 1 is 1: the latest operation comes first."""
    for method in METHODS:
        x = Tensor(np.zeros(4, np.float32))
        terms = [x * np.float32(c) for c in (-1e8, 1.0, 1e8)]
        loss = np.sum(terms[0]) + np.sum(terms[1]) + np.sum(terms[2])
        np.testing.assert_array_equal(gradients(loss, x, aggregation_method=method)[0], np.zeros(4))
        loss = np.sum(terms[1]) + np.sum(terms[0]) + np.sum(terms[2])
        np.testing.assert_array_equal(gradients(loss, x, aggregation_method=method)[0], np.zeros(4))
