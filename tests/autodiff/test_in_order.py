"""`backward_in_order`: when a gradient is handed out, and what may be changed then."""

import tracemalloc

import numpy as np
import pytest

from fastopt.autodiff import (
    Recording,
    Tensor,
    backward,
    backward_in_order,
    custom_gradient,
    gradients,
)
from fastopt.variable import Variable

from .check import dense


def layers(n, width, dtype=np.float64):
    rng = np.random.default_rng(n)
    return [
        Variable(rng.normal(size=(width, width)).astype(dtype) / 3, name=f"w{i}") for i in range(n)
    ]


def network(weights, rows=4):
    h = np.linspace(-1, 1, rows * weights[0].shape[0]).reshape(rows, -1).astype(weights[0].dtype)
    for w in weights:
        h = np.tanh(h @ w)
    return np.mean(h**2)


def test_same_gradients_as_all_at_once():
    weights = layers(5, 6)
    loss = network(weights) + np.sum(weights[2] ** 2) + np.sum(weights[4][[1, 1]])
    expected = backward([loss], weights)
    found = dict(backward_in_order([loss], weights))
    assert sorted(found) == list(range(5))
    for position, g in found.items():
        np.testing.assert_array_equal(dense(g), dense(expected[position]))


def test_last_layers_come_first():
    weights = layers(5, 6)
    assert [position for position, _ in backward_in_order([network(weights)], weights)] == [
        4,
        3,
        2,
        1,
        0,
    ]


def test_connected_is_known_before():
    a, b, c = Variable(1.0), Variable(2.0), Variable(np.int64(3))
    steps = backward_in_order([a * 2.0 + c], [b, a, c, a])
    assert steps.connected == [False, True, False, True]
    assert dict(steps) == {1: 2.0, 3: 2.0}


def test_each_may_be_changed_when_it_is_handed_out():
    """Updating every variable at once gives what updating them all at the end gives."""
    for build in (
        network,
        lambda ws: network([*ws, *ws]),
        lambda ws: np.sum(ws[0] @ ws[1] @ ws[2] @ ws[0].T),
        lambda ws: np.sum(ws[0].T @ np.tanh(ws[1]) * ws[2][0]) + np.sum(ws[1] * ws[0]),
        lambda ws: np.sum(np.exp(ws[2]) * ws[0].reshape(-1)[:6] + ws[1] * ws[1].T),
    ):
        weights = layers(3, 6)
        with Recording():
            loss = build(weights)
        expected = [
            np.asarray(w) - 0.5 * g for w, g in zip(weights, backward([loss], weights), strict=True)
        ]
        for position, g in backward_in_order([loss], weights):
            weights[position].assign_sub(0.5 * g)
        for w, e in zip(weights, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(w), e)


def test_a_variable_that_is_read_later_waits():
    """The gradient of b is complete at once, but a later step reads the value of b."""
    a, b, x = Variable([2.0, 3.0]), Variable([5.0, 7.0]), Variable([1.0, 1.0])
    early = x * b
    loss = np.sum(np.sin(early) * a + b)
    order = [position for position, _ in backward_in_order([loss], [b, a, x])]
    assert order.index(1) < order.index(0)
    assert set(order) == {0, 1, 2}


def test_storage_that_overlaps_waits():
    """Two variables on one array: one may not change while a step reads it by the other."""
    memory = np.array([1.0, 2.0, 3.0, 4.0])
    low, high = Variable(memory[:3], copy=False), Variable(memory[2:], copy=False)
    x = Variable(np.ones(2))
    with Recording():
        loss = np.sum(np.tanh(x * high)) + np.sum(low)
    expected = backward([loss], [low, high, x])
    for position, g in backward_in_order([loss], [low, high, x]):
        np.testing.assert_allclose(g, expected[position])
        if position == 0:
            memory[:3] = np.nan


def test_views_in_the_graph_are_reads():
    w = Variable(np.arange(6.0).reshape(2, 3))
    x = Variable(np.ones(3))
    view = w.T[1:]
    with Recording():
        loss = np.sum(np.tanh(x[1:, None] * view)) + np.sum(w)
    expected = backward([loss], [x])[0]
    w2 = Variable(np.arange(6.0).reshape(2, 3))
    with Recording():
        loss = np.sum(np.tanh(x[1:, None] * w2.T[1:])) + np.sum(w2)
    for position, g in backward_in_order([loss], [w2, x]):
        if position == 0:
            w2.assign(np.full((2, 3), np.nan))
        else:
            np.testing.assert_array_equal(g, expected)


def test_custom_gradients_may_read_anything():
    w, x = Variable(np.array([2.0, 3.0])), Variable(np.array([1.0, 1.0]))

    @custom_gradient
    def hidden(x):
        # The gradient function reads w behind the graph's back.
        return x * 1.0, lambda dy: dy * np.asarray(w)

    with Recording():
        loss = np.sum(hidden(x)) + np.sum(w)
    found = {}
    for position, g in backward_in_order([loss], [w, x]):
        found[position] = np.array(g)
        if position == 0:
            w.assign([np.nan, np.nan])
    np.testing.assert_array_equal(found[1], [2.0, 3.0])


