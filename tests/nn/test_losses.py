"""Losses: values, limits, masks, derivatives and errors."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastopt import nn
from fastopt.autodiff import Tensor, gradients
from fastopt.variable import Variable
from tests.autodiff.check import check

DTYPES = [np.float16, np.float32, np.float64]
RTOL = {np.float16: 2e-3, np.float32: 4e-6, np.float64: 1e-13}


def distributions(rng, shape, axis=-1):
    """Return numbers that sum to 1 along an axis."""
    p = rng.uniform(0.1, 1, size=shape)
    return p / p.sum(axis, keepdims=True)


# ------------------------------------------------------------------ sigmoid cross-entropy


@pytest.mark.parametrize("dtype", DTYPES)
def test_sigmoid_values(dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(scale=3, size=(4, 5)).astype(dtype)
    z = rng.uniform(size=(4, 5)).astype(dtype)
    loss = nn.sigmoid_cross_entropy_with_logits(labels=z, logits=x)
    assert type(loss) is np.ndarray
    assert loss.dtype == dtype
    x, z = x.astype(np.float64), z.astype(np.float64)
    p = 1 / (1 + np.exp(-x))
    np.testing.assert_allclose(loss, -z * np.log(p) - (1 - z) * np.log(1 - p), rtol=RTOL[dtype])


@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 3)])
def test_sigmoid_derivatives(shape):
    rng = np.random.default_rng(1)
    labels, logits = rng.uniform(size=shape), rng.normal(size=shape)
    check(
        lambda z, x: nn.sigmoid_cross_entropy_with_logits(labels=z, logits=x),
        labels,
        logits,
        leaf=Variable,
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_sigmoid_of_huge_logits(dtype):
    x = Variable(np.array([1e4, 1e4, -1e4, -1e4], dtype))
    z = np.array([1, 0, 1, 0], dtype)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        loss = nn.sigmoid_cross_entropy_with_logits(labels=z, logits=x)
        (g,) = gradients(loss, [x])
    np.testing.assert_array_equal(np.asarray(loss), np.array([0, 1e4, 1e4, 0], dtype))
    np.testing.assert_array_equal(g, [0, 1, -1, 0])


def test_sigmoid_of_infinite_logits():
    """An infinite logit costs nothing where it is right, and everything where it is wrong."""
    x = np.array([np.inf, np.inf, -np.inf, -np.inf, np.inf, 1.0])
    z = np.array([1, 0, 1, 0, 0.5, 1.0])
    with np.errstate(all="raise"):
        loss = nn.sigmoid_cross_entropy_with_logits(labels=z, logits=x)
    np.testing.assert_array_equal(loss[:5], [0, np.inf, np.inf, 0, np.inf])
    assert loss[5] == pytest.approx(math.log1p(math.exp(-1)), rel=1e-15)


def test_sigmoid_nan_is_not_hidden():
    loss = nn.sigmoid_cross_entropy_with_logits(labels=[1.0, np.nan], logits=[np.nan, 1.0])
    assert np.isnan(loss).all()


def test_labels_take_the_dtype_of_logits():
    x = np.zeros(2, np.float32)
    for labels in ([True, False], [1, 0], np.array([1.0, 0.0])):
        assert nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=x).dtype == np.float32
    labels = np.eye(2)
    loss = nn.softmax_cross_entropy_with_logits(labels=labels, logits=np.zeros((2, 2), np.float32))
    assert loss.dtype == np.float32


def test_gradient_of_labels_has_their_dtype():
    z = Variable(np.array([0.0, 1.0]))
    x = Variable(np.array([0.5, -0.5], np.float32))
    got = gradients(nn.sigmoid_cross_entropy_with_logits(labels=z, logits=x), [z, x])
    assert [g.dtype for g in got] == [np.float64, np.float32]
    np.testing.assert_array_equal(got[0], [-0.5, 0.5])


def test_shapes_must_agree():
    """(n, 1) labels and (n,) logits would broadcast to n * n losses."""
    for f in (nn.sigmoid_cross_entropy_with_logits, nn.softmax_cross_entropy_with_logits):
        with pytest.raises(
            ValueError, match=r"labels of shape \(3, 1\) and logits of shape \(3,\)"
        ):
            f(labels=np.zeros((3, 1)), logits=np.zeros(3))


def test_arguments_are_keywords():
    """labels and logits are easily swapped; TensorFlow v1 takes them by name only."""
    for f in (
        nn.sigmoid_cross_entropy_with_logits,
        nn.softmax_cross_entropy_with_logits,
        nn.sparse_softmax_cross_entropy_with_logits,
    ):
        with pytest.raises(TypeError, match="positional"):
            f([0], [[0.0]])


@given(st.floats(-1e4, 1e4), st.floats(0, 1))
def test_sigmoid_properties(x, z):
    """The loss is not negative and is the same with both sides of the question swapped."""
    loss = nn.sigmoid_cross_entropy_with_logits(labels=[z], logits=[x])
    other = nn.sigmoid_cross_entropy_with_logits(labels=[1 - z], logits=[-x])
    assert loss[0] >= 0
    # 1 - z is rounded, which a logit of 1e4 makes 1e4 times as large.
    np.testing.assert_allclose(loss, other, rtol=1e-13, atol=2e-12)


# ------------------------------------------------------------------ softmax cross-entropy


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_values(axis, dtype):
    rng = np.random.default_rng(2)
    x = rng.normal(scale=3, size=(3, 4, 2)).astype(dtype)
    z = distributions(rng, (3, 4, 2), axis).astype(dtype)
    loss = nn.softmax_cross_entropy_with_logits(labels=z, logits=x, axis=axis)
    assert loss.dtype == dtype
    x, z = x.astype(np.float64), z.astype(np.float64)
    e = np.exp(x)
    expected = -(z * np.log(e / e.sum(axis, keepdims=True))).sum(axis)
    np.testing.assert_allclose(loss, expected, rtol=RTOL[dtype])


@pytest.mark.parametrize(
    ("shape", "axis"), [((4,), -1), ((2, 3), -1), ((2, 3), 0), ((2, 3, 2), 1), ((0, 3), -1)]
)
@pytest.mark.parametrize("normalised", [True, False])
def test_softmax_derivatives(shape, axis, normalised):
    """Also for labels that do not sum to 1, where TensorFlow's gradient is not the derivative."""
    rng = np.random.default_rng(3)
    labels = distributions(rng, shape, axis) if normalised else rng.normal(size=shape)
    check(
        lambda z, x: nn.softmax_cross_entropy_with_logits(labels=z, logits=x, axis=axis),
        labels,
        rng.normal(size=shape),
        leaf=Variable,
    )


