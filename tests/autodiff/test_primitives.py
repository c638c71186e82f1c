"""`primitive`, `defvjp`, `custom_gradient`: functions of the user's own."""

import numpy as np
import pytest

from fastopt.autodiff import (
    Recording,
    Tensor,
    backward,
    custom_gradient,
    defvjp,
    defvjp_argnums,
    eager_mode,
    gradients,
    primitive,
)
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable

from .check import check, normal


@primitive
def scaled_sum(x, y, scale=1.0):
    """Return scale * sum(x * y)."""
    return scale * np.sum(x * y)


defvjp(
    scaled_sum,
    lambda ans, x, y, scale=1.0: lambda g: g * scale * y,
    lambda ans, x, y, scale=1.0: lambda g: g * scale * x,
)


def test_primitive():
    check(scaled_sum, normal(3, seed=1), normal(3, seed=2))
    check(lambda x, y: scaled_sum(x, y, scale=2.5), normal(3, seed=1), normal(3, seed=2))
    check(lambda x, y: scaled_sum(y=y, x=x), normal(3, seed=1), normal(3, seed=2))
    assert scaled_sum(np.ones(2), np.ones(2)) == 2.0
    assert scaled_sum.__name__ == "scaled_sum"
    assert scaled_sum.__doc__ == "Return scale * sum(x * y)."
    assert "scaled_sum" in repr(scaled_sum)


def test_argnums_and_none():
    @primitive
    def f(mode, x, y):
        return x * y

    defvjp(f, lambda ans, mode, x, y: lambda g: g * y, None, argnums=(1, 2))
    x, y = Variable(3.0), Variable(5.0)
    assert gradients(f("any", x, y), [x, y]) == [5.0, None]
    with pytest.raises(ValueError, match="1 derivatives for 2 argnums"):
        defvjp(f, None, argnums=(0, 1))


def test_vjp_of_none_adds_nothing():
    @primitive
    def f(x):
        return x * 2.0

    defvjp(f, lambda ans, x: lambda g: None)
    x = Variable(1.0)
    assert gradients(f(x) + x, x) == [1.0]
    assert gradients(f(x), x) == [None]


def test_vjp_of_slices():
    @primitive
    def pick(table, ids):
        return table[ids]

    defvjp(pick, lambda ans, table, ids: lambda g: IndexedSlices(g, ids, table.shape), None)
    table = Variable(normal(4, 2))
    ids = np.array([1, 1, 3])
    (g,) = gradients(pick(table, ids), table)
    assert isinstance(g, IndexedSlices)
    (dense,) = gradients(pick(table * 2, ids), table)
    np.testing.assert_array_equal(dense, 2 * g.to_dense())


def test_joint_derivatives():
    @primitive
    def f(x, y):
        return x * y

    calls = []

    def joint(argnums, ans, args, kwargs):
        def vjp(g):
            calls.append(list(argnums))
            return [g * args[1 - i] for i in argnums]

        return vjp

    defvjp_argnums(f, joint)
    x, y = Variable(3.0), Variable(5.0)
    assert gradients(f(x, y), [x, y]) == [5.0, 3.0]
    assert gradients(f(x, y), y) == [3.0]
    assert calls == [[0, 1], [1]]


def test_reads_says_what_is_kept():
    seen = []

    @primitive
    def f(x, y):
        return x * y

    def by_y(ans, x, y):
        seen.append((ans, x, y))
        return lambda g: g * x

    defvjp(f, None, by_y, reads=((), ("x",)))
    x, y = np.array([2.0, 3.0]), Variable(np.array([5.0, 7.0]))
    np.testing.assert_array_equal(gradients(f(x, y), y)[0], x)
    ((ans, kept, form),) = seen
    assert ans is None
    assert kept is x
    assert (form.shape, form.dtype, form.ndim, form.size) == ((2,), np.float64, 1, 2)


def test_results_and_gradients_that_do_not_fit():
    @primitive
    def two(x):
        return x, x

    with pytest.raises(TypeError, match="two returned a tuple"):
        two(Variable(1.0))

    @primitive
    def nothing(x):
        return None

    with pytest.raises(TypeError, match="nothing returned NoneType"):
        nothing(Variable(1.0))

    @primitive
    def number(x):
        return 2.0 * float(x)

    defvjp(number, lambda ans, x: lambda g: 2.0)
    x = Variable(1.0)
    (g,) = gradients(number(x), x)
    assert g == 2.0
    assert g.dtype == np.float32

    @primitive
    def wrong_shape(x):
        return x * 1.0

    defvjp(wrong_shape, lambda ans, x: lambda g: np.ones(3))
    y = Variable([1.0, 2.0])
    with pytest.raises(ValueError, match=r"wrong_shape.*argument 0 has shape \(3,\).*shape \(2,\)"):
        gradients(wrong_shape(y), y)

    @primitive
    def wrong_type(x):
        return x * 1.0

    defvjp(wrong_type, lambda ans, x: lambda g: np.array(["a", "b"]))
    y = Variable([1.0, 2.0])
    with pytest.raises(TypeError, match="wrong_type.*dtype <U1"):
        gradients(wrong_type(y), y)

    @primitive
    def wrong_rows(x):
        return x * 1.0

    defvjp(wrong_rows, lambda ans, x: lambda g: IndexedSlices(np.ones((1, 3)), [0]))
    y = Variable(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"wrong_rows.*rows of shape \(3,\)"):
        gradients(wrong_rows(y), y)


