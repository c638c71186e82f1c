"""The rules against optax, where both mean the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastopt as fo

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

# Both compute in float64, with some twenty roundings a step in another order.
TOLERANCE = {"rtol": 1e-12, "atol": 1e-13}
BETAS = {"b1": 0.8, "b2": 0.9}

PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "lion": (
        lambda: fo.LionOptimizer(0.05, 0.8, 0.9, weight_decay=0.1),
        lambda: optax.lion(0.05, **BETAS, weight_decay=0.1),
    ),
    "lamb": (
        lambda: fo.LAMBOptimizer(0.05, 0.8, 0.9, 1e-3, weight_decay=0.1),
        lambda: optax.lamb(0.05, **BETAS, eps=1e-3, weight_decay=0.1),
    ),
    "lars": (
        lambda: fo.LARSOptimizer(0.5, 0.0, 0.0, 0.1, 1e-3),
        lambda: optax.lars(0.5, 0.0, trust_coefficient=0.1, eps=1e-3, momentum=0.0),
    ),
    "adadelta": (
        lambda: fo.AdadeltaOptimizer(0.5, 0.9, 1e-3),
        lambda: optax.adadelta(0.5, rho=0.9, eps=1e-3),
    ),
    "adagrad": (
        lambda: fo.AdagradOptimizer(0.1),
        lambda: optax.adagrad(0.1, initial_accumulator_value=0.1, eps=0.0),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("shape", [(5,), (4, 3)])
def test_dense(name: str, shape: tuple[int, ...]) -> None:
    ours, theirs = PAIRS[name]
    rng = np.random.default_rng(1)
    start = rng.normal(size=shape)
    with jax.enable_x64(True):
        var, parameters = fo.Variable(start), jax.numpy.asarray(start)
        optimizer, peer = ours(), theirs()
        state = peer.init(parameters)
        for step in range(8):
            gradient = rng.normal(size=shape) * (100 if step == 5 else 1)
            optimizer.apply_gradients([(gradient, var)])
            update, state = peer.update(jax.numpy.asarray(gradient), state, parameters)
            parameters = optax.apply_updates(parameters, update)
            np.testing.assert_allclose(
                var.numpy(), np.asarray(parameters), err_msg=f"step {step}", **TOLERANCE
            )