def test_masked_class_costs_nothing():
    """A logit of -inf with label 0 leaves the loss of the other classes."""
    x = Variable(np.array([[1.0, -np.inf, 2.0]]))
    z = np.array([[0.25, 0.0, 0.75]])
    with np.errstate(all="raise"):
        loss = nn.softmax_cross_entropy_with_logits(labels=z, logits=x)
        (g,) = gradients(loss, [x])
    rest = nn.softmax_cross_entropy_with_logits(labels=z[:, ::2], logits=x._read()[:, ::2])
    np.testing.assert_array_equal(np.asarray(loss), rest)
    assert g[0, 1] == 0
    wrong = nn.softmax_cross_entropy_with_logits(labels=[[0.0, 1.0]], logits=[[0.0, -np.inf]])
    assert wrong[0] == np.inf


def test_softmax_of_huge_logits():
    x = np.array([[1e4, -1e4]], np.float32)
    with np.errstate(all="raise"):
        loss = nn.softmax_cross_entropy_with_logits(labels=[[0.0, 1.0]], logits=x)
    np.testing.assert_array_equal(loss, [2e4])


# ------------------------------------------------------------------ sparse labels


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("label_dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_sparse_equals_one_hot(dtype, label_dtype):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2, 3, 5)).astype(dtype)
    labels = rng.integers(0, 5, size=(2, 3)).astype(label_dtype)
    sparse = nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
    one_hot = nn.softmax_cross_entropy_with_logits(labels=np.eye(5)[labels.astype(int)], logits=x)
    assert sparse.dtype == dtype
    np.testing.assert_allclose(sparse, one_hot, rtol=RTOL[dtype])


@pytest.mark.parametrize("shape", [(4,), (3, 4), (0, 4), (2, 3, 4)])
def test_sparse_derivatives(shape):
    rng = np.random.default_rng(5)
    labels = rng.integers(0, shape[-1], size=shape[:-1])
    check(
        lambda x: nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x),
        rng.normal(size=shape),
        leaf=Variable,
    )


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_labels_out_of_range(bad):
    """TensorFlow on some devices gives NaN for such labels; here nothing is computed."""
    labels = np.array([[0, 1], [2, bad]])
    with pytest.raises(IndexError, match=rf"labels\[1, 1\] is {bad}, outside .* 3 classes"):
        nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=np.zeros((2, 2, 3)))
    with pytest.raises(IndexError, match=rf"labels is {bad}, outside"):
        nn.sparse_softmax_cross_entropy_with_logits(labels=bad, logits=np.zeros(3))


def test_huge_unsigned_label():
    with pytest.raises(IndexError, match=f"is {2**63 + 1}, outside"):
        nn.sparse_softmax_cross_entropy_with_logits(
            labels=np.array([2**63 + 1], np.uint64), logits=np.zeros((1, 3))
        )


@pytest.mark.parametrize("labels", [[0.0, 1.0], [True, False], ["a", "b"]])
def test_labels_must_be_integers(labels):
    with pytest.raises(TypeError, match="labels must be integers, got dtype"):
        nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=np.zeros((2, 2)))


