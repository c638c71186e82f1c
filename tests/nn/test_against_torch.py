"""Activations and losses against PyTorch: values and gradients."""

import numpy as np
import pytest

from fastopt import nn
from fastopt.autodiff import gradients
from fastopt.variable import Variable

torch = pytest.importorskip("torch")
F = torch.nn.functional

TORCH = {
    "relu": (nn.relu, F.relu),
    "leaky_relu": (nn.leaky_relu, lambda x: F.leaky_relu(x, 0.2)),
    "elu": (nn.elu, F.elu),
    "sigmoid": (nn.sigmoid, torch.sigmoid),
    "log_sigmoid": (nn.log_sigmoid, F.logsigmoid),
    "softplus": (nn.softplus, F.softplus),
    "silu": (nn.silu, F.silu),
    "gelu": (nn.gelu, F.gelu),
    "gelu_tanh": (
        lambda x: nn.gelu(x, approximate=True),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    "softmax": (nn.softmax, lambda x: F.softmax(x, -1)),
    "log_softmax": (nn.log_softmax, lambda x: F.log_softmax(x, -1)),
}


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_as_torch(name, dtype):
    ours, theirs = TORCH[name]
    rng = np.random.default_rng(4)
    value = rng.normal(scale=5, size=(5, 7)).astype(dtype)
    upstream = rng.normal(size=(5, 7)).astype(dtype)
    x = Variable(value)
    y = ours(x)
    (g,) = gradients(y, [x], grad_ys=upstream)
    t = torch.tensor(value, requires_grad=True)
    z = theirs(t)
    z.backward(torch.tensor(upstream))
    rtol = 20 * np.finfo(dtype).eps
    # Tails and differences of nearly equal numbers lose digits in both.
    np.testing.assert_allclose(np.asarray(y), z.detach().numpy(), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(g, t.grad.numpy(), rtol=rtol, atol=rtol)


LOSSES = {
    "sigmoid": (
        nn.sigmoid_cross_entropy_with_logits,
        lambda z, x: F.binary_cross_entropy_with_logits(x, z, reduction="none"),
    ),
    "softmax": (
        nn.softmax_cross_entropy_with_logits,
        lambda z, x: F.cross_entropy(x, z, reduction="none"),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses_same_as_torch(name, dtype):
    ours, theirs = LOSSES[name]
    rng = np.random.default_rng(5)
    logits = rng.normal(scale=5, size=(6, 4)).astype(dtype)
    labels = rng.uniform(size=(6, 4)).astype(dtype)
    labels /= labels.sum(1, keepdims=True)
    x, z = Variable(logits), Variable(labels)
    y = ours(labels=z, logits=x)
    upstream = rng.normal(size=y.shape).astype(dtype)
    got = gradients(y, [z, x], grad_ys=upstream)
    zt, xt = (torch.tensor(a, requires_grad=True) for a in (labels, logits))
    yt = theirs(zt, xt)
    yt.backward(torch.tensor(upstream))
    tolerance = {"rtol": 20 * np.finfo(dtype).eps, "atol": 20 * np.finfo(dtype).eps}
    np.testing.assert_allclose(np.asarray(y), yt.detach().numpy(), **tolerance)
    for g, t in zip(got, (zt, xt), strict=True):
        np.testing.assert_allclose(g, t.grad.numpy(), **tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_labels_same_as_torch(dtype):
    rng = np.random.default_rng(6)
    logits = rng.normal(scale=5, size=(3, 2, 4)).astype(dtype)
    labels = rng.integers(0, 4, size=(3, 2))
    x = Variable(logits)
    y = nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
    (g,) = gradients(y, [x])
    t = torch.tensor(logits, requires_grad=True)
    z = F.cross_entropy(t.reshape(6, 4), torch.tensor(labels).reshape(6), reduction="none")
    z.sum().backward()
    tolerance = {"rtol": 20 * np.finfo(dtype).eps, "atol": 20 * np.finfo(dtype).eps}
    np.testing.assert_allclose(np.asarray(y).ravel(), z.detach().numpy(), **tolerance)
    np.testing.assert_allclose(g, t.grad.numpy(), **tolerance)
