"""Derivatives of indexing, `take` and look-ups of rows."""

import numpy as np
import pytest

from fastopt.autodiff import Tensor, gradients
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable

from .check import check, dense, normal

MASK = np.array([[True, False, True, False], [False] * 4, [True] * 4])
INDICES = {
    "int": 1,
    "negative": -1,
    "np.int64": np.int64(2),
    "0-d array": np.array(1),
    "slice": slice(1, 3),
    "step": slice(None, None, 2),
    "reversed": slice(None, None, -1),
    "empty slice": slice(2, 2),
    "ellipsis": Ellipsis,
    "new axis": None,
    "empty tuple": (),
    "pair": (1, 2),
    "pair of slices": (slice(1, None), slice(None, 2)),
    "int and slice": (slice(None), 1),
    "ellipsis and int": (Ellipsis, -1),
    "new axes": (None, 0, None, slice(1, 3)),
    "list": [0, 2],
    "repeats": [1, 1, 1, 0],
    "array": np.array([2, 0, 2]),
    "negative array": np.array([-1, 0, -3, -1]),
    "2-d array": np.array([[0, 1], [1, 1]]),
    "int32": np.array([0, 2, 0], np.int32),
    "int8": np.array([0, -1], np.int8),
    "uint8": np.array([0, 2], np.uint8),
    "swapped bytes": np.array([0, -1, 0], ">i8"),
    "unaligned": np.frombuffer(b"\0" + np.array([2, 0]).tobytes(), np.uint8)[1:].view(np.int64),
    "empty list": [],
    "empty array": np.array([], np.int64),
    "array and full slice": (np.array([0, 0, 2]), slice(None)),
    "array and ellipsis": (np.array([0, 0, 2]), Ellipsis),
    "array and slice": (np.array([0, 0, 2]), slice(1, 3)),
    "array and int": (np.array([0, 0, 2]), 1),
    "slice and array": (slice(0, 2), [1, 1, 3]),
    "two arrays": (np.array([0, 2, 0]), np.array([1, 1, 1])),
    "broadcast arrays": (np.array([[0], [2]]), np.array([1, 1, 3])),
    "np.ix_": np.ix_([0, 2, 2], [1, 3]),
    "mask": MASK,
    "row mask": np.array([True, False, True]),
    "list of bools": [True, False, True],
    "column mask": (slice(None), np.array([True, False, True, True])),
    "mask and array": (np.array([True, False, True]), np.array([0, 0])),
    "array and new axis": (np.array([1, 1]), None),
    "True": True,
    "False": False,
}


@pytest.mark.parametrize("leaf", [Tensor, Variable])
@pytest.mark.parametrize("name", INDICES)
def test_indices(name, leaf):
    index = INDICES[name]
    check(lambda x: x[index], normal(3, 4), leaf=leaf)
    check(lambda x: (x * 2)[index], normal(3, 4), leaf=leaf)


@pytest.mark.parametrize("name", ["repeats", "negative array", "mask", "ellipsis"])
def test_indices_of_a_vector(name):
    index = INDICES[name] if name != "mask" else np.array([True, False, True])
    check(lambda x: x[index], normal(3), leaf=Variable)


def test_0d():
    check(lambda x: x[()], normal(), leaf=Variable)
    check(lambda x: x[None], normal(), leaf=Variable)


def test_repeated_index_of_a_vector():
    """HIPS/autograd#39: the gradient of an element picked twice is counted twice."""
    x = Variable(np.array([3.0]))
    np.testing.assert_array_equal(dense(gradients(np.sum(x[[0, 0]]), x)[0]), [2.0])


def test_copies_keep_their_own_gradients():
    """pytorch/pytorch#1528: only the last copy kept its gradient."""
    x = Variable(np.array([1.0, 1.0]))
    y = x[[1, 1, 1]]
    (g,) = gradients(2 * y[0] + 5 * y[2], x)
    np.testing.assert_array_equal(dense(g), [0.0, 7.0])


