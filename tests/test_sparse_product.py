"""scipy.sparse matrices times variables: values, sparse gradients, operators and errors."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fastopt as fo
from fastopt.autodiff import Tensor, eager_mode, gradients
from fastopt.indexed_slices import IndexedSlices
from fastopt.sparse_product import sparse_matmul
from fastopt.variable import Variable
from tests.autodiff.check import check, dense

FORMATS = ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"]
KINDS = ["array", "matrix"]


def sparse(shape, kind="csr_array", density=0.4, dtype=np.float64, seed=0):
    """Return a random sparse matrix."""
    matrix = scipy.sparse.random(*shape, density, "csr", random_state=seed)
    return getattr(scipy.sparse, kind)(matrix.astype(dtype))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_operators(fmt, kind):
    """`A @ w`, `A.dot(w)`, `w @ A` and the function record the same product for every format."""
    a = sparse((4, 6), f"{fmt}_{kind}")
    full = a.toarray()
    for shape in [(6,), (6, 1), (6, 3)]:
        w = Variable(np.random.default_rng(1).normal(size=shape))
        products = [a @ w, a.dot(w), sparse_matmul(a, w), np.matmul(a, w), np.dot(a, w)]
        if kind == "matrix":
            products.append(a * w)  # the product of matrices, as scipy.sparse has it
        for y in products:
            assert isinstance(y, Tensor)
            np.testing.assert_allclose(np.asarray(y), full @ w.numpy(), rtol=1e-14, atol=1e-15)
            (g,) = gradients(y, [w])
            assert isinstance(g, IndexedSlices)
            expected = full.T @ np.ones(y.shape)
            np.testing.assert_allclose(g.to_dense(), expected, rtol=1e-14, atol=1e-15)
    for shape in [(4,), (1, 4), (3, 4)]:
        w = Variable(np.random.default_rng(2).normal(size=shape))
        for y in [w @ a, w.dot(a), sparse_matmul(w, a)]:
            assert isinstance(y, Tensor)
            np.testing.assert_allclose(np.asarray(y), w.numpy() @ full, rtol=1e-14, atol=1e-15)
            (g,) = gradients(y, [w])
            assert isinstance(g, IndexedSlices) == (len(shape) == 1)
            expected = np.ones(y.shape) @ full.T
            np.testing.assert_allclose(dense(g), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("leaf", [Tensor, Variable])
@pytest.mark.parametrize("dense_shape", [(6,), (6, 1), (6, 3)])
def test_derivatives_left(dense_shape, leaf):
    a = sparse((4, 6), dtype=np.float32)
    w = np.random.default_rng(3).normal(size=dense_shape)
    check(lambda w: a @ w, w, leaf=leaf)
    check(lambda w: a @ (2.0 * w), w, leaf=leaf)


@pytest.mark.parametrize("leaf", [Tensor, Variable])
@pytest.mark.parametrize("dense_shape", [(4,), (1, 4), (3, 4)])
def test_derivatives_right(dense_shape, leaf):
    a = sparse((4, 6), dtype=np.float32)
    w = np.random.default_rng(4).normal(size=dense_shape)
    check(lambda w: w @ a, w, leaf=leaf)
    check(lambda w: (2.0 * w) @ a, w, leaf=leaf)


@given(
    hnp.arrays(np.float64, (3, 5), elements=st.integers(-3, 3).map(float)),
    hnp.arrays(np.float64, (5, 2), elements=st.integers(-3, 3).map(float)),
    st.sampled_from(FORMATS),
)
def test_equals_the_dense_product(full, values, fmt):
    """Whole numbers: every order of the sums gives the same bits."""
    a = getattr(scipy.sparse, f"{fmt}_array")(full)
    w = Variable(values)
    upstream = np.arange(6.0).reshape(3, 2)
    y = a @ w
    np.testing.assert_array_equal(np.asarray(y), full @ values)
    (g,) = gradients(y, [w], grad_ys=upstream)
    np.testing.assert_array_equal(g.to_dense(), full.T @ upstream)


def test_gradient_lists_the_columns_with_entries():
    """Each once, in order of first appearance by row; a stored zero counts as an entry."""
    a = scipy.sparse.csr_array(([5.0, 1.0, 0.0, 2.0], [7, 2, 4, 7], [0, 2, 2, 4]), shape=(3, 9))
    w = Variable(np.zeros((9, 2)))
    (g,) = gradients(a @ w, [w], grad_ys=np.array([[1.0, 10], [5, 5], [100, 1000]]))
    np.testing.assert_array_equal(g.indices, [7, 2, 4])
    np.testing.assert_array_equal(g.values, [[205, 2050], [1, 10], [0, 0]])
    assert g.dense_shape == (9, 2)
    v = Variable(np.zeros(3))
    (g,) = gradients(v @ a, [v])
    np.testing.assert_array_equal(g.indices, [0, 2])
    np.testing.assert_array_equal(g.values, [6, 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_vectors_read_each_row_once(dtype, index):
    """The same bits as an unrecorded product, and as sums in order of arrival."""
    rng = np.random.default_rng(11)
    columns = rng.integers(0, 500, 3_000).astype(index)
    entries = rng.normal(size=3_000).astype(dtype)
    indptr = np.sort(np.concatenate([[0, 3_000], rng.integers(0, 3_001, 98)])).astype(index)
    a = scipy.sparse.csr_array((entries, columns, indptr), shape=(99, 500))
    w = Variable(rng.normal(size=500).astype(dtype))
    y = a @ w
    with eager_mode():
        np.testing.assert_array_equal(np.asarray(y), np.asarray(a @ w))
    upstream = rng.normal(size=99).astype(dtype)
    wanted = np.zeros(500, dtype)
    np.add.at(wanted, columns, entries * np.repeat(upstream, np.diff(indptr)))
    for _ in range(2):
        (g,) = gradients(y, [w], grad_ys=upstream)
        assert g.values.dtype == dtype and g.indices.dtype == index
        np.testing.assert_array_equal(g.indices, np.unique(columns))
        np.testing.assert_array_equal(g.values, wanted[g.indices])


def test_repeated_entries_add_up():
    a = scipy.sparse.csr_array(([1.0, 2.0], [1, 1], [0, 2]), shape=(1, 3))
    w = Variable(np.array([1.0, 10.0, 100.0]))
    y = a @ w
    np.testing.assert_array_equal(np.asarray(y), [30])
    (g,) = gradients(y, [w])
    np.testing.assert_array_equal(g.to_dense(), [0, 3, 0])


def test_caller_is_not_changed():
    """scipy/scipy#6603: neither sorted nor summed behind the caller's back."""
    a = scipy.sparse.csr_matrix(([1.0, 2.0, 3.0], [2, 0, 2], [0, 3]), shape=(1, 3))
    kept = [x.copy() for x in (a.data, a.indices, a.indptr)]
    w = Variable(np.ones(3))
    gradients(a @ w, [w])
    for x, y in zip((a.data, a.indices, a.indptr), kept, strict=True):
        np.testing.assert_array_equal(x, y)


