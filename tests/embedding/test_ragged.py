"""The forms in which bags of ids and their weights are given."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from fastopt.embedding import RaggedIds, embedding_lookup_sparse
from fastopt.variable import Variable

TABLE = np.array([[1.0], [10.0], [100.0], [1000.0]])


def look_up(ids, weights=None, combiner="sum"):
    return embedding_lookup_sparse(TABLE, ids, weights, combiner=combiner)


def csr(ids, columns, indptr, shape, kind=scipy.sparse.csr_array, dtype=np.int64):
    return kind((np.array(ids, dtype), columns, indptr), shape=shape)


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=6))
def test_all_forms_agree(bags):
    ids = np.array([i for bag in bags for i in bag], np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])]).astype(np.int64)
    expected = np.array([[TABLE[bag].sum()] for bag in bags]).reshape(-1, 1)
    forms = [bags, [np.array(b, int) for b in bags], RaggedIds(ids, offsets), (ids, offsets)]
    if bags:
        columns = np.concatenate([np.arange(len(bag)) for bag in bags]).astype(np.int64)
        shape = (len(bags), 4)
        matrix = csr(ids, columns, offsets, shape)
        rows = np.repeat(np.arange(len(bags)), np.diff(offsets))
        forms += [
            matrix,
            csr(ids, columns, offsets, shape, scipy.sparse.csr_matrix),
            scipy.sparse.coo_array((ids, (rows, columns)), shape=shape),
            scipy.sparse.csc_array(matrix),
            scipy.sparse.lil_array(matrix),
            scipy.sparse.dok_array(matrix),
        ]
    for form in forms:
        if isinstance(form, (scipy.sparse.lil_array, scipy.sparse.dok_array)) and 0 in ids:
            continue  # scipy's conversion to these formats drops stored zeros
        np.testing.assert_array_equal(look_up(form), expected)


def test_id_zero_is_a_stored_zero():
    matrix = csr([0, 2, 0], [0, 1, 0], [0, 2, 3], (2, 2))
    np.testing.assert_array_equal(look_up(matrix), [[101], [1]])


def test_repeated_and_unsorted_columns():
    """Columns say nothing: entries at one place are two ids, not their sum."""
    matrix = csr([1, 2], [3, 3], [0, 2], (1, 4))
    np.testing.assert_array_equal(look_up(matrix), [[110]])
    matrix = csr([1, 2], [3, 0], [0, 2], (1, 4))
    np.testing.assert_array_equal(look_up(matrix), [[110]])
    coo = scipy.sparse.coo_array(([1, 2], ([0, 0], [3, 3])), shape=(1, 4))
    np.testing.assert_array_equal(look_up(coo), [[110]])


def test_caller_is_not_changed():
    """scipy/scipy#6603, lyst/lightfm#272: a conversion sorted the caller's matrix."""
    matrix = csr([3, 0, 1, 2], [2, 0, 2, 2], [0, 2, 4], (2, 4))
    coo = scipy.sparse.coo_array(([3, 0, 1], ([1, 0, 1], [2, 0, 2])), shape=(2, 4))
    kept = [a.copy() for a in (matrix.data, matrix.indices, matrix.indptr, coo.data, *coo.coords)]
    look_up(matrix)
    look_up(coo)
    now = (matrix.data, matrix.indices, matrix.indptr, coo.data, *coo.coords)
    for a, b in zip(now, kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_unordered_coo_is_sorted_by_bag():
    rows, columns = np.array([2, 0, 2, 0]), np.array([0, 1, 1, 0])
    coo = scipy.sparse.coo_array(([0, 1, 2, 3], (rows, columns)), shape=(3, 2))
    np.testing.assert_array_equal(look_up(coo), [[1010], [0], [101]])
    # Weights of any form follow the same order.
    weights = np.array([2.0, 3.0, 4.0, 5.0])
    sparse = scipy.sparse.coo_array((weights, (rows, columns)), shape=(3, 2))
    for w in (weights, sparse, Variable(weights)):
        np.testing.assert_array_equal(np.asarray(look_up(coo, w)), [[5030], [0], [402]])


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csc_array])
def test_mixed_widths_of_index_arrays(kind):
    """scipy/scipy#20182: indptr int64 and indices int32."""
    matrix = kind(csr([1, 2], [0, 1], [0, 1, 2], (2, 2)))
    matrix.indptr = matrix.indptr.astype(np.int64)
    matrix.indices = matrix.indices.astype(np.int32)
    np.testing.assert_array_equal(look_up(matrix), [[10], [100]])
    assert (matrix.indptr.dtype, matrix.indices.dtype) == (np.int64, np.int32)


