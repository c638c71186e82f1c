"""`embedding_lookup`: rows, shards, bounds, clipping and gradients."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastopt.autodiff import Tensor, eager_mode, gradients
from fastopt.embedding import embedding_lookup
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable
from tests.autodiff.check import check, dense


def split(table, parts, strategy):
    """Return a table as parts."""
    if strategy == "mod":
        return [table[p::parts] for p in range(parts)]
    return np.array_split(table, parts)


def test_partition_of_the_specification():
    """13 ids over 5 tables, as TensorFlow spreads them."""
    ids = np.arange(13)
    expected = {
        "mod": [[0, 5, 10], [1, 6, 11], [2, 7, 12], [3, 8], [4, 9]],
        "div": [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10], [11, 12]],
    }
    for strategy, parts in expected.items():
        tables = [Variable(np.array(part, np.float64)) for part in parts]
        np.testing.assert_array_equal(np.asarray(embedding_lookup(tables, ids, strategy)), ids)


@given(
    st.integers(1, 8),
    st.integers(0, 23),
    st.sampled_from(["mod", "div"]),
    st.sampled_from([np.int32, np.int64, np.uint8]),
    st.data(),
)
def test_shards_equal_the_whole(parts, n_rows, strategy, id_dtype, data):
    table = np.arange(2.0 * n_rows).reshape(n_rows, 2)
    row = st.integers(0, max(n_rows - 1, 0))
    ids = np.array(data.draw(st.lists(row, max_size=9 if n_rows else 0)), id_dtype)
    tables = split(table, parts, strategy)
    np.testing.assert_array_equal(embedding_lookup(tables, ids, strategy), table[ids])

    variables = [Variable(t) for t in tables]
    out = embedding_lookup(variables, ids, strategy)
    upstream = np.arange(1.0, 2 * len(ids) + 1).reshape(-1, 2)
    got = gradients(out, variables, grad_ys=upstream)
    whole = np.zeros_like(table)
    np.add.at(whole, ids, upstream)
    for g, t in zip(got, split(whole, parts, strategy), strict=True):
        assert isinstance(g, IndexedSlices)
        assert g.dense_shape == t.shape
        np.testing.assert_array_equal(g.to_dense(), t)


def test_two_shards():
    tables = [np.array([[1.0]]), np.array([[2.0]])]
    np.testing.assert_array_equal(embedding_lookup(tables, [0, 0]), [[1], [1]])


@pytest.mark.parametrize("ids_shape", [(), (0,), (4,), (2, 3), (2, 0, 3), (1, 2, 2)])
@pytest.mark.parametrize("row_shape", [(), (1,), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_shapes(ids_shape, row_shape, dtype):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5, *row_shape)).astype(dtype)
    ids = rng.integers(0, 5, size=ids_shape)
    x = Variable(table, name="x")
    out = embedding_lookup(x, ids)
    assert isinstance(out, Tensor)
    assert out.shape == ids_shape + row_shape
    assert out.dtype == dtype
    np.testing.assert_array_equal(np.asarray(out), table[ids])
    plain = embedding_lookup(table, ids)
    assert type(plain) is np.ndarray
    np.testing.assert_array_equal(plain, table[ids])
    (g,) = gradients(out, [x])
    assert isinstance(g, IndexedSlices)
    assert g.dtype == dtype
    assert g.values.shape == (ids.size, *row_shape)
    np.testing.assert_array_equal(g.indices, ids.ravel())


def test_gradient_lists_ids_as_they_came():
    """Repeated ids stay repeated; nothing is merged or sorted."""
    x = Variable(np.zeros((4, 2)))
    upstream = np.arange(8.0).reshape(2, 2, 2)
    ids = np.array([[3, 1], [3, 0]], np.int32)
    (g,) = gradients(embedding_lookup(x, ids), [x], grad_ys=upstream)
    assert g.indices.dtype == np.int32
    np.testing.assert_array_equal(g.indices, [3, 1, 3, 0])
    np.testing.assert_array_equal(g.values, upstream.reshape(4, 2))


def test_gradient_of_a_computed_table_is_dense():
    x = Variable(np.ones((3, 2)))
    (g,) = gradients(embedding_lookup(x * 2.0, [2, 2]), [x])
    np.testing.assert_array_equal(g, [[0, 0], [0, 0], [4, 4]])


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("max_norm", [None, 0.0, 1.2])
def test_derivatives(parts, strategy, max_norm):
    table = np.random.default_rng(1).normal(size=(7, 3))
    ids = [[6, 0, 6], [3, 2, 1]]
    check(
        lambda *tables: embedding_lookup(list(tables), ids, strategy, max_norm=max_norm),
        *split(table, parts, strategy),
        leaf=Variable,
    )


def test_caller_may_refill_the_ids():
    """What was looked up stays what the gradient belongs to."""
    x = Variable(np.zeros((4, 1)))
    ids = np.array([1, 2])
    out = embedding_lookup(x, ids)
    ids[:] = 3
    (g,) = gradients(out, [x])
    np.testing.assert_array_equal(g.indices, [1, 2])


def test_result_is_no_view_of_the_table():
    table = np.ones((3, 2))
    x = Variable(table, copy=False)
    for out in (embedding_lookup(table, [0, 1]), embedding_lookup(x, [0, 1])):
        assert not np.may_share_memory(np.asarray(out), table)


@pytest.mark.parametrize("layout", ["fortran", "strided", "reversed", "swapped", "integers"])
def test_plain_tables_of_any_layout(layout):
    table = np.arange(24.0).reshape(6, 4)
    table = {
        "fortran": np.asfortranarray(table),
        "strided": table[::2, ::2],
        "reversed": table[::-1],
        "swapped": table.astype(">f8"),
        "integers": table.astype(np.int64),
    }[layout]
    ids = np.array([2, 0, 2])
    out = embedding_lookup(table, ids)
    assert out.dtype == table.dtype
    np.testing.assert_array_equal(out, table[ids])


def test_eager_mode_records_nothing():
    x = Variable(np.ones((3, 2)))
    with eager_mode():
        assert type(embedding_lookup(x, [0])) is np.ndarray


def test_name():
    x = Variable(np.ones((3, 2)))
    assert embedding_lookup(x, [0], name="user").name == "user"
    assert embedding_lookup(x, [0]).name == "embedding_lookup"
    with pytest.raises(IndexError, match="ids of 'user': id 5"):
        embedding_lookup(x, [5], name="user")


# ------------------------------------------------------------------ bounds and kinds of ids


@pytest.mark.parametrize("bad", [-1, 999, 2**40, -(2**63)])
def test_ids_out_of_range(bad):
    """tensorflow/tensorflow#5847, #17417, #27033, #57174, #62628: neither wrap-around nor zeros."""
    x = Variable(np.zeros((3, 12)), name="items")
    with pytest.raises(IndexError, match=rf"id {bad} at position 1 .* 'items.*' of 3 rows"):
        embedding_lookup(x, [2, bad])
    with pytest.raises(IndexError, match=rf"id {bad} at position \(1, 0\) .* params of 3 rows"):
        embedding_lookup(np.zeros((3, 12)), [[2, 1], [bad, 0]])
    with pytest.raises(IndexError, match=rf"id {bad} at its only position"):
        embedding_lookup(x, bad)
    with pytest.raises(IndexError, match=rf"id {bad} at position 1 .* its other parts of 6 rows"):
        embedding_lookup([x, x], [2, bad])


