"""The same gradients as HIPS autograd and PyTorch, where they are installed."""

import numpy as np
import pytest

from fastopt import nn
from fastopt.autodiff import Recording, Tensor, gradients

from .check import between, normal, positive

SHAPE = (3, 4)

# name -> (function of a namespace like numpy and of arrays, makers of the arrays)
AUTOGRAD = {
    "exp": (lambda np, x: np.exp(x), normal),
    "log": (lambda np, x: np.log(x), positive),
    "sqrt": (lambda np, x: np.sqrt(x), positive),
    "tanh": (lambda np, x: np.tanh(x), normal),
    "arctan": (lambda np, x: np.arctan(x), normal),
    "abs": (lambda np, x: np.abs(x), normal),
    "power": (lambda np, x: x**3 + 2.0**x, positive),
    "sum": (lambda np, x: np.sum(x, axis=1, keepdims=True) * x, normal),
    "mean": (lambda np, x: np.mean(x, axis=0), normal),
    "var": (lambda np, x: np.var(x, axis=1, ddof=1), normal),
    "std": (lambda np, x: np.std(x), normal),
    "prod": (lambda np, x: np.prod(x, axis=1), positive),
    "max": (lambda np, x: np.max(x, axis=1), normal),
    "max with ties": (lambda np, x: np.max(x * 0.0, axis=1), normal),
    "cumsum": (lambda np, x: np.cumsum(x, axis=1), normal),
    "clip": (lambda np, x: np.clip(x, -0.5, 0.5), normal),
    "where": (lambda np, x: np.where(x > 0, x, x**2), normal),
    "index": (lambda np, x: x[[0, 0, 2]] * x[1:2], normal),
    "slices": (lambda np, x: x[::-1, 1:3] ** 2, normal),
    "concatenate": (lambda np, x: np.concatenate([x, x * 2], axis=1), normal),
    "stack": (lambda np, x: np.stack([x, x**2]), normal),
    "transpose": (lambda np, x: np.transpose(x) * 2, normal),
    "tile": (lambda np, x: np.tile(x, (2, 3)), normal),
    "repeat": (lambda np, x: np.repeat(x, 3, axis=1), normal),
    "pad": (lambda np, x: np.pad(x, 2, mode="constant"), normal),
    "roll": (lambda np, x: np.roll(x, 1, axis=1), normal),
    "einsum": (lambda np, x: np.einsum("ij,kj->ik", x, x), normal),
    "tensordot": (lambda np, x: np.tensordot(x, x, axes=([0], [0])), normal),
    "norm": (lambda np, x: np.linalg.norm(x, axis=1), normal),
    "logaddexp": (lambda np, x: np.logaddexp(x, 0.5), normal),
    "sinc": (lambda np, x: np.sinc(x), normal),
    "sort": (lambda np, x: np.sort(np.ravel(x)), normal),
    "trace": (lambda np, x: np.trace(x), normal),
}
AUTOGRAD_PAIRS = {
    "add": lambda np, x, y: x + y,
    "multiply": lambda np, x, y: x * y,
    "divide": lambda np, x, y: x / y,
    "power": lambda np, x, y: x**y,
    "matmul": lambda np, x, y: x @ y.T,
    "maximum": lambda np, x, y: np.maximum(x, y),
    "minimum of ties": lambda np, x, y: np.minimum(x, x * 1.0) + y,
    "outer": lambda np, x, y: np.outer(x[0], y[1]),
    "hypot": lambda np, x, y: np.sqrt(x**2 + y**2),
    "arctan2": lambda np, x, y: np.arctan2(x, y),
    "broadcast": lambda np, x, y: x * y[0] + y[:, :1],
}