def test_more_axes_keep_their_leading_shape():
    pytest.importorskip("scipy", minversion="1.15", reason="its sparse arrays have two axes")
    coo = scipy.sparse.coo_array(([0, 3, 1], ([0, 1, 1], [1, 0, 0], [0, 0, 1])), shape=(2, 2, 2))
    out = look_up(coo)
    assert out.shape == (2, 2, 1)
    np.testing.assert_array_equal(out[..., 0], [[0, 1], [1010, 0]])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([[0, 1]]), "sp_ids must be a scipy.sparse matrix of ids"),
        (3, "sp_ids must be a scipy.sparse matrix of ids"),
        ("ab", "sp_ids must be a scipy.sparse matrix of ids"),
        (None, "sp_ids must be a scipy.sparse matrix of ids"),
        (scipy.sparse.csr_array(np.array([[1.0]])), "ids stored in sp_ids must be integers"),
        (RaggedIds([0.5], [0, 1]), "the ids of sp_ids must be integers"),
        (RaggedIds([True], [0, 1]), "the ids of sp_ids must be integers"),
        (RaggedIds([0], [0.0, 1.0]), "the offsets of sp_ids must be integers"),
        ([[0], [1.5]], r"sp_ids\[1\] must be integers"),
        (scipy.sparse.bsr_array(np.array([[1, 2]])), "does not; use CSR"),
        (scipy.sparse.dia_array(np.array([[1, 2]])), "does not; use CSR"),
    ],
)
def test_forms_that_are_refused(ids, message):
    with pytest.raises(TypeError, match=message):
        look_up(ids)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (RaggedIds([0, 1], [0, 1]), "end with 1, but there are 2 ids"),
        (RaggedIds([0, 1], [0, 3]), "end with 3, beyond the 2 entries"),
        (RaggedIds([0, 1], [1, 2]), "must begin with 0"),
        (RaggedIds([0, 1], []), "must begin with 0"),
        (RaggedIds([0, 1], [0, 2, 1, 2]), "must not decrease: 1 follows 2 at position 2"),
        (RaggedIds([0, 1], [0, 2**63 - 1, -2, 2]), "must not decrease: -2 follows 922337203685"),
        (RaggedIds([[0, 1]], [0, 2]), "must be one-dimensional"),
        (RaggedIds([0, 1], [[0, 2]]), "must be one-dimensional"),
        ([0, 1], r"sp_ids\[0\] must be one-dimensional"),
        ([[[0]]], r"sp_ids\[0\] must be one-dimensional"),
        (scipy.sparse.coo_array([1, 2]), "must have a row for each bag"),
    ],
)
def test_parts_that_do_not_fit(ids, message):
    with pytest.raises(ValueError, match=message):
        look_up(ids)


def malformed(kind, **arrays):
    """Return a matrix whose arrays were replaced behind scipy's back."""
    matrix = kind(csr([1, 2], [0, 1], [0, 1, 2], (2, 2)))
    for name, array in arrays.items():
        setattr(matrix, name, np.array(array))
    return matrix