def test_unsigned_id_beyond_int64():
    """piskvorky/gensim#2578, scikit-learn/scikit-learn#6334: no wrap to a negative id."""
    with pytest.raises(IndexError, match=str(2**63 + 1)):
        embedding_lookup(np.zeros((3, 1)), np.array([1, 2**63 + 1], np.uint64))


def test_no_rows_no_ids():
    out = embedding_lookup(np.zeros((0, 4), np.float32), np.array([]))
    assert out.shape == (0, 4)
    with pytest.raises(IndexError, match="id 0 at position 0 .* 0 rows"):
        embedding_lookup(np.zeros((0, 4)), [0])


@pytest.mark.parametrize("ids", [[True, False, True], [0.0, 2.0], ["0"], [None], [[0], [1, 2]]])
def test_ids_must_be_integers(ids):
    """scipy/scipy#11200, HIPS/autograd#71: a mask or rounded floats are no row numbers."""
    with pytest.raises((TypeError, ValueError), match="ids|inhomogeneous"):
        embedding_lookup(np.zeros((3, 1)), ids)


@pytest.mark.parametrize("dtype", [np.longlong, np.int_, np.intp, np.intc, np.int8, ">i4", ">i8"])
def test_integers_of_any_name(dtype):
    """Quantco/tabmat#84: equally wide integers are equal, whatever C calls them."""
    x = Variable(np.arange(3.0))
    out = embedding_lookup(x, np.array([0, 2], dtype))
    np.testing.assert_array_equal(np.asarray(out), [0, 2])
    (g,) = gradients(out, [x])
    assert g.indices.dtype in (np.int32, np.int64)


