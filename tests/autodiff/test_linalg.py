"""Derivatives of products and norms."""

import numpy as np
import pytest

from fastopt.autodiff import Tensor, gradients
from fastopt.variable import Variable

from .check import apart, check, normal

MATMUL = [
    ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((1, 3), (3, 1)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (3,)), ((3,), (5, 3, 2)), ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (1, 3, 4)), ((4, 1, 2, 3), (5, 3, 2)), ((4, 5, 2, 3), (3, 2)), ((4, 5, 2, 3), (3,)),
    ((3,), (4, 5, 3, 2)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((0, 2, 3), (3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", MATMUL, ids=str)
def test_matmul(shapes):
    check(np.matmul, normal(*shapes[0], seed=1), normal(*shapes[1], seed=2))
    check(lambda x, y: x @ y, normal(*shapes[0], seed=1), normal(*shapes[1], seed=2))


def test_dot_method():
    y = normal(3).astype(np.float32)
    check(lambda x: x.dot(y), normal(2, 3))


def test_matmul_with_constants():
    a = normal(2, 3).astype(np.float32)
    check(lambda x: a @ x, normal(3, 2))
    check(lambda x: x @ a, normal(4, 2))
    check(lambda x: x @ x.T, normal(2, 3))


DOT = [
    ((), ()), ((), (2, 3)), ((3,), ()), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3,)), ((5, 2, 3), (3, 4)), ((3,), (5, 3, 2)), ((2, 3), (5, 3, 2)),
    ((4, 2, 3), (5, 3, 2)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", DOT, ids=str)
def test_dot(shapes):
    check(np.dot, normal(*shapes[0], seed=1), normal(*shapes[1], seed=2))


INNER = [
    ((), (2,)),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((2, 3), (4, 3)),
    ((5, 2, 3), (4, 3)),
]


@pytest.mark.parametrize("shapes", INNER, ids=str)
def test_inner(shapes):
    check(np.inner, normal(*shapes[0], seed=1), normal(*shapes[1], seed=2))


OTHERS = {
    "outer": (np.outer, (3,), (2,)),
    "outer of matrices": (np.outer, (2, 2), (3,)),
    "linalg.outer": (np.linalg.outer, (3,), (2,)),
    "vdot": (np.vdot, (2, 3), (2, 3)),
    "kron": (np.kron, (2, 3), (3, 2)),
    "kron of vectors": (np.kron, (2,), (3,)),
    "kron of different ranks": (np.kron, (2,), (2, 3)),
    "linalg.matmul": (np.linalg.matmul, (2, 3), (3, 2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_products(name):
    f, first, second = OTHERS[name]
    check(f, normal(*first, seed=1), normal(*second, seed=2))


TENSORDOT = [
    ((2, 3), (4, 5), 0), ((2, 3), (3, 4), 1), ((2, 3, 4), (3, 4, 2), 2), ((2, 3), (2, 3), 2),
    ((2, 3, 4), (4, 3), ([1, 2], [1, 0])), ((2, 3, 4), (3, 5, 2), ([0, 1], [2, 0])),
    ((2, 3), (3, 2), (0, 1)), ((2, 3), (3, 2), (-1, 0)),
    ((2, 3, 4), (4, 2, 3), ([-1, 0, 1], [0, 1, 2])),
    ((3, 3), (3, 3), ([0, 1], [1, 0])),
]  # fmt: skip


@pytest.mark.parametrize("case", TENSORDOT, ids=str)
def test_tensordot(case):
    first, second, axes = case
    check(lambda x, y: np.tensordot(x, y, axes), normal(*first, seed=1), normal(*second, seed=2))


def test_tensordot_default():
    check(np.tensordot, normal(2, 3, 4), normal(3, 4, 2))


EINSUM = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,kj->ki", (2, 3), (4, 3)),
    ("i,i", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    ("i,j->ij", (2,), (3,)),
    ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->i", (2, 3)),
    ("ij->j", (2, 3)),
    ("abcd->bd", (3, 2, 3, 2)),
    ("ij,kl->il", (2, 3), (4, 2)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iij->ij", (2, 2, 3)),
    ("iij,j->i", (2, 2, 3), (3,)),
    ("iji->j", (2, 3, 2)),
    ("ii,ii->i", (3, 3), (3, 3)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    ("...ij,...jk", (1, 2, 3), (4, 3, 2)),
    ("i...,i...->...", (2, 3), (2, 3)),
    ("...i->...", (2, 3, 4)),
    ("...i,i->...", (2, 3), (3,)),
    ("...,...", (2, 3), (3,)),
    ("...,->...", (2, 3), ()),
    (",", (), ()),
    ("i,->i", (3,), ()),
    ("->", ()),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
    ("ba,a", (2, 3), (3,)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("ij,ij->i", (1, 3), (2, 3)),
    ("aB,Bc->ac", (2, 3), (3, 2)),
    ("ij,ij,ij->ij", (2, 2), (2, 2), (2, 2)),
]


@pytest.mark.parametrize("case", EINSUM, ids=str)
def test_einsum(case):
    subscripts, *shapes = case
    arrays = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    check(lambda *xs: np.einsum(subscripts, *xs), *arrays)
    check(lambda *xs: np.einsum(subscripts, *xs, optimize=True), *arrays)


def test_einsum_of_one_array_twice():
    check(lambda x: np.einsum("ij,kj->ik", x, x), normal(2, 3))
    check(lambda x: np.einsum("i,i,i->", x, x, x), normal(3))


def test_einsum_with_constants():
    a = normal(3, 2).astype(np.float32)
    check(lambda x: np.einsum("ij,jk->ik", x, a), normal(2, 3))
    check(lambda x: np.einsum("ij,jk,k->i", a, x, np.ones(2, np.float32)), normal(2, 2))


def test_einsum_with_lists():
    check(lambda x, y: np.einsum(x, [0, 1], y, [1, 2], [0, 2]), normal(2, 3), normal(3, 2))
    check(lambda x, y: np.einsum(x, [0, 1], y, [1, 2]), normal(2, 3), normal(3, 2))
    check(lambda x: np.einsum(x, [Ellipsis, 0], [Ellipsis]), normal(2, 3))


def test_einsum_sums_out_axes():
    """HIPS/autograd#242: an index that is summed out raised IndexError."""
    x = Variable(np.ones((3, 2, 3, 2)))
    y = np.einsum("abcd->bd", x)
    np.testing.assert_array_equal(gradients(np.sum(y**2), x)[0], np.full((3, 2, 3, 2), 18.0))


@pytest.mark.parametrize("bad", ["ij,jk->ik", "i->i", "ijk->i", "i.j->i", "ij->ik"])
def test_einsum_that_does_not_fit(bad):
    with pytest.raises(ValueError, match=r"einsum|einstein"):
        np.einsum(bad, Tensor(np.ones((2, 3))))


NORMS = [
    ((3,), {}), ((2, 3), {}), ((2, 3, 2), {}), ((3,), {"ord": 2}), ((3,), {"ord": 1}),
    ((3,), {"ord": 3}),
    ((3,), {"ord": 1.5}), ((3,), {"ord": np.inf}), ((3,), {"ord": -np.inf}), ((2, 3), {"axis": 0}),
    ((2, 3), {"axis": -1, "ord": 1}), ((2, 3), {"axis": 1, "ord": np.inf, "keepdims": True}),
    ((2, 3), {"keepdims": True}), ((2, 3), {"ord": "fro"}), ((2, 3), {"ord": 1}),
    ((2, 3), {"ord": -1}),
    ((2, 3), {"ord": np.inf}), ((2, 3), {"ord": -np.inf, "keepdims": True}),
    ((2, 3, 2), {"axis": (0, 2)}),
    ((2, 3, 2), {"axis": (2, 0), "ord": 1}),
    ((2, 3, 2), {"axis": (0, 1), "ord": "fro", "keepdims": True}),
    ((3,), {"ord": -1}),
]  # fmt: skip


@pytest.mark.parametrize("case", NORMS, ids=str)
def test_norm(case):
    shape, options = case
    check(lambda x: np.linalg.norm(x, **options), apart(*shape) + 0.034)


def test_array_api_norms():
    check(lambda x: np.linalg.vector_norm(x), apart(2, 3) + 0.034)
    check(lambda x: np.linalg.vector_norm(x, axis=1, ord=1), apart(2, 3) + 0.034)
    check(lambda x: np.linalg.matrix_norm(x, keepdims=True), apart(2, 2, 3) + 0.034)


def test_norm_at_zero():
    """The norm has a kink at zero; its gradient there is 0, never NaN."""
    x = Tensor(np.zeros((2, 3)))
    for options in ({}, {"axis": 1}):
        np.testing.assert_array_equal(
            gradients(np.linalg.norm(x, **options), x)[0], np.zeros((2, 3))
        )


def test_norm_errors():
    x = Tensor(np.ones((2, 3)))
    for order in (2, -2, "nuc"):
        with pytest.raises(TypeError, match=rf"numpy.linalg.norm: ord={order!r}"):
            np.linalg.norm(x, order)
    with pytest.raises(ValueError, match="invalid norm order 'x'"):
        np.linalg.norm(x, "x")
    with pytest.raises(ValueError, match="invalid norm order 'fro' for vectors"):
        np.linalg.norm(x[0], "fro")
    with pytest.raises(ValueError, match="improper number of axes"):
        np.linalg.norm(x, ord=1, axis=(0, 1, 0))


@pytest.mark.parametrize("f", [np.dot, np.outer])
def test_out_is_refused(f):
    with pytest.raises(TypeError, match="out= is not supported"):
        f(Tensor(np.ones(2)), np.ones(2), np.zeros(()))


def test_norm_of_order_zero_counts():
    result = np.linalg.norm(Tensor([1.0, 0.0, 2.0]), 0)
    assert not isinstance(result, Tensor)
    assert result == 2.0


def test_einsum_out_is_refused():
    with pytest.raises(TypeError, match="numpy.einsum: out="):
        np.einsum("i->", Tensor(np.ones(2)), out=np.zeros(()))


def invertible(*shape):
    return normal(*shape) + 3.0 * np.eye(shape[-1])


SYSTEMS = [
    ((3, 3), (3,)),
    ((3, 3), (3, 2)),
    ((2, 3, 3), (2, 3, 1)),
    ((2, 3, 3), (3, 1)),
    ((3, 3), (2, 3, 1)),
    ((2, 3, 3), (3,)),
]


@pytest.mark.parametrize("shapes", SYSTEMS, ids=str)
def test_solve(shapes):
    check(np.linalg.solve, invertible(*shapes[0]), normal(*shapes[1]))


@pytest.mark.parametrize("f", [np.linalg.inv, np.linalg.det])
@pytest.mark.parametrize("shape", [(2, 2), (3, 2, 2)])
def test_inverse_and_determinant(f, shape):
    check(f, invertible(*shape))
