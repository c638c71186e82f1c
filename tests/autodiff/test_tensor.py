"""What a `Tensor` and a `Differentiable` are to Python and to NumPy."""

import copy
import pickle
import weakref

import numpy as np
import pytest

from fastopt.autodiff import Differentiable, Tensor
from fastopt.variable import Variable


def test_construction():
    values = np.array([1.0, 2.0], np.float32)
    x = Tensor(values, name="x")
    values[0] = 9.0
    np.testing.assert_array_equal(x.value, [1.0, 2.0])
    assert (x.dtype, x.shape, x.name) == (np.float32, (2,), "x")
    assert Tensor([1, 2], dtype=np.float64).dtype == np.float64
    assert Tensor(1.0).name == "Tensor"
    assert (x * 2).name == "numpy.multiply"
    for bad in ("text", [object()], np.array(["a"])):
        with pytest.raises(TypeError, match="value must be an array of numbers"):
            Tensor(bad)


def test_repr():
    assert repr(Tensor([1.0, 2.0])) == "Tensor([1., 2.], shape=(2,), dtype=float64)"
    assert repr(Tensor(3.0) * 2) == "Tensor(6., shape=(), dtype=float64, name='numpy.multiply')"
    assert "..." in repr(Tensor(np.zeros(1000)))


def test_asarray_follows_numpy_2():
    for x in (Tensor([1.0, 2.0]), Tensor([1.0, 2.0]) * 1.0, np.sum(Tensor([[1.0], [2.0]]), axis=1)):
        view = np.asarray(x)
        np.testing.assert_array_equal(view, [1.0, 2.0])
        assert not view.flags.writeable
        assert np.shares_memory(view, np.asarray(x, copy=False))
        copied = np.array(x)
        copied[0] = 5.0
        assert not np.shares_memory(copied, view)
        assert np.asarray(x, dtype=np.float32).dtype == np.float32
        with pytest.raises(ValueError, match="without a copy"):
            np.asarray(x, dtype=np.float32, copy=False)
        np.testing.assert_array_equal(x.numpy(), [1.0, 2.0])
        assert x.numpy().flags.writeable
    assert np.asarray(Tensor(1.0) * 2).shape == ()
    np.testing.assert_array_equal(np.array([Tensor(1.0), Tensor(2.0)]), [1.0, 2.0])


def test_single_numbers():
    x = Tensor([[2.5]])
    assert x.item() == float(x) == 2.5
    assert int(x) == 2
    assert complex(x) == 2.5 + 0j
    assert bool(x)
    assert not Tensor(0.0)
    assert f"{x:.2f}" == "2.50"
    assert f"{x}" == repr(x)
    assert x.tolist() == [[2.5]]
    assert list(range(5))[Variable(np.int64(2))] == 2
    for convert in (float, int, complex, lambda x: x.item()):
        with pytest.raises((ValueError, TypeError)):
            convert(Tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(Tensor([1.0, 2.0]))
    with pytest.raises(TypeError):
        range(Tensor(2.0))


def test_comparisons_are_elementwise_and_plain():
    x, y = Tensor([1.0, 2.0]), Tensor([1.0, 3.0])
    for result, expected in [
        (x == y, [True, False]),
        (x != y, [False, True]),
        (x < y, [False, True]),
        (x >= 2.0, [False, True]),
        (2.0 > x, [True, False]),
    ]:
        assert type(result) is np.ndarray
        assert result.tolist() == expected
    assert 2.0 in x
    assert 5.0 not in x


def test_hashing_is_by_identity():
    x, y = Tensor([1.0, 2.0]), Tensor([1.0, 2.0])
    table = {x: "x", y: "y"}
    assert (table[x], table[y]) == ("x", "y")
    weak = weakref.WeakKeyDictionary({x: 1, y: 2})
    assert (weak[x], weak[y]) == (1, 2)
    del y, table
    assert len(weak) == 1
    many = [Variable(np.ones(3)) for _ in range(500)]
    assert len(set(many)) == 500
    assert (x == x).tolist() == [True, True]
    nan = Tensor([np.nan])
    assert (nan == nan).tolist() == [False]


def test_sequences():
    x = Tensor(np.arange(6.0).reshape(3, 2))
    assert len(x) == 3
    assert [row.shape for row in x] == [(2,)] * 3
    a, b, c = x
    np.testing.assert_array_equal(np.asarray(c), [4.0, 5.0])
    for bad in (len, iter, list):
        with pytest.raises(TypeError, match="0-d"):
            bad(Tensor(1.0))


def test_augmented_assignment_makes_a_new_tensor():
    first = x = Tensor([1.0, 2.0])
    x += 1.0
    x -= 0.5
    x *= 2.0
    x /= 4.0
    x **= 2
    np.testing.assert_allclose(np.asarray(x), [0.5625, 1.5625])
    np.testing.assert_array_equal(np.asarray(first), [1.0, 2.0])
    x @= np.ones((2, 2))
    assert isinstance(x, Tensor)


def test_variables_are_not_changed_by_augmented_assignment():
    x = Variable([1.0, 2.0])
    for change in (
        "x += 1",
        "x *= 2",
        "x -= 1",
        "x /= 2",
        "x **= 2",
        "x @= 1",
        "x //= 2",
        "x %= 2",
    ):
        with pytest.raises(TypeError, match="assign_add"):
            exec(change, {"x": x})
    np.testing.assert_array_equal(np.asarray(x), [1.0, 2.0])


def test_item_assignment_is_refused():
    for x in (Tensor([1.0], name="x"), Variable([1.0], name="x")):
        with pytest.raises(TypeError, match=f"^{type(x).__name__} 'x' does not support item assig"):
            x[0] = 2.0


def test_copies_and_pickles():
    x = Tensor([1.0]) * 2
    assert copy.copy(x) is x
    assert copy.deepcopy([x])[0] is x
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(x)


def test_objects_that_defer():
    class Other:
        __array_ufunc__ = None

        def __radd__(self, x):
            return "other"

        __rsub__ = __rmul__ = __rtruediv__ = __rmatmul__ = __rpow__ = __radd__
        __add__ = __sub__ = __mul__ = __radd__

    x, other = Tensor(1.0), Other()
    for result in (x + other, x - other, x * other, x / other, x @ other, x**other, other + x):
        assert result == "other"


def test_base_class_has_no_value():
    class Bare(Differentiable):
        pass

    with pytest.raises(NotImplementedError):
        Bare()._read()
    assert Bare().name == "Bare"


def test_anything_with_a_value_can_be_differentiated():
    class Box(Differentiable):
        def __init__(self, value):
            self.value = value

        def _read(self):
            return self.value

    from fastopt.autodiff import gradients

    box = Box(np.arange(6.0).reshape(3, 2))
    assert (box.shape, box.dtype) == ((3, 2), np.float64)
    np.testing.assert_array_equal(gradients(np.sum(box * box), box)[0], 2 * box.value)
    assert gradients(box[[1, 1]], box)[0].indices.tolist() == [1, 1]


def test_unsupported_functions_are_named():
    x = Tensor(np.eye(2))
    for call, name in [
        (np.linalg.svd, "numpy.linalg.svd"),
        (np.linalg.eigh, "numpy.linalg.eigh"),
        (np.fft.fft, "numpy.fft.fft"),
        (np.median, "numpy.median"),
        (np.cov, "numpy.cov"),
        (lambda x: np.modf(x), "numpy.modf"),
    ]:
        with pytest.raises(TypeError, match=name.replace(".", r"\.")):
            call(x)