ROWS = {
    "x[array]": lambda x: x[np.array([2, 0, 2])],
    "x[list]": lambda x: x[[2, 0, -1]],
    "x[array, :]": lambda x: x[np.array([2, 0, 2]), :],
    "x[array, ...]": lambda x: x[np.array([2, 0, 2]), ...],
    "take": lambda x: np.take(x, [2, 0, 2], axis=0),
    "take method": lambda x: x.take([2, 0, -1], axis=0),
    "take wrap": lambda x: np.take(x, [5, -3, 2], axis=0, mode="wrap"),
    "take clip": lambda x: np.take(x, [7, -2, 2], axis=0, mode="clip"),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2)])
def test_rows_of_a_variable_give_slices(name, shape):
    if name in ("x[array, :]",) and len(shape) == 1:
        pytest.skip("a vector has one axis")
    x = Variable(normal(*shape))
    (g,) = gradients(ROWS[name](x) * 3.0, x)
    assert isinstance(g, IndexedSlices)
    np.testing.assert_array_equal(g.indices, [2, 0, 2])
    np.testing.assert_array_equal(g.values, np.full((3, *shape[1:]), 3.0))
    assert g.dense_shape == shape
    check(ROWS[name], normal(*shape), leaf=Variable)


def test_rows_of_something_computed_give_a_dense_gradient():
    x = Variable(normal(3, 2))
    (g,) = gradients((x * 1.0)[[0, 0]], x)
    assert type(g) is np.ndarray
    np.testing.assert_array_equal(g, [[2.0, 2.0], [0.0, 0.0], [0.0, 0.0]])


def test_index_dtypes_of_slices():
    x = Variable(normal(3, 2))
    for dtype, kept in [
        (np.int32, np.int32),
        (np.int64, np.int64),
        (np.int16, np.int64),
        (np.uint32, np.int64),
    ]:
        (g,) = gradients(x[np.array([1, 2], dtype)], x)
        assert g.indices.dtype == kept


def test_slices_in_the_order_of_look_up():
    """The example of two look-ups that TensorFlow's IndexedSlices are described by."""
    for method in (None, 0, 1, 2):
        table = Variable(np.ones((3, 2)))
        loss = np.sum(table[[0, 2]]) + 3 * np.sum(table[[2, 2]])
        (g,) = gradients(loss, table, aggregation_method=method)
        np.testing.assert_array_equal(g.indices, [0, 2, 2, 2])
        np.testing.assert_array_equal(g.values, np.array([[1.0], [1.0], [3.0], [3.0]]) * [1, 1])
        (g,) = gradients(loss + np.sum(2 * table), table, aggregation_method=method)
        np.testing.assert_array_equal(g, [[3.0, 3.0], [2.0, 2.0], [9.0, 9.0]])


@pytest.mark.parametrize(
    "dtypes, wide", [((np.int32, np.int32), np.int32), ((np.int32, np.int64), np.int64)]
)
def test_mixed_index_dtypes_are_widened(dtypes, wide):
    x = Variable(normal(3))
    y = np.sum(x[np.array([0], dtypes[0])]) + np.sum(x[np.array([1], dtypes[1])])
    assert gradients(y, x)[0].indices.dtype == wide


@pytest.mark.parametrize("bad", [[0, 3], [-4], [2**40]])
def test_rows_out_of_range(bad):
    x = Variable(normal(3, 2))
    for call in (lambda: x[bad], lambda: np.take(x, bad, axis=0), lambda: (x * 1)[bad]):
        with pytest.raises(IndexError, match=rf"index {max(bad, key=abs)} .*size 3"):
            call()


@pytest.mark.parametrize("bad", [1.0, [0.5], "a", Tensor(1.0), np.array([0.0])])
def test_indices_that_are_none(bad):
    with pytest.raises(IndexError):
        Variable(normal(3))[bad]


