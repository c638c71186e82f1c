"""`safe_embedding_lookup_sparse`: ids that are missing, bags that are empty."""

import numpy as np
import pytest
import scipy.sparse

from fastopt.autodiff import gradients
from fastopt.embedding import RaggedIds, safe_embedding_lookup_sparse
from fastopt.variable import Variable
from tests.autodiff.check import check

TABLE = np.array([[1.0], [10.0], [100.0], [1000.0]])


def test_negative_ids_are_left_out():
    out = safe_embedding_lookup_sparse(TABLE, [[1, -1, 3], [-5], []])
    np.testing.assert_array_equal(out, [[505], [0], [0]])


def test_empty_bags_get_the_default():
    ids = [[], [1, -1], [-1], [2], []]
    out = safe_embedding_lookup_sparse(TABLE, ids, default_id=3)
    np.testing.assert_array_equal(out, [[1000], [10], [1000], [100], [1000]])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_weights_that_are_not_positive(combiner):
    """They are left out, except that a sum keeps them."""
    ids, weights = [[1, 0], [0], [2]], [[2.0, -1.0], [0.0], [1.0]]
    out = safe_embedding_lookup_sparse(TABLE, ids, weights, combiner, default_id=3)
    expected = {
        "sum": [[19], [0], [100]],
        "mean": [[10], [1000], [100]],
        "sqrtn": [[10], [1000], [100]],
    }
    np.testing.assert_array_equal(out, expected[combiner])


@pytest.mark.parametrize("default_id", [None, 2])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("parts", [1, 3])
def test_derivatives(combiner, default_id, parts):
    """Of the tables and the weights; a weight that is left out gets 0."""
    rng = np.random.default_rng(0)
    tables = np.array_split(rng.normal(size=(5, 2)), parts)
    bags = RaggedIds([4, -1, 0, 0, 1, 3], [0, 0, 2, 4, 4, 5, 6, 6])
    weights = np.array([1.5, 2.0, 0.5, 1.0, 2.0, -1.0])

    def look_up(weights, *tables):
        return safe_embedding_lookup_sparse(list(tables), bags, weights, combiner, default_id)

    check(look_up, weights, *tables, leaf=Variable)
    w = Variable(weights)
    (g,) = gradients(look_up(w, *tables), [w])
    assert type(g) is np.ndarray
    assert g[1] == 0
    if combiner != "sum":
        assert g[5] == 0


def test_gradient_of_the_default_row():
    x = Variable(TABLE)
    out = safe_embedding_lookup_sparse(x, [[], [0], []], default_id=3)
    (g,) = gradients(out, [x])
    np.testing.assert_array_equal(g.to_dense(), [[1], [0], [0], [2]])


def test_default_strategy_is_div():
    tables = [TABLE[:2], TABLE[2:]]
    np.testing.assert_array_equal(safe_embedding_lookup_sparse(tables, [[1], [2]]), [[10], [100]])
    np.testing.assert_array_equal(
        safe_embedding_lookup_sparse(tables, [[1], [2]], partition_strategy="mod"), [[100], [10]]
    )


def test_more_axes_keep_their_leading_shape():
    pytest.importorskip("scipy", minversion="1.15", reason="its sparse arrays have two axes")
    coo = scipy.sparse.coo_array(([0, -1, 1], ([0, 1, 1], [1, 0, 1], [0, 0, 1])), shape=(2, 2, 2))
    out = safe_embedding_lookup_sparse(TABLE, coo, default_id=2)
    np.testing.assert_array_equal(out, [[[100], [1]], [[100], [10]]])


def test_max_norm():
    out = safe_embedding_lookup_sparse(TABLE, [[3, 0]], combiner="sum", max_norm=5.0)
    np.testing.assert_array_equal(out, [[6]])


def test_errors():
    with pytest.raises(IndexError, match="sparse_ids: id 4 at position 2 .* params of 4 rows"):
        safe_embedding_lookup_sparse(TABLE, [[-1, 0], [4]])
    # What does not count may be anything.
    out = safe_embedding_lookup_sparse(TABLE, [[4, 1]], [[0.0, 1.0]])
    np.testing.assert_array_equal(out, [[10]])
    for bad in (-1, 4):
        with pytest.raises(IndexError, match=f"default_id {bad} is out of range for 4 rows"):
            safe_embedding_lookup_sparse(TABLE, [[]], default_id=bad)
    for combiner in ("max", np.array(["sum", "mean"])):
        with pytest.raises(ValueError, match="combiner must be one of"):
            safe_embedding_lookup_sparse(TABLE, [[0]], combiner=combiner)
    with pytest.raises(TypeError, match="sparse_ids must be"):
        safe_embedding_lookup_sparse(TABLE, np.array([[0]]))
    with pytest.raises(ValueError, match="sparse_weights .* do not fit 1 ids in sparse_ids"):
        safe_embedding_lookup_sparse(TABLE, [[0]], np.ones(2))


def test_caller_is_not_changed():
    ids, offsets = np.array([0, -1]), np.array([0, 2])
    safe_embedding_lookup_sparse(TABLE, RaggedIds(ids, offsets), default_id=1)
    np.testing.assert_array_equal(ids, [0, -1])
    np.testing.assert_array_equal(offsets, [0, 2])