@pytest.mark.parametrize("name", AUTOGRAD)
def test_autograd(name):
    autograd = pytest.importorskip("autograd")
    f, values = AUTOGRAD[name]
    x = values(*SHAPE)
    theirs = autograd.grad(lambda x: autograd.numpy.sum(f(autograd.numpy, x) ** 2))(x)
    ours = Tensor(x)
    (g,) = gradients(np.sum(f(np, ours) ** 2), ours)
    np.testing.assert_allclose(g, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", AUTOGRAD_PAIRS)
def test_autograd_of_two(name):
    autograd = pytest.importorskip("autograd")
    f = AUTOGRAD_PAIRS[name]
    x, y = positive(*SHAPE, seed=1), positive(*SHAPE, seed=2)
    theirs = autograd.grad(
        lambda pair: autograd.numpy.sum(f(autograd.numpy, pair[0], pair[1]) ** 2)
    )((x, y))
    ours = [Tensor(x), Tensor(y)]
    got = gradients(np.sum(f(np, *ours) ** 2), ours)
    for g, h in zip(got, theirs, strict=True):
        np.testing.assert_allclose(g, h, rtol=1e-10, atol=1e-12)


# name -> (ours, theirs, makers of arguments)
TORCH = {
    "maximum of ties": (np.maximum, "maximum", lambda: (np.ones(3), np.ones(3))),
    "minimum": (np.minimum, "minimum", lambda: (normal(5, seed=1), normal(5, seed=2))),
    "logaddexp": (np.logaddexp, "logaddexp", lambda: (normal(5, seed=1), normal(5, seed=2))),
    "logaddexp2": (np.logaddexp2, "logaddexp2", lambda: (normal(5, seed=1), normal(5, seed=2))),
    "hypot": (np.hypot, "hypot", lambda: (normal(5, seed=1), normal(5, seed=2))),
    "arctan2": (np.arctan2, "arctan2", lambda: (normal(5, seed=1), normal(5, seed=2))),
    "amax of ties": (lambda x: np.max(x, axis=1), "amax", lambda: (np.ones((2, 3)),)),
    "prod with zeros": (np.prod, "prod", lambda: (np.array([2.0, 0.0, 3.0, 0.0]),)),
    "cumprod": (lambda x: np.cumprod(x, 0), "cumprod", lambda: (np.array([2.0, 0.0, 3.0]),)),
    "norm at zero": (np.linalg.norm, "norm", lambda: (np.zeros(3),)),
    "expm1": (np.expm1, "expm1", lambda: (normal(5),)),
    "log1p": (np.log1p, "log1p", lambda: (positive(5),)),
    "sinc": (np.sinc, "sinc", lambda: (np.array([0.0, 0.5, -2.5]),)),
    "arctanh": (np.arctanh, "arctanh", lambda: (between(-0.9, 0.9, 5),)),
    "logsumexp": (lambda x: np.logaddexp.reduce(x, axis=1), "logsumexp", lambda: (normal(3, 4),)),
    "matmul batched": (np.matmul, "matmul", lambda: (normal(4, 1, 2, 3), normal(5, 3, 2))),
    "matmul vector": (np.matmul, "matmul", lambda: (normal(3), normal(5, 3, 2))),
    "kron": (np.kron, "kron", lambda: (normal(2, 3), normal(3, 2))),
    "std": (lambda x: np.std(x, axis=1, ddof=1), "std", lambda: (normal(3, 4),)),
}
DIMS = {"amax of ties": (1,), "cumprod": (0,), "logsumexp": (1,), "std": (1,)}


@pytest.mark.parametrize("name", TORCH)
def test_torch(name):
    torch = pytest.importorskip("torch")
    ours, theirs, make = TORCH[name]
    values = make()
    xs = [Tensor(v) for v in values]
    ts = [torch.tensor(v, requires_grad=True) for v in values]
    y = ours(*xs)
    z = getattr(torch, theirs)(*ts, *DIMS.get(name, ()))
    np.testing.assert_allclose(np.asarray(y), z.detach().numpy(), rtol=1e-12)
    weights = np.arange(1.0, y.size + 1).reshape(y.shape)
    z.backward(torch.tensor(weights))
    for g, t in zip(gradients(y, xs, grad_ys=weights), ts, strict=True):
        np.testing.assert_allclose(g, t.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_torch_network():
    """A whole network, in float32, forwards and backwards."""
    torch = pytest.importorskip("torch")
    x = normal(8, 5).astype(np.float32)
    values = [normal(5, 6, seed=1), normal(6, seed=2), normal(6, 1, seed=3)]
    values = [v.astype(np.float32) for v in values]
    ours = [Tensor(v) for v in values]
    h = np.maximum(x @ ours[0] + ours[1], 0.0)
    loss = np.mean(np.logaddexp(0.0, -(h @ ours[2])))
    assert loss.dtype == np.float32
    theirs = [torch.tensor(v, requires_grad=True) for v in values]
    t = torch.relu(torch.tensor(x) @ theirs[0] + theirs[1])
    z = torch.mean(torch.nn.functional.softplus(-(t @ theirs[2])))
    z.backward()
    np.testing.assert_allclose(float(loss), z.item(), rtol=1e-6)
    for g, p in zip(gradients(loss, ours), theirs, strict=True):
        assert g.dtype == np.float32
        np.testing.assert_allclose(g, p.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_operators_of_pandas():
    """pandas took the value of what stands on the right, and its gradient was lost in silence."""
    pandas = pytest.importorskip("pandas")
    values = normal(4, 3)
    w, column = Tensor(normal(4, 3, seed=2)), Tensor(normal(4, seed=3))
    frame, series = pandas.DataFrame(values), pandas.Series(values[:, 0])
    for loss in (
        lambda w, x: np.sum(x * w),
        lambda w, x: np.sum(x - w),
        lambda w, x: np.sum(np.multiply(x, w)),
        lambda w, x: np.sum(x / w),
    ):
        for x, plain, y in ((frame, values, w), (series, values[:, 0], column)):
            (expected,) = gradients(loss(y, plain), y)
            (found,) = gradients(loss(y, x), y)
            np.testing.assert_array_equal(found, expected)


def test_products_of_pandas_are_refused_where_they_would_lose_a_gradient():
    pandas = pytest.importorskip("pandas")
    values = normal(4, 3)
    frame, series = pandas.DataFrame(values), pandas.Series(values[0])
    x = Tensor(normal(3, seed=1), name="x")
    np.testing.assert_allclose(frame @ x, values @ np.asarray(x), rtol=1e-14)  # another BLAS call
    for product in (lambda x: frame @ x, lambda x: series @ x, lambda x: frame.dot(x)):
        with pytest.raises(TypeError, match=r"history of '.*': write A.to_numpy\(\) @ x"):
            product(2.0 * x)
        with Recording(), pytest.raises(TypeError, match="pandas would lose the history of 'x'"):
            product(x)


@pytest.mark.parametrize("torch", [False, True])
def test_arrays_of_others_in_a_loss(torch):
    """A batch and its labels needn't be NumPy's: gradients are what they are with NumPy's arrays.

    PyTorch's tensors and NumPy's arrays are not multiplied with each other: an error, where the
    tensor was met in the backward pass only.
    """

    class Batch:
        """What NumPy's functions take as an array and NumPy's operators leave to itself."""

        __array_priority__ = 1000.0

        def __init__(self, values):
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return self.values

    values = normal(4, 3)
    labels = (normal(4, 3, seed=1) > 0).astype(np.float64)
    kind = pytest.importorskip("torch").tensor if torch else Batch
    losses = [
        lambda w, x, y: np.sum(w * x),
        lambda w, x, y: np.sum((x - w) ** 2),
        lambda w, x, y: np.sum(np.maximum(w, x)),
        lambda w, x, y: np.sum(np.where(y, w, x)),
        lambda w, x, y: np.sum(nn.sigmoid_cross_entropy_with_logits(labels=y, logits=w)),
        lambda w, x, y: nn.mean_squared_error(labels=x, predictions=w),
    ]
    w = Tensor(normal(4, 3, seed=2))
    for loss in losses:
        (expected,) = gradients(loss(w, values, labels), w)
        (found,) = gradients(loss(w, kind(values), kind(labels)), w)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, expected)
