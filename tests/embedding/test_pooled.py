"""`embedding_lookup_sparse`: combiners, weights, empty bags, clipping and gradients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastopt as fo
from fastopt import threads
from fastopt.autodiff import Tensor, eager_mode, gradients
from fastopt.embedding import RaggedIds, embedding_lookup_sparse
from fastopt.variable import Variable
from tests.autodiff.check import check

COMBINERS = ["sum", "mean", "sqrtn"]


def split(table, parts, strategy):
    """Return a table as parts."""
    if strategy == "mod":
        return [table[p::parts] for p in range(parts)]
    return np.array_split(table, parts)


def reference(table, ids, offsets, weights, combiner, max_norm=None):
    """Combine bags in float64, one by one."""
    table = np.asarray(table, np.float64)
    w = np.ones(len(ids)) if weights is None else np.asarray(weights, np.float64)
    out = np.zeros((len(offsets) - 1, *table.shape[1:]))
    for b in range(len(offsets) - 1):
        for k in range(offsets[b], offsets[b + 1]):
            row = table[ids[k]]
            if max_norm is not None:
                row = row * max_norm / max(np.linalg.norm(row), max_norm)
            out[b] += w[k] * row
        bag = w[offsets[b] : offsets[b + 1]]
        divisor = {"sum": 1, "mean": bag.sum(), "sqrtn": np.sqrt((bag**2).sum())}[combiner]
        out[b] = out[b] / divisor if divisor else 0
    return out


def random_bags(rng, n_bags, n_rows, most=5):
    """Return ids and offsets of bags of up to `most` ids, the last one empty."""
    counts = rng.integers(0, most + 1, size=n_bags)
    counts[-1] = 0
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return rng.integers(0, n_rows, size=offsets[-1]), offsets


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize(("parts", "strategy"), [(1, "mod"), (5, "mod"), (5, "div")])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("id_dtype", [np.int32, np.int64])
def test_values(combiner, parts, strategy, weighted, dtype, id_dtype):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(13, 3)).astype(dtype)
    ids, offsets = random_bags(rng, 20, 13)
    weights = rng.uniform(0.5, 2, size=ids.size).astype(dtype) if weighted else None
    bags = RaggedIds(ids.astype(id_dtype), offsets)
    out = embedding_lookup_sparse(
        split(table, parts, strategy), bags, weights, strategy, combiner=combiner
    )
    assert type(out) is np.ndarray
    assert out.dtype == dtype
    # Sums of five products of order one; float16 is combined in float32 and rounded once.
    tol = {2: 2e-3, 4: 2e-6, 8: 1e-14}[np.dtype(dtype).itemsize]
    expected = reference(table, ids, offsets, weights, combiner)
    np.testing.assert_allclose(out, expected, rtol=tol, atol=tol)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize(("parts", "strategy"), [(1, "mod"), (3, "div")])
@pytest.mark.parametrize("max_norm", [None, 1.2])
@pytest.mark.parametrize("row_shape", [(2,), (), (2, 2)])
def test_derivatives(combiner, parts, strategy, max_norm, row_shape):
    """Of the tables and of the weights."""
    rng = np.random.default_rng(1)
    table = rng.normal(size=(7, *row_shape))
    ids, offsets = random_bags(rng, 6, 7)
    bags = RaggedIds(ids, offsets)

    def look_up(weights, *tables):
        return embedding_lookup_sparse(
            list(tables), bags, weights, strategy, combiner=combiner, max_norm=max_norm
        )

    weights = rng.uniform(0.5, 2, size=ids.size)
    check(look_up, weights, *split(table, parts, strategy), leaf=Variable)
    check(lambda *tables: look_up(None, *tables), *split(table, parts, strategy), leaf=Variable)


def test_default_combiner_is_mean():
    table = np.array([[1.0], [3.0]])
    np.testing.assert_array_equal(embedding_lookup_sparse(table, [[0, 1]], None), [[2]])


def test_gradient_rows_are_unique_in_order_of_first_appearance():
    x = Variable(np.zeros((6, 2)))
    out = embedding_lookup_sparse(x, [[4, 1], [], [4, 0, 4]], None, combiner="sum")
    (g,) = gradients(out, [x], grad_ys=np.array([[1.0, 2], [10, 20], [100, 200]]))
    assert g.dense_shape == (6, 2)
    np.testing.assert_array_equal(g.indices, [4, 1, 0])
    np.testing.assert_array_equal(g.values, [[201, 402], [1, 2], [100, 200]])


def test_trailing_empty_bags_stay():
    """tensorflow/tensorflow#38792: the trailing empty bag vanished."""
    x = Variable(np.arange(1.0, 10).reshape(3, 3))
    out = embedding_lookup_sparse(x, [[], [], [], [1], []], None, combiner="mean")
    assert out.shape == (5, 3)
    np.testing.assert_array_equal(np.asarray(out)[3], [4, 5, 6])
    np.testing.assert_array_equal(np.delete(np.asarray(out), 3, 0), np.zeros((4, 3)))
    (g,) = gradients(out, [x])
    np.testing.assert_array_equal(g.indices, [1])


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_all_bags_empty(combiner, weighted):
    """tensorflow/tensorflow#72785: the gradient of 8192 empty bags was leftover memory."""
    x = Variable(np.ones((10, 4), np.float32))
    bags = RaggedIds(np.empty(0, np.int64), np.zeros(8193, np.int64))
    weights = np.empty(0) if weighted else None
    out = embedding_lookup_sparse(x, bags, weights, combiner=combiner)
    assert out.shape == (8192, 4)
    assert not np.asarray(out).any()
    (g,) = gradients(np.sum(out), [x])
    assert len(g) == 0
    fo.MomentumOptimizer(0.5, 0.9).apply_gradients([(g, x)])
    np.testing.assert_array_equal(x.numpy(), np.ones((10, 4), np.float32))


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize(("bags", "row_shape"), [([], (2,)), ([], (0,)), ([[0, 1], []], (2, 0))])
def test_nothing_to_sum(bags, row_shape, combiner):
    """No bags at all, and rows without elements."""
    x = Variable(np.ones((3, *row_shape)))
    w = Variable(np.ones(sum(map(len, bags))))
    out = embedding_lookup_sparse(x, bags, w, combiner=combiner)
    assert out.shape == (len(bags), *row_shape)
    got = gradients(out, [x, w])
    assert got[0].values.size == 0
    np.testing.assert_array_equal(got[1], np.zeros(w.shape))