@pytest.mark.parametrize(
    "matrix",
    [
        malformed(scipy.sparse.csr_array, indptr=[0, 1, 99]),
        malformed(scipy.sparse.csr_array, indptr=[0, 5, 2]),
        malformed(scipy.sparse.csr_array, indptr=[0, 2]),
        malformed(scipy.sparse.csc_array, indptr=[0, 1, 99]),
        malformed(scipy.sparse.csc_array, indices=[0, 99]),
        malformed(scipy.sparse.csc_array, indices=[0, -1]),
        malformed(scipy.sparse.coo_array, data=[1]),
        malformed(scipy.sparse.coo_array, coords=(np.array([0, 7]), np.array([0, 1]))),
        malformed(scipy.sparse.coo_array, coords=(np.array([0, -1]), np.array([0, 1]))),
    ],
)
def test_malformed_matrices_are_errors(matrix):
    """scipy does not look, and its compiled code would read wild memory."""
    with pytest.raises(ValueError, match="sp_ids"):
        look_up(matrix)


def test_caller_may_refill_the_ids():
    from fastopt.autodiff import gradients

    x = Variable(np.zeros((4, 1)))
    matrix = csr([1, 2], [0, 0], [0, 1, 2], (2, 2))
    ids, offsets = np.array([1, 2]), np.array([0, 1, 2])
    for bags, arrays in [(RaggedIds(ids, offsets), (ids, offsets)), (matrix, (matrix.data,))]:
        out = embedding_lookup_sparse(x, bags, None, combiner="sum")
        for array in arrays:
            array[:] = 0
        (g,) = gradients(out, [x])
        np.testing.assert_array_equal(g.indices, [1, 2])


# ------------------------------------------------------------------ weights


def test_forms_of_weights():
    ids = csr([1, 0, 2], [0, 1, 0], [0, 2, 3], (2, 2))
    weights = csr([2.0, 3.0, 0.0], [0, 1, 0], [0, 2, 3], (2, 2), dtype=np.float64)
    expected = [[23], [0]]
    for w in (
        weights,
        scipy.sparse.csr_matrix(weights),
        np.array([2.0, 3.0, 0.0]),
        [2, 3, 0],
        [[2, 3], [0]],
        Variable(np.array([2.0, 3.0, 0.0])),
    ):
        np.testing.assert_array_equal(np.asarray(look_up(ids, w)), expected)
        if not scipy.sparse.issparse(w):
            np.testing.assert_array_equal(np.asarray(look_up([[1, 0], [2]], w)), expected)


@pytest.mark.parametrize(
    "weights",
    [
        [1.0],
        np.ones((2, 1)),
        [[1.0], [1.0, 1.0]],
        Variable(np.ones(2)),
        csr([1.0, 1.0, 1.0], [0, 1, 1], [0, 2, 3], (2, 2), dtype=np.float64),
        csr([1.0, 1.0, 1.0], [0, 0, 1], [0, 1, 3], (2, 2), dtype=np.float64),
        csr([1.0, 1.0], [0, 1], [0, 2, 2], (2, 2), dtype=np.float64),
        csr([1.0, 1.0, 1.0], [0, 1, 0], [0, 2, 3, 3], (3, 2), dtype=np.float64),
    ],
)
def test_weights_that_do_not_fit(weights):
    ids = csr([1, 0, 2], [0, 1, 0], [0, 2, 3], (2, 2))
    with pytest.raises(ValueError, match="sp_weights"):
        look_up(ids, weights)


def test_sparse_weights_need_sparse_ids():
    weights = csr([1.0], [0], [0, 1], (1, 1), dtype=np.float64)
    with pytest.raises(ValueError, match="must have its entries where sp_ids has them"):
        look_up([[1]], weights)


@pytest.mark.parametrize("weights", ["a", {0: 1.0}, [1j], [True], Variable([True])])
def test_weights_must_be_real(weights):
    with pytest.raises(TypeError, match="sp_weights must be"):
        look_up([[1]], weights)