def test_masked_ids():
    with pytest.raises(TypeError, match="^masked entries of ids have no value"):
        embedding_lookup(np.zeros((3, 1)), np.ma.array([0, 1], mask=[False, True]))


def test_a_shard_that_is_too_short():
    """Ids in the range of all rows together may still miss in a table of an unusual size."""
    tables = [np.zeros((1, 2)), np.zeros((4, 2))]
    with pytest.raises(IndexError, match=r"id 4 belongs to row 2 of params\[0\].*which has 1 rows"):
        embedding_lookup(tables, [1, 4])


# ------------------------------------------------------------------ params


def test_params_must_be_tables():
    with pytest.raises(ValueError, match="params must be a table or a list of tables, got None"):
        embedding_lookup(None, [0])
    with pytest.raises(ValueError, match="at least one table, got an empty list"):
        embedding_lookup([], [0])
    with pytest.raises(TypeError, match="^params cannot be made an array of real numbers: <object"):
        embedding_lookup(object(), [0])
    with pytest.raises(
        ValueError, match="params must have an axis of rows.*; the table is the first"
    ):
        embedding_lookup(np.float64(1), [0])
    with pytest.raises(ValueError, match=r"params\[1\] has \(2,\), params\[0\] has \(3,\)"):
        embedding_lookup([np.zeros((2, 3)), np.zeros((2, 2))], [0])
    with pytest.raises(ValueError, match=r"params\[1\] has float32, params\[0\] has float64"):
        embedding_lookup([np.zeros((2, 3)), np.zeros((2, 3), np.float32)], [0])


def test_partition_strategy():
    tables = [np.zeros((2, 1)), np.zeros((2, 1))]
    with pytest.raises(ValueError, match='must be "mod" or "div", got \'hash\''):
        embedding_lookup(tables, [0], "hash")
    embedding_lookup(tables[0], [0], "hash")  # not looked at: there is one table


def test_variables_and_arrays_mixed():
    x = Variable(np.array([[1.0], [2.0]]))
    out = embedding_lookup([x, np.array([[10.0], [20.0]])], [0, 1, 2, 3])
    np.testing.assert_array_equal(np.asarray(out), [[1], [10], [2], [20]])
    (g,) = gradients(out, [x])
    np.testing.assert_array_equal(g.indices, [0, 1])


# ------------------------------------------------------------------ max_norm


def test_max_norm_values():
    np.testing.assert_array_equal(embedding_lookup([[[2.0]]], [0], max_norm=1.0), [[1]])
    table = np.array([[2.0, 4.0], [3.0, 1.0], [0.3, 0.4], [0.0, 0.0]])
    before = table.copy()
    out = embedding_lookup(table, [0, 1, 2, 3], max_norm=2.0)
    np.testing.assert_allclose(np.linalg.norm(out[:2], axis=1), 2, rtol=1e-15)
    np.testing.assert_allclose(out[:2], table[:2] * 2 / np.sqrt([[20], [10]]), rtol=1e-15)
    np.testing.assert_array_equal(out[2:], table[2:])  # bit-equal: they are short enough
    np.testing.assert_array_equal(table, before)