def test_id_out_of_range_fails_in_the_lookup():
    """pytorch/pytorch#70170, PR#71904: it passed, and the backward pass crashed the process."""
    x = Variable(np.zeros((3, 4)), name="items")
    for bags in ([[0, 2, 3]], [[1], [], [0, -1]]):
        with pytest.raises(
            IndexError, match=r"sp_ids: id (3|-1) at position 2 .* 'items.*' of 3 rows"
        ):
            embedding_lookup_sparse(x, bags, None, combiner="sum")
    with pytest.raises(IndexError, match="sp_ids of 'tags': id 3"):
        embedding_lookup_sparse(x, [[3]], None, name="tags")


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_zero_divisor_gives_zero(combiner):
    """Also in the gradients: nothing is divided."""
    x = Variable(np.array([[1.0], [2.0]]))
    w = Variable(np.array([0.0, 0.0, 3.0]))
    bags = RaggedIds([0, 1, 1], [0, 2, 3])
    with np.errstate(all="raise"):
        out = embedding_lookup_sparse(x, bags, w, combiner=combiner)
        got = gradients(out, [x, w])
    np.testing.assert_array_equal(np.asarray(out), [[0], [2]])
    np.testing.assert_array_equal(got[0].to_dense(), [[0], [1]])
    np.testing.assert_array_equal(got[1], [0, 0, 0])


def test_weights_that_cancel():
    out = embedding_lookup_sparse(np.array([[1.0], [5.0]]), [[0, 1]], [[1.0, -1.0]])
    np.testing.assert_array_equal(out, [[0]])


def test_negative_weights():
    table = np.array([[1.0], [5.0]])
    for combiner, expected in [("sum", -3), ("mean", -3), ("sqrtn", -3 / np.sqrt(5))]:
        out = embedding_lookup_sparse(table, [[0, 1]], [[2.0, -1.0]], combiner=combiner)
        np.testing.assert_allclose(out, [[expected]], rtol=1e-15)