def test_mixed_widths_of_index_arrays():
    """scipy/scipy#20182."""
    a = sparse((4, 6))
    a.indptr = a.indptr.astype(np.int64)
    w = Variable(np.ones(6))
    (g,) = gradients(a @ w, [w])
    np.testing.assert_allclose(g.to_dense(), a.toarray().sum(0), rtol=1e-14)


@pytest.mark.parametrize("w_dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "a_dtype", [bool, np.int8, np.int64, np.float32, np.float64, np.longdouble]
)
def test_dtypes(a_dtype, w_dtype):
    """The product has the dtype that scipy gives it, the gradient that of the variable."""
    a = sparse((4, 6), dtype=a_dtype)
    w = Variable(np.ones(6, w_dtype))
    y = a @ w
    assert y.dtype == (a @ np.ones(6, w_dtype)).dtype
    (g,) = gradients(y, [w])
    assert g.dtype == w_dtype
    np.testing.assert_allclose(g.to_dense(), a.toarray().astype(float).sum(0), rtol=1e-6)


@pytest.mark.parametrize("shape", [(0, 6), (4, 0), (4, 6)])
def test_no_entries(shape):
    a = scipy.sparse.csr_array(shape)
    w = Variable(np.ones((shape[1], 2)))
    y = a @ w
    np.testing.assert_array_equal(np.asarray(y), np.zeros((shape[0], 2)))
    (g,) = gradients(y, [w])
    assert len(g) == 0
    v = Variable(np.ones(shape[0]))
    (g,) = gradients(v @ a, [v])
    assert len(g) == 0


def test_a_million_features_train_sparsely():
    """The gradient holds the touched rows only, however large the table is."""
    n = 1_000_000
    a = scipy.sparse.csr_array(([1.0] * 3, [5, n - 1, 5], [0, 2, 3]), shape=(2, n))
    w = Variable(np.zeros((n, 1), np.float32))
    (g,) = gradients(np.sum(a @ w), [w])
    np.testing.assert_array_equal(g.indices, [5, n - 1])
    assert g.values.nbytes == 8


def test_logistic_regression_touches_only_its_features():
    """FTRL on a wide table: rows of features that never occur keep their bits."""
    n, rng = 100_000, np.random.default_rng(5)
    used = rng.choice(n, 50, replace=False)
    columns = rng.choice(used, (200, 8))
    a = scipy.sparse.csr_array(
        (np.ones(1600, np.float32), columns.ravel(), np.arange(0, 1601, 8)), shape=(200, n)
    )
    labels = (np.isin(columns, used[:25]).sum(1) > 4).astype(np.float32)
    start = rng.normal(scale=1e-3, size=n).astype(np.float32)
    w = Variable(start)
    b = Variable(np.float32(0))
    opt = fo.FtrlOptimizer(0.5)

    def loss():
        z = a @ w + b
        return np.mean(fo.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=z))

    before = float(loss())
    for _ in range(30):
        opt.minimize(loss)
    assert float(loss()) < before / 2
    changed = np.flatnonzero(w.numpy() != start)
    assert set(changed) <= set(columns.ravel())
    assert len(changed) > 40


