"""Properties of gradients, over random graphs, shapes and indices."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastopt.autodiff import Tensor, backward, backward_in_order, gradients
from fastopt.variable import Variable

from .check import ATOL, RTOL, dense, differences

NUMBERS = st.floats(-2, 2).map(lambda x: round(x, 3))


def arrays(shape):
    return hnp.arrays(np.float64, shape, elements=NUMBERS)


@st.composite
def programs(draw):
    """A random program: (n inputs, list of (operation, positions of its arguments))."""
    n_inputs = draw(st.integers(1, 3))
    steps = []
    for i in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from(sorted(OPERATIONS)))
        arity = OPERATIONS[name][1]
        there = n_inputs + i
        steps.append((name, [draw(st.integers(0, there - 1)) for _ in range(arity)]))
    return n_inputs, steps


OPERATIONS = {
    "add": (lambda x, y: x + y, 2),
    "subtract": (lambda x, y: x - y, 2),
    "multiply": (lambda x, y: 0.5 * x * y, 2),
    "tanh": (np.tanh, 1),
    "sin": (np.sin, 1),
    "negative": (lambda x: -x, 1),
    "square": (lambda x: 0.3 * x**2, 1),
    "transpose twice": (lambda x: x.T.T, 1),
    "swap rows": (lambda x: x[[1, 0]], 1),
    "copy a row": (lambda x: x[[0, 0]], 1),
    "shift": (lambda x: np.roll(x, 1, axis=1), 1),
    "matmul": (lambda x, y: np.tanh(x @ y.T) @ y, 2),
    "scale rows": (lambda x, y: x * np.mean(y, axis=1, keepdims=True), 2),
    "softmax": (lambda x: x - np.logaddexp.reduce(x, axis=1, keepdims=True), 1),
    "join": (lambda x, y: np.concatenate([x, y], axis=1)[:, ::2], 2),
}
SHAPE = (2, 3)


def run(program, inputs):
    _, steps = program
    values = list(inputs)
    for name, positions in steps:
        values.append(OPERATIONS[name][0](*(values[i] for i in positions)))
    return values[-1]


@given(st.data(), programs())
def test_random_programs(data, program):
    inputs = [data.draw(arrays(SHAPE)) for _ in range(program[0])]
    variables = [Variable(x) for x in inputs]
    y = run(program, variables)
    for i, g in enumerate(gradients(y, variables)):
        expected = differences(lambda *xs: run(program, xs), inputs, i, np.ones(SHAPE))
        got = np.zeros(SHAPE) if g is None else dense(g)
        np.testing.assert_allclose(got, expected, rtol=10 * RTOL, atol=100 * ATOL)


@given(st.data(), programs())
def test_orders_and_methods_agree(data, program):
    """In order or all at once, with any method of aggregation, the gradients are the same bits."""
    variables = [Variable(data.draw(arrays(SHAPE))) for _ in range(program[0])]
    y = run(program, variables)
    expected = backward([y], variables)
    steps = backward_in_order([y], variables)
    assert steps.connected == [g is not None for g in expected]
    found = dict(steps)
    for i, g in enumerate(expected):
        if g is not None:
            np.testing.assert_array_equal(dense(found[i]), dense(g))
    for method in (1, 2):
        for g, h in zip(backward([y], variables, aggregation_method=method), expected, strict=True):
            assert (g is None) == (h is None)
            if g is not None:
                np.testing.assert_array_equal(dense(g), dense(h))


@given(st.data(), programs())
def test_updates_in_order_equal_updates_at_the_end(data, program):
    variables = [Variable(data.draw(arrays(SHAPE))) for _ in range(program[0])]
    y = run(program, variables)
    expected = [
        np.asarray(v) - (0 if g is None else dense(g))
        for v, g in zip(variables, backward([y], variables), strict=True)
    ]
    for position, g in backward_in_order([y], variables):
        variables[position].assign_sub(dense(g))
    for v, e in zip(variables, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(v), e)


@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
def test_broadcasting(shapes):
    (first, second), result = shapes.input_shapes, shapes.result_shape
    x, y = Variable(np.full(first, 2.0)), Variable(np.full(second, 3.0))
    by_x, by_y = gradients(x * y, [x, y])
    n = int(np.prod(result))
    np.testing.assert_array_equal(by_x, np.full(first, 3.0 * n / max(x.size, 1)))
    np.testing.assert_array_equal(by_y, np.full(second, 2.0 * n / max(y.size, 1)))


@given(st.data(), hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
def test_any_index(data, shape):
    """What x[index] gives back: each element as often as it was picked."""
    index = data.draw(
        st.one_of(
            hnp.basic_indices(shape, allow_newaxis=True),
            hnp.integer_array_indices(shape),
            hnp.arrays(np.bool_, shape),
        )
    )
    x = Variable(np.arange(1.0, np.prod(shape) + 1).reshape(shape))
    y = x[index]
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x)[index])
    weights = np.arange(1.0, np.size(y) + 1).reshape(np.shape(y))
    (g,) = gradients(y, x, grad_ys=weights)
    expected = np.zeros(shape)
    np.add.at(expected, index, weights)
    np.testing.assert_allclose(dense(g), expected)


@given(
    st.lists(st.integers(-5, 4), max_size=12),
    st.sampled_from([np.int8, np.int16, np.int32, np.int64]),
    st.integers(1, 3),
)
def test_rows(ids, dtype, width):
    x = Variable(np.arange(5.0 * width).reshape(5, width))
    y = x[np.array(ids, dtype)]
    (g,) = gradients(y * 2.0, x)
    np.testing.assert_array_equal(g.indices, np.array(ids, np.int64) % 5)
    np.testing.assert_array_equal(g.values, np.full((len(ids), width), 2.0))


@given(st.integers(2, 40), st.integers(0, 2))
def test_sums_of_many_terms(n, method):
    x = Tensor(np.float64(1.0))
    y = sum(x * float(i) for i in range(n))
    assert gradients(y, x, aggregation_method=method)[0] == n * (n - 1) / 2