def test_index_by_a_variable():
    x = Variable(normal(3, 2))
    ids = Variable(np.array([0, 2, 2]), trainable=False, name="ids")
    y = x[ids]
    ids.assign([1, 1, 1])
    x2 = Variable(np.asarray(x))
    np.testing.assert_array_equal(np.asarray(x2[ids]), np.asarray(x2)[[1, 1, 1]])
    np.testing.assert_array_equal(gradients(y, x)[0].indices, [0, 2, 2])
    np.testing.assert_array_equal(np.asarray(x[ids, 0]), np.asarray(x)[[1, 1, 1], 0])
    np.testing.assert_array_equal(np.asarray(x[Variable(np.int64(1))]), np.asarray(x)[1])


TAKES = {
    "flat": lambda x: np.take(x, [0, 5, 5]),
    "axis 1": lambda x: np.take(x, [0, 2, 2], axis=1),
    "last": lambda x: np.take(x, [[0, -1]], axis=-1),
    "scalar": lambda x: np.take(x, 1, axis=1),
    "wrap": lambda x: np.take(x, [4, -5], axis=1, mode="wrap"),
    "clip": lambda x: np.take(x, [9, -9], axis=1, mode="clip"),
    "compress": lambda x: np.compress([True, False, True], x, axis=1),
    "along": lambda x: np.take_along_axis(x, np.array([[0, 0, 2], [1, 1, 1]]), axis=1),
    "along rows": lambda x: np.take_along_axis(x, np.array([[0, 1, 1]]), axis=0),
    "along flat": lambda x: np.take_along_axis(x, np.array([0, 0, 5]), axis=None),
    "select": lambda x: np.select([x > 0.5, x < 0], [x, -2 * x], default=0.5 * x),
}  # fmt: skip


@pytest.mark.parametrize("leaf", [Tensor, Variable])
@pytest.mark.parametrize("name", TAKES)
def test_take(name, leaf):
    check(TAKES[name], normal(2, 3), leaf=leaf)


def test_take_errors():
    x = Tensor(normal(2, 3))
    with pytest.raises(TypeError, match="indices must be integers"):
        np.take(x, [0.0])
    with pytest.raises(ValueError, match="mode must be"):
        np.take(x, [0], mode="other")
    with pytest.raises(TypeError, match="numpy.compress: out="):
        np.compress([True, False], x, 0, np.zeros((1, 3)))
    with pytest.raises(TypeError, match="numpy.take: out="):
        np.take(x, [0], out=np.zeros(1))
    with pytest.raises(np.exceptions.AxisError):
        np.take(x, [0], axis=2)
    with pytest.raises(IndexError, match="index 7 .*size 6"):
        np.take(x, [7])
    with pytest.raises(ValueError, match="as many axes"):
        np.take_along_axis(x, np.array([0]), axis=1)
    with pytest.raises(ValueError, match="1 conditions for 2 choices"):
        np.select([x > 0], [x, x])


def test_many_rows_need_no_table_each():
    """Rows picked one by one come back as patches of one buffer, not as a table a row."""
    import tracemalloc

    x = Tensor(np.ones((1000, 50)))
    y = sum(np.sum(row) for row in x)
    tracemalloc.start()
    (g,) = gradients(y, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(g, np.ones((1000, 50)))
    # The table is 0.4 MB; a thousand of them would be 400 MB.
    assert peak < 10e6


def test_integer_and_boolean_arrays_have_no_gradient():
    x = Variable(np.arange(3))
    assert type(x[[0, 1]]) is np.ndarray


def test_patches_are_cast():
    """The gradient of a float32 tensor is float32 where a float64 result was indexed."""
    x = Tensor(np.ones(3, np.float32))
    y = x[1:] * np.ones(2)
    assert y.dtype == np.float64
    (g,) = gradients(y, x)
    assert g.dtype == np.float32
    np.testing.assert_array_equal(g, [0.0, 1.0, 1.0])


def test_float16_tables():
    x = Variable(np.ones((3, 2), np.float16))
    (g,) = gradients(np.sum(x[[0, 0]]) + np.sum(x * 1.0), x)
    assert g.dtype == np.float16
    np.testing.assert_array_equal(g, [[3.0, 3.0], [1.0, 1.0], [1.0, 1.0]])