def test_plain_arrays_give_plain_arrays():
    a = sparse((4, 6))
    w = np.arange(6.0)
    assert type(sparse_matmul(a, w)) is np.ndarray
    np.testing.assert_array_equal(sparse_matmul(a, w), a @ w)
    np.testing.assert_array_equal(sparse_matmul(w[:4], a), w[:4] @ a)
    np.testing.assert_array_equal(sparse_matmul(a, w.tolist()), a @ w)
    x = Variable(w)
    with eager_mode():
        assert type(a @ x) is np.ndarray


def test_shapes_must_fit():
    a = sparse((4, 6))
    for bad in (np.zeros(4), np.zeros((4, 2))):
        with pytest.raises(
            ValueError, match=r"a of shape \(4, 6\) and b of shape \(4,.*do not fit"
        ):
            a @ Variable(bad)
    with pytest.raises(ValueError, match=r"a of shape \(6,\) and b of shape \(4, 6\) do not fit"):
        Variable(np.zeros(6)) @ a
    for bad in (np.float64(1), np.zeros((6, 1, 1))):
        with pytest.raises(ValueError, match="must have one or two axes"):
            sparse_matmul(a, Variable(bad))
    with pytest.raises(ValueError, match="a must be two-dimensional"):
        sparse_matmul(scipy.sparse.coo_array([1.0, 2.0]), Variable(np.zeros(2)))


def test_one_factor_is_sparse():
    a = sparse((4, 4))
    with pytest.raises(TypeError, match="both are sparse"):
        sparse_matmul(a, a)
    with pytest.raises(TypeError, match="neither is sparse"):
        sparse_matmul(np.eye(4), np.eye(4))


def test_numbers_must_be_real():
    with pytest.raises(TypeError, match="a must hold real numbers, got dtype complex128"):
        sparse_matmul(sparse((2, 2), dtype=complex), np.ones(2))
    with pytest.raises(TypeError, match="b must hold real numbers, got dtype <U1"):
        sparse_matmul(sparse((2, 2)), ["a", "b"])


def malformed(fmt, **arrays):
    """Return a matrix whose arrays were replaced behind scipy's back."""
    matrix = getattr(scipy.sparse, f"{fmt}_array")(np.array([[1.0, 0.0], [0.0, 2.0]]))
    for name, array in arrays.items():
        setattr(matrix, name, np.array(array))
    return matrix


@pytest.mark.parametrize(
    "matrix",
    [
        malformed("csr", indptr=[0, 1, 99]),
        malformed("csr", indptr=[0, 5, 2]),
        malformed("csr", indptr=[1, 1, 2]),
        malformed("csr", indptr=[0, 2]),
        malformed("csr", indices=[0, 99]),
        malformed("csr", indices=[-1, 1]),
        malformed("csr", indices=[0]),
        malformed("csc", indptr=[0, 1, 99]),
        malformed("csc", indices=[0, 99]),
        malformed("bsr", indices=[0, 99]),
        malformed("coo", coords=(np.array([0, 7]), np.array([0, 1]))),
        malformed("coo", coords=(np.array([0, 1]), np.array([0, -1]))),
    ],
)
def test_malformed_matrices_are_errors(matrix):
    """scipy does not look, and its compiled code would read wild memory."""
    with pytest.raises(ValueError, match="a is malformed"):
        sparse_matmul(matrix, Variable(np.ones(2)))


def test_elementwise_products_are_refused():
    """They would silently lose the gradient."""
    w = Variable(np.ones(4))
    a = sparse((4, 4))
    for product in (lambda: a * w, lambda: w * a, lambda: a.multiply(w)):
        with pytest.raises((TypeError, AttributeError)):
            product()
    for other in (lambda: w / a, lambda: a / w, lambda: w + a, lambda: a - w):
        with pytest.raises((TypeError, NotImplementedError)):
            other()


def test_numpy_products_take_no_options():
    w = Variable(np.ones(4))
    with pytest.raises(TypeError, match="numpy.matmul of a sparse matrix takes no options"):
        np.matmul(sparse((4, 4)), w, dtype=np.float32)


def test_history_is_not_lost_in_a_sparse_matrix():
    w = Variable(np.ones((2, 2)))
    assert scipy.sparse.csr_array(w).nnz == 4  # of a variable, the value
    with pytest.raises(ValueError, match="unrecognized csr_") as error:
        scipy.sparse.csr_array(w * 2.0)
    assert "would lose the history of 'numpy.multiply'" in str(error.value.__cause__)
    assert scipy.sparse.csr_array(np.asarray(w * 2.0)).nnz == 4