def test_sparse_shapes():
    for labels, logits in [(np.zeros(3, int), np.zeros((2, 4))), (0, 1.0), ([0], np.zeros(4))]:
        with pytest.raises(ValueError, match="one more axis of classes, got labels of shape"):
            nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def test_labels_may_be_a_variable():
    labels = Variable(np.array([1, 0]), trainable=False)
    x = Tensor([[0.0, 2.0], [0.0, 2.0]])
    loss = nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
    np.testing.assert_allclose(
        np.asarray(loss), [math.log1p(math.exp(-2)), math.log1p(math.exp(2))]
    )


# ------------------------------------------------------------------ what kernels compute


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (300, 40)])
def test_sigmoid_of_tensors_and_arrays_have_the_same_bits(shape):
    rng = np.random.default_rng(2)
    x, z = rng.normal(size=shape).astype(np.float32), rng.random(shape).astype(np.float32)
    of_arrays = nn.sigmoid_cross_entropy_with_logits(labels=z, logits=x)
    t = Tensor(x)
    of_tensor = nn.sigmoid_cross_entropy_with_logits(labels=z, logits=t)
    np.testing.assert_array_equal(of_tensor.numpy(), of_arrays)
    weights = rng.normal(size=shape).astype(np.float32)
    for _ in range(2):  # what is kept for the derivative is not used up
        (g,) = gradients(of_tensor, [t], weights)
        slope = 1 / (1 + np.exp(-x.astype(np.float64))) - z
        assert g.dtype == np.float32
        np.testing.assert_allclose(g, slope * weights, rtol=1e-6, atol=1e-6)


def test_sigmoid_of_infinite_float32_logits():
    x = Tensor(np.array([np.inf, np.inf, -np.inf, -np.inf, 1.0], np.float32))
    z = np.array([1, 0, 1, 0, 1], np.float32)
    with np.errstate(all="raise"):
        loss = nn.sigmoid_cross_entropy_with_logits(labels=z, logits=x)
        (g,) = gradients(loss, [x])
    np.testing.assert_array_equal(loss.numpy()[:4], [0, np.inf, np.inf, 0])
    np.testing.assert_array_equal(g[:4], [0, 1, -1, 0])
    assert loss.numpy()[4] == pytest.approx(math.log1p(math.exp(-1)), rel=1e-6)


# ------------------------------------------------------------------ squared error


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
def test_squared_error_derivatives(shape):
    rng = np.random.default_rng(1)
    labels, predictions = rng.normal(size=shape), rng.normal(size=shape)
    check(
        lambda z, x: nn.mean_squared_error(labels=z, predictions=x),
        labels,
        predictions,
        leaf=Variable,
    )
    check(lambda x: nn.mean_squared_error(labels=labels, predictions=x * 1.0), predictions)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [5, 20_000])
def test_squared_error_is_the_mean_of_squares(dtype, n):
    rng = np.random.default_rng(3)
    x, z = rng.normal(size=n).astype(dtype), rng.normal(size=n).astype(dtype)
    t = Tensor(x)
    loss = nn.mean_squared_error(labels=z, predictions=t)
    plain = np.mean((t - z) ** 2)
    assert loss.dtype == dtype and loss.shape == ()
    rtol = {np.float16: 2e-3, np.float32: 1e-5, np.float64: 1e-13}[dtype]  # NumPy sums in pairs
    np.testing.assert_allclose(loss.numpy(), plain.numpy(), rtol=rtol)
    for _ in range(2):
        (g,), (right,) = gradients(3 * loss, [t]), gradients(3 * plain, [t])
        assert g.dtype == dtype
        np.testing.assert_allclose(g, right, rtol=max(rtol, 1e-6), atol=1e-7)


def test_squared_error_of_other_kinds():
    assert nn.mean_squared_error(labels=[1, 2], predictions=[1, 4]) == 2.0
    x = Tensor(np.array([1.0, 2.0], np.float32))
    for labels in ([0, 0], [False, False], np.zeros(2), np.zeros(4, np.float32)[::2]):
        loss = nn.mean_squared_error(labels=labels, predictions=x)
        assert loss.dtype == np.float32 and loss.item() == 2.5
    none, nothing = np.ones(0), Tensor(np.ones(0))
    with np.errstate(invalid="ignore"), pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        assert np.isnan(nn.mean_squared_error(labels=none, predictions=nothing).item())


def test_squared_error_broadcasts_nothing():
    """A column less a row would be a matrix, and its mean a number that looks like a loss."""
    x = Tensor(np.ones((3, 1)))
    for labels in (np.ones(3), [1.0, 1.0, 1.0], Variable(np.ones(3)), 1.0):
        with pytest.raises(ValueError, match=r"same shape, got labels of shape .* \(3, 1\)"):
            nn.mean_squared_error(labels=labels, predictions=x)
    for labels, predictions in (("a", x), (np.ones((3, 1)) * 1j, x), ([1.0], ["a"])):
        with pytest.raises((TypeError, ValueError)):
            nn.mean_squared_error(labels=labels, predictions=predictions)