def test_tiny_weights_do_not_overflow():
    """1 / 1e-44 is beyond float32; the quotient of weight and sum is not."""
    table = np.array([[1.0], [3.0]], np.float32)
    weights = np.array([1e-44, 1e-44], np.float32)
    out = embedding_lookup_sparse(table, RaggedIds([0, 1], [0, 2]), weights)
    np.testing.assert_array_equal(out, [[2]])


def test_weights_are_cast_to_the_dtype_of_the_table():
    x = Variable(np.ones((2, 1), np.float32))
    w = Variable(np.array([0.5, 0.25]))
    out = embedding_lookup_sparse(x, RaggedIds([0, 1], [0, 2]), w, combiner="sum")
    assert out.dtype == np.float32
    got = gradients(out, [x, w])
    assert [g.dtype for g in got] == [np.float32, np.float64]
    integers = embedding_lookup_sparse(x, RaggedIds([0, 1], [0, 2]), [2, 3], combiner="sum")
    np.testing.assert_array_equal(np.asarray(integers), [[5]])


def test_half_precision_is_combined_in_float32():
    """A float16 sum of 4096 ones would stop at 2048."""
    table = np.ones((1, 1), np.float16)
    bags = RaggedIds(np.zeros(4096, int), [0, 4096])
    assert embedding_lookup_sparse(table, bags, None, combiner="sum") == 4096
    x = Variable(table)
    (g,) = gradients(embedding_lookup_sparse(x, bags, None, combiner="sum"), [x])
    assert g.dtype == np.float16
    assert g.values == 4096


def test_only_the_weights_are_variable():
    w = Variable(np.array([1.0, 2.0]))
    out = embedding_lookup_sparse(np.array([[1.0], [4.0]]), [[0, 1]], w, combiner="sum")
    assert isinstance(out, Tensor)
    (g,) = gradients(out, [w])
    np.testing.assert_array_equal(g, [1, 4])


def test_training_between_forward_and_backward_changes_no_gradient():
    """The gradient is that of the values which were looked up."""
    from fastopt.autodiff import Recording, backward

    x = Variable(np.array([[3.0], [4.0]]))
    w = Variable(np.array([1.0, 2.0]))
    with Recording():
        out = embedding_lookup_sparse(x, [[0, 1]], w, combiner="sum", max_norm=2.0)
    x.assign([[100.0], [-100.0]])
    got = backward([out], [x, w])
    np.testing.assert_array_equal(got[1], [2, 2])
    np.testing.assert_array_equal(
        got[0].to_dense(), [[0], [0]]
    )  # along a clipped row nothing grows


def test_gradient_of_a_computed_table_is_dense():
    x = Variable(np.ones((3, 2)))
    (g,) = gradients(embedding_lookup_sparse(x * 2.0, [[2, 2]], None, combiner="sum"), [x])
    np.testing.assert_array_equal(g, [[0, 0], [0, 0], [4, 4]])


def test_combiner_is_checked():
    with pytest.raises(ValueError, match="one of 'mean', 'sqrtn', 'sum', got 'max'"):
        embedding_lookup_sparse(np.ones((2, 1)), [[0]], None, combiner="max")


def test_table_must_be_floating():
    with pytest.raises(TypeError, match="params must be of a floating dtype, got int64"):
        embedding_lookup_sparse(np.ones((2, 1), np.int64), [[0]], None)


def test_plain_tables_of_any_layout():
    table = np.arange(24.0).reshape(6, 4)
    for view in (np.asfortranarray(table), table[::-1], table[:, ::2], table.astype(">f8")):
        out = embedding_lookup_sparse(view, [[0, 2], [1]], None, combiner="sum")
        np.testing.assert_array_equal(out, [view[0] + view[2], view[1]])


def test_eager_mode_records_nothing():
    x = Variable(np.ones((3, 2)))
    with eager_mode():
        assert type(embedding_lookup_sparse(x, [[0]], None)) is np.ndarray