def test_slices_of_another_dtype_are_cast():
    @primitive
    def f(x):
        return x * 1.0

    defvjp(f, lambda ans, x: lambda g: IndexedSlices(np.ones((1, 2)), [1]))
    x = Variable(np.ones((3, 2), np.float32))
    (g,) = gradients(f(x), x)
    assert g.dtype == np.float32
    assert g.dense_shape == (3, 2)


def test_differentiable_objects_inside_lists_are_refused():
    @primitive
    def total(arrays):
        return np.sum(arrays)

    with pytest.raises(TypeError, match="total: argument 0 is a list that holds differentiable"):
        total([Variable(1.0), 2.0])
    with eager_mode():
        assert total([Variable(1.0), 2.0]) == 3.0

    @primitive
    def keyword_only(x, *, y):
        return x * y

    with pytest.raises(TypeError, match="y= cannot be a differentiable object"):
        keyword_only(1.0, y=Variable(1.0))


def test_keywords_of_numpy_functions():
    x = Variable(np.ones((2, 3)))
    np.testing.assert_array_equal(gradients(np.sum(a=x), x)[0], np.ones((2, 3)))
    np.testing.assert_array_equal(gradients(np.mean(axis=0, a=x), x)[0], np.full((2, 3), 0.5))
    np.testing.assert_array_equal(gradients(np.tensordot(x, b=x), x)[0], np.full((2, 3), 2.0))


def test_keyword_of_a_function_without_signature():
    f = primitive(dict)
    with pytest.raises(TypeError, match="cannot be a differentiable object"):
        f(x=Variable(1.0))


def test_defvjp_takes_numpy_functions_that_are_recorded():
    from fastopt.autodiff.tensor import HANDLERS

    before = HANDLERS[np.exp].vjps[0]
    defvjp(np.exp, before)
    assert HANDLERS[np.exp].vjps[0] is before


def test_results_of_objects_are_refused():
    @primitive
    def f(x):
        return np.array([object()])

    with pytest.raises(TypeError, match="array of objects"):
        f(Variable(1.0))


def test_defvjp_wants_a_primitive():
    with pytest.raises(TypeError, match="is not a recorded function"):
        defvjp(lambda x: x, None)
    with pytest.raises(TypeError, match="is not a recorded function"):
        defvjp(3, None)


# ---------------------------------------------------------------------- custom_gradient


@custom_gradient
def log1pexp(x):
    """Return log(1 + exp(x))."""
    e = np.exp(x)
    return np.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))


def test_custom_gradient():
    check(log1pexp, normal(3))
    check(lambda x: log1pexp(x * 2) ** 2, normal(2, 3))
    assert log1pexp.__name__ == "log1pexp"
    assert log1pexp(0.0) == np.log(2.0)
    x = Variable(100.0, dtype=np.float64)
    assert gradients(log1pexp(x), x) == [1.0]


def test_custom_gradient_of_several_arguments():
    @custom_gradient
    def f(x, y, power):
        return x * y, lambda dy: (dy * y * 10, dy * x * 100, None)

    x, y = Variable(3.0), Variable(5.0)
    assert gradients(f(x, y, 2), [x, y]) == [50.0, 300.0]
    assert gradients(f(x, 5.0, 2), [x]) == [50.0]


def test_custom_gradient_of_slices_and_of_none():
    @custom_gradient
    def rows(table):
        return table[[0, 2]], lambda dy: IndexedSlices(dy, [0, 2])

    table = Variable(np.ones((3, 2)))
    assert isinstance(gradients(rows(table), table)[0], IndexedSlices)

    @custom_gradient
    def blocked(x):
        return x * 2, lambda dy: None

    x = Variable(1.0)
    assert gradients(blocked(x) + x, x) == [1.0]


def test_custom_gradient_runs_on_plain_arrays():
    seen = []

    @custom_gradient
    def f(x):
        seen.append(type(x))

        def grad(dy):
            seen.append(type(dy))
            return dy

        return x * 2, grad

    x = Variable([1.0])
    gradients(f(x), x)
    assert seen == [np.ndarray, np.ndarray]
    with eager_mode():
        assert type(f(x)) is np.ndarray
    with eager_mode(), Recording() as tape:
        y = f(x)
    assert tape.watched[0] is x
    np.testing.assert_array_equal(backward([y], [x])[0], [1.0])


def test_custom_gradient_errors():
    x, w = Variable([1.0]), Variable([2.0], name="hidden")

    @custom_gradient
    def no_pair(x):
        return x

    with pytest.raises(
        TypeError, match=r"no_pair: a custom_gradient function returns \(y, grad_fn\)"
    ):
        no_pair(x)

    @custom_gradient
    def reads_more(x):
        return x * w, lambda dy: dy

    with pytest.raises(TypeError, match=r"reads_more: reads hidden.* without being given it"):
        reads_more(x)

    @custom_gradient
    def wrong_count(x, y):
        return x + y, lambda dy: (dy,)

    with pytest.raises(
        ValueError, match="wrong_count: the gradient function returned 1 gradients for 2"
    ):
        gradients(wrong_count(x, x), x)

    with pytest.raises(TypeError, match="must be positional arguments"):
        log1pexp(x=x)
    with pytest.raises(TypeError, match="must be positional arguments"):
        log1pexp([x])


def test_tensors_of_custom_gradients_have_a_name():
    assert "log1pexp" in repr(log1pexp(Tensor(1.0)))