def test_gradients_that_are_views_of_a_variable():
    w, x = Variable(np.array([2.0, 3.0])), Variable(np.array([1.0, 1.0]))

    @custom_gradient
    def lends_its_value(x):
        return x * 1.0, lambda dy: w._read()

    with Recording():
        loss = np.sum(lends_its_value(np.exp(x) * 1.0)) + np.sum(w)
    expected = backward([loss], [x])[0]
    found = {}
    for position, g in backward_in_order([loss], [w, x]):
        found[position] = np.array(g)
        if position == 0:
            w.assign([np.nan, np.nan])
    np.testing.assert_array_equal(found[1], expected)


def test_slices_that_are_views_of_a_variable():
    from fastopt.indexed_slices import IndexedSlices

    w, table = Variable(np.ones((1, 2))), Variable(np.zeros((3, 2)))

    @custom_gradient
    def lends_its_value(table):
        return table * 1.0, lambda dy: IndexedSlices(w._read(), [1])

    with Recording():
        h = lends_its_value(table)
        loss = np.sum(h) + np.sum(w)
    for position, g in backward_in_order([loss], [w, table]):
        if position == 0:
            w.assign(np.full((1, 2), np.nan))
        else:
            np.testing.assert_array_equal(g.to_dense(), [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])


def test_options_are_looked_into():
    from fastopt.autodiff import defvjp, primitive

    @primitive
    def weighted(x, options=None):
        return x * options["weights"]

    defvjp(weighted, lambda ans, x, options=None: lambda g: g * options["weights"])
    w, x = Variable(np.array([2.0, 3.0])), Variable(np.ones(2))
    with Recording():
        loss = np.sum(weighted(np.exp(x), options={"weights": w._read()}) + w)
    expected = backward([loss], [x])[0]
    # The gradient of w is complete first, but the derivative of `weighted` reads its storage.
    for position, g in backward_in_order([loss], [w, x]):
        if position == 0:
            w.assign([np.nan, np.nan])
        else:
            np.testing.assert_array_equal(g, expected)


def test_intermediate_tensors_are_handed_out_too():
    x = Variable([1.0, 2.0])
    y = x * 3
    found = dict(backward_in_order([np.sum(y * y)], [y, x, y]))
    np.testing.assert_array_equal(found[0], [6.0, 12.0])
    np.testing.assert_array_equal(found[1], [18.0, 36.0])
    np.testing.assert_array_equal(found[2], [6.0, 12.0])


def test_errors_come_before_anything_is_computed():
    x = Variable(1.0, name="w")
    y = x * x
    x.assign(2.0)
    with pytest.raises(RuntimeError, match="changed after"):
        backward_in_order([y], [x])
    with pytest.raises(ValueError, match="grad_ys"):
        backward_in_order([Tensor(1.0) * 2], [x], [np.ones(3)])


def test_peak_memory_is_that_of_one_layer():
    """Gradients are dropped once handed out: ten layers need no more room than three."""

    def peak(n):
        weights = layers(n, 200)
        loss = network(weights, rows=2)
        tracemalloc.start()
        for position, g in backward_in_order([loss], weights):
            assert g.shape == (200, 200), position
            del g
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    size = 200 * 200 * 8
    assert peak(3) < 2.5 * size
    assert peak(10) < 2.5 * size


def test_sparse_arguments_are_looked_into():
    """A sparse matrix among the arguments is no reason to wait: its arrays are known."""
    import scipy.sparse

    from fastopt.autodiff import defvjp, primitive

    @primitive
    def product(a, x):
        return a @ x

    defvjp(product, None, lambda ans, a, x: lambda g: a.T @ g)
    matrix = scipy.sparse.csr_matrix(np.eye(3))
    x, w = Variable(np.ones(3)), Variable(np.ones(3))
    loss = np.sum(product(matrix, np.exp(x)) * 1.0 + w)
    assert [position for position, _ in backward_in_order([loss], [w, x])] == [0, 1]

    @primitive
    def opaque(f, x):
        return f(x)

    class Slotted:
        __slots__ = ()

        def __call__(self, x):
            return x * 1.0

    defvjp(opaque, None, lambda ans, f, x: lambda g: f(g))
    loss = np.sum(opaque(Slotted(), x * 2.0) + w)
    steps = backward_in_order([loss], [w, x])
    assert dict(steps).keys() == {0, 1}


def test_whole_pass_matches_gradients():
    weights = layers(3, 4)
    loss = network(weights)
    for a, b in zip(gradients(loss, weights), backward([loss], weights), strict=True):
        np.testing.assert_array_equal(a, b)