def test_same_bits_for_every_number_of_threads():
    """piskvorky/gensim#546, benfred/implicit#376: sums may not depend on the number of threads."""
    rng = np.random.default_rng(2)
    ids, offsets = random_bags(rng, 5000, 300, most=12)
    table = rng.normal(size=(300, 16)).astype(np.float32)
    weights = rng.normal(size=ids.size).astype(np.float32)
    upstream = rng.normal(size=(5000, 16)).astype(np.float32)
    before = threads.get_num_threads()
    results = []
    try:
        for n in (1, 2, 5):
            threads.set_num_threads(n)
            x = Variable(table)
            out = embedding_lookup_sparse(x, RaggedIds(ids, offsets), weights)
            (g,) = gradients(out, [x], grad_ys=upstream)
            results.append((np.asarray(out).tobytes(), g.values.tobytes(), g.indices.tobytes()))
    finally:
        threads.set_num_threads(before)
    assert results[0] == results[1] == results[2]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(-4, 4)), max_size=4), max_size=6),
    st.sampled_from(COMBINERS),
    st.integers(1, 3),
    st.sampled_from(["mod", "div"]),
)
def test_bags_equal_the_reference(bags, combiner, parts, strategy):
    table = np.arange(1.0, 13).reshape(6, 2)
    ids = [[i for i, _ in bag] for bag in bags]
    weights = [[float(w) for _, w in bag] for bag in bags]
    offsets = np.concatenate([[0], np.cumsum([len(b) for b in bags])]).astype(int)
    out = embedding_lookup_sparse(
        split(table, parts, strategy), ids, weights, strategy, combiner=combiner
    )
    flat = [i for bag in ids for i in bag]
    expected = reference(table, flat, offsets, sum(weights, []), combiner)
    np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_whichever_way_it_is_looked_up(combiner, weighted, dtype):
    """What needs no conversion goes through one kernel, all else through several."""
    rng = np.random.default_rng(5)
    ids, offsets = random_bags(rng, 30, 20)
    weights = rng.normal(size=len(ids)).astype(dtype) if weighted else None
    table = fo.Variable(rng.normal(size=(20, 6)).astype(dtype))
    above = rng.normal(size=(30, 6)).astype(dtype)
    strided = np.repeat(ids, 2)[::2]

    def both_ways(table):
        return [
            fo.embedding_lookup_sparse(table, fo.RaggedIds(x, offsets), weights, combiner=combiner)
            for x in (ids, strided)
        ]

    one, other = both_ways(table)
    assert one.numpy().tobytes() == other.numpy().tobytes()
    given = [fo.gradients(out, [table], grad_ys=[above])[0] for out in (one, other)]
    np.testing.assert_array_equal(given[0].indices, given[1].indices, strict=True)
    assert given[0].values.tobytes() == given[1].values.tobytes()
    plain, other = both_ways(table.numpy())
    assert type(plain) is np.ndarray
    assert plain.tobytes() == other.tobytes() == one.numpy().tobytes()


def test_rows_that_wait_for_their_update_are_brought_up_to_date():
    """Adam makes up for what a row has missed when somebody looks at it."""

    def trained(lookup):
        table = fo.Variable(np.linspace(-1, 1, 40).reshape(20, 2))
        optimizer = fo.AdamOptimizer(0.1)
        for k in range(5):
            slices = fo.IndexedSlices(np.ones((1, 2)), np.array([k]), (20, 2))
            optimizer.apply_gradients([(slices, table)])
        return lookup(table)

    ids, offsets = np.array([0, 1, 4, 9]), np.array([0, 3, 4])
    bags = fo.RaggedIds(ids, offsets)
    found = trained(lambda table: fo.embedding_lookup_sparse(table, bags, None, combiner="sum"))
    table = trained(lambda table: table.numpy())
    np.testing.assert_array_equal(found.numpy()[0], table[0] + table[1] + table[4])
    np.testing.assert_array_equal(found.numpy()[1], table[9])


def test_ids_and_weights_may_change_before_the_gradient_is_wanted():
    ids, offsets, weights = np.array([0, 2, 1]), np.array([0, 2, 3]), np.array([1.0, 2.0, 3.0])
    table = fo.Variable(np.ones((4, 1)))
    out = fo.embedding_lookup_sparse(table, (ids, offsets), weights, combiner="sum")
    ids[:], offsets[:], weights[:] = 3, 0, 0
    (gradient,) = fo.gradients(out, [table], grad_ys=[np.array([[1.0], [10.0]])])
    np.testing.assert_array_equal(gradient.indices, [0, 2, 1])
    np.testing.assert_array_equal(gradient.values, [[1.0], [2.0], [30.0]])
