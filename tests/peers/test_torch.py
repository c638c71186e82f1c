"""The rules against PyTorch's optimizers, where both mean the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastopt as fo

torch = pytest.importorskip("torch")

torch.sparse.check_sparse_tensor_invariants.enable()  # PyTorch warns unless one has a say

STEPS = 12
# Both compute in float64, with some twenty roundings a step in another order.
TOLERANCE = {"rtol": 1e-12, "atol": 1e-13}


def adam_epsilon(epsilon: float, beta2: float) -> Callable[[], float]:
    """Give Adam's epsilon as it is beside PyTorch's corrected root."""
    step = iter(range(1, 100))
    return lambda: epsilon * float(np.sqrt(1 - beta2 ** next(step)))


def from_zeros(optimizer: Any, var: Any) -> Any:
    """Let averages start from zeros, as PyTorch's do."""
    optimizer._create_slots([var])
    optimizer.get_slot(var, "rms").assign(np.zeros(var.shape))
    return optimizer


PAIRS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "SGD": (
        lambda _: fo.GradientDescentOptimizer(0.1),
        lambda p: torch.optim.SGD(p, lr=0.1),
    ),
    "SGD, momentum": (
        lambda _: fo.MomentumOptimizer(0.1, 0.9),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    ),
    "SGD, nesterov": (
        lambda _: fo.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    ),
    "Adagrad": (
        lambda _: fo.AdagradOptimizer(0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1, eps=0.0),
    ),
    "RMSprop": (
        lambda var: from_zeros(fo.RMSPropOptimizer(0.1, 0.9, 0.5, 0.0), var),
        lambda p: torch.optim.RMSprop(p, lr=0.1, alpha=0.9, momentum=0.5, eps=0.0),
    ),
    "Adadelta": (
        lambda _: fo.AdadeltaOptimizer(0.5, 0.9, 1e-3),
        lambda p: torch.optim.Adadelta(p, lr=0.5, rho=0.9, eps=1e-3),
    ),
    "Adam": (
        lambda _: fo.AdamOptimizer(0.1, 0.8, 0.9, adam_epsilon(1e-3, 0.9)),
        lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.9), eps=1e-3),
    ),
    "AdamW": (
        lambda _: fo.AdamWOptimizer(
            0.2, 0.1, 0.8, 0.9, adam_epsilon(1e-3, 0.9), times_learning_rate=True
        ),
        lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.2),
    ),
    "Adamax": (
        lambda _: fo.AdamaxOptimizer(0.1, 0.8, 0.9, 0.0),
        lambda p: torch.optim.Adamax(p, lr=0.1, betas=(0.8, 0.9), eps=0.0),
    ),
    "decoupled": (  # all that PyTorch's AdamW adds, on another rule
        lambda _: fo.decouple(fo.AdagradOptimizer(0.1), 0.2, times_learning_rate=True),
        lambda p: _decaying(torch.optim.Adagrad, p, 0.02, lr=0.1, initial_accumulator_value=0.1),
    ),
}


def _decaying(cls: Any, parameters: Any, rate: float, **kwargs: Any) -> Any:
    class Decaying(cls):  # type: ignore[misc]
        def step(self) -> None:
            with torch.no_grad():
                for parameter in parameters:
                    parameter.mul_(1 - rate)
            super().step()

    return Decaying(parameters, eps=0.0, **kwargs)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("shape", [(5,), (4, 3)])
def test_dense(name: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    ours, theirs = PAIRS[name]
    start = rng.normal(size=shape)
    var = fo.Variable(start)
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer, peer = ours(var), theirs([parameter])
    for step in range(STEPS):
        gradient = rng.normal(size=shape) * (100 if step == 5 else 1)
        optimizer.apply_gradients([(gradient, var)])
        parameter.grad = torch.from_numpy(gradient)
        peer.step()
        np.testing.assert_allclose(
            var.numpy(), parameter.detach().numpy(), err_msg=f"step {step}", **TOLERANCE
        )


SPARSE = {
    "SGD": PAIRS["SGD"],
    "Adagrad": (  # lazy, too
        PAIRS["Adagrad"][0],
        lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1, eps=0.0),
    ),
    "SparseAdam": (
        lambda _: fo.LazyAdamOptimizer(0.1, 0.8, 0.9, 1e-3),
        lambda p: torch.optim.SparseAdam(p, lr=0.1, betas=(0.8, 0.9), eps=1e-3),
    ),
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse(name: str) -> None:
    rng = np.random.default_rng(2)
    ours, theirs = SPARSE[name]
    start = rng.normal(size=(7, 3))
    var = fo.Variable(start)
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer, peer = ours(var), theirs([parameter])
    for step in range(STEPS):
        ids, values = rng.integers(0, 7, 5), rng.normal(size=(5, 3))
        optimizer.apply_gradients([(fo.IndexedSlices(values, ids), var)])
        parameter.grad = torch.sparse_coo_tensor(ids[None], torch.from_numpy(values), (7, 3))
        peer.step()
        np.testing.assert_allclose(
            var.numpy(), parameter.detach().numpy(), err_msg=f"step {step}", **TOLERANCE
        )


def test_parameter_groups_are_settings_of_variables() -> None:
    rng = np.random.default_rng(3)
    starts = [rng.normal(size=(4, 3)), rng.normal(size=3)]
    w, bias = (fo.Variable(start) for start in starts)
    optimizer = fo.AdamWOptimizer(
        0.2, 0.1, epsilon=adam_epsilon(1e-3, 0.999), times_learning_rate=True
    )
    optimizer.configure(bias, learning_rate=0.05, weight_decay=0.0)
    parameters = [torch.nn.Parameter(torch.from_numpy(start.copy())) for start in starts]
    peer = torch.optim.AdamW(
        [
            {"params": [parameters[0]], "weight_decay": 0.2},
            {"params": [parameters[1]], "lr": 0.05, "weight_decay": 0.0},
        ],
        lr=0.1,
        eps=1e-3,
    )
    for _ in range(STEPS):
        gradients = [rng.normal(size=start.shape) for start in starts]
        optimizer.apply_gradients(list(zip(gradients, (w, bias), strict=True)))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.from_numpy(gradient)
        peer.step()
    for var, parameter in zip((w, bias), parameters, strict=True):
        np.testing.assert_allclose(var.numpy(), parameter.detach().numpy(), **TOLERANCE)