@pytest.mark.parametrize(
    ("bad", "error"), [(-1, ValueError), (np.nan, ValueError), ("a", TypeError)]
)
def test_max_norm_must_be_a_length(bad, error):
    with pytest.raises(error, match="^max_norm must be None or "):
        embedding_lookup(np.zeros((3, 1)), [0], max_norm=bad)


def test_max_norm_of_huge_rows():
    """The square of 1e30 is beyond float32."""
    table = np.full((1, 4), 1e30, np.float32)
    np.testing.assert_allclose(embedding_lookup(table, [0], max_norm=1.0), 0.5, rtol=1e-6)


def test_max_norm_spans_all_axes_of_a_row():
    table = np.full((1, 2, 2), 3.0)
    np.testing.assert_allclose(embedding_lookup(table, [0], max_norm=3.0), 1.5, rtol=1e-15)


@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_max_norm_out_of_range(bad):
    with pytest.raises(ValueError, match="max_norm must be None or at least 0"):
        embedding_lookup(np.zeros((2, 2)), [0], max_norm=bad)


# ------------------------------------------------------------------ together with other uses


def test_sparse_and_dense_use_of_one_table():
    """tensorflow/tensorflow#21243, pytorch/pytorch#17437: the sum is one dense array."""
    v = Variable(np.ones((3, 5)))
    loss = np.sum(embedding_lookup(v, [1]) ** 2) + np.sum(v**2)
    (g,) = gradients(loss, [v])
    assert type(g) is np.ndarray
    np.testing.assert_array_equal(g, [[2] * 5, [4] * 5, [2] * 5])


def test_memory_of_mixed_use():
    """horovod/horovod#554: no slices of the whole table beside the dense gradient."""
    v = Variable(np.zeros((200_000, 16), np.float32))
    ids = np.arange(0, 3000)
    loss = sum(np.sum(embedding_lookup(v, ids + k)) for k in range(3))
    y = np.sum(v)
    tracemalloc.start()
    try:
        (g,) = gradients([loss, y], [v])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert type(g) is np.ndarray
    assert g[1, 0] == 3
    # Beyond the gradient itself: the three slices, and 20 % as the limit.
    assert peak <= 1.2 * v.nbytes


def test_two_lookups_of_one_table_stay_sparse():
    """The worked example of TensorFlow: sum(t[[0, 2]]) + 3 * sum(t[[2, 2]])."""
    t = Variable(np.zeros((3, 2)))
    loss = np.sum(embedding_lookup(t, [0, 2])) + 3.0 * np.sum(embedding_lookup(t, [2, 2]))
    (g,) = gradients(loss, [t])
    np.testing.assert_array_equal(dense(g), [[1, 1], [0, 0], [7, 7]])
    assert sorted(g.indices) == [0, 2, 2, 2]


def test_row_times_width_beyond_32_bits(tmp_path):
    """CVE-2019-16778, pytorch/FBGEMM PR#1186: 70e6 rows of 32 are more than 2**31 numbers."""
    n_rows = 70_000_000
    table = np.memmap(tmp_path / "table", np.float32, "w+", shape=(n_rows, 32))  # a sparse file
    table[n_rows - 1] = np.arange(32)
    x = Variable(table, copy=False)
    out = embedding_lookup(x, np.array([n_rows - 1, 0], np.int32))
    np.testing.assert_array_equal(np.asarray(out), [np.arange(32), np.zeros(32)])


def test_a_norm_beyond_every_float_limits_nothing() -> None:
    table = Variable(np.full((2, 2), 1e30, np.float32))
    rows = embedding_lookup(table, [1, 0], max_norm=10**400)
    np.testing.assert_array_equal(rows, table.numpy())
