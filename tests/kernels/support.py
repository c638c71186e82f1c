"""What the tests of the kernels share: keys, slices, and a plan's scalars from a user's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fastopt._kernels import _pool
from fastopt._kernels._plan import Plan
from fastopt._kernels.rules import RULES

Array = np.ndarray[Any, Any]


class Slices:
    """The least that a plan asks of slices."""

    def __init__(self, values: Array, indices: Array, dense_shape: tuple[int, ...] | None = None):
        self.values = values
        self.indices = indices
        self.dense_shape = dense_shape


class Key:
    """Something that can be held weakly."""


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Use n threads inside."""
    before = _pool.get_num_threads()
    _pool.set_num_threads(n)
    try:
        yield
    finally:
        _pool.set_num_threads(before)


def kernel_of(rule: str, hyper: dict[str, Any]) -> str:
    """Name of the kernel for a rule of the oracle."""
    if rule == "momentum" and hyper.get("use_nesterov"):
        return "momentum_nesterov"
    if rule == "rmsprop" and hyper.get("centered"):
        return "rmsprop_centered"
    if rule == "lars" and hyper.get("use_nesterov"):
        return "lars_nesterov"
    if rule == "rowwise_adagrad" and "weight" in hyper:
        return "rowwise_adagrad_weighted"
    if rule == "ftrl" and hyper.get("learning_rate_power", -0.5) != -0.5:
        return "ftrl_power"
    return rule


def scalars_of(rule: str, hyper: dict[str, Any]) -> tuple[float, ...]:
    """The kernel's scalars, in its order, from hyperparameters."""
    h = hyper
    lr = float(h["learning_rate"])
    l1, l2 = h.get("l1", 0.0), h.get("l2", 0.0)
    b1, b2 = (float(h.get(name, 0.0)) for name in ("beta1", "beta2"))
    p1, p2 = (float(h.get(f"{name}_power", 0.0)) for name in ("beta1", "beta2"))
    if rule == "ftrl":
        power = h.get("learning_rate_power", -0.5)
        two_l2 = 2 * l2 + h.get("beta", 0.0) / lr
        common = (1 / lr, l1, two_l2, 2 * h.get("shrinkage", 0.0))
        return common if power == -0.5 else (*common, -power)
    if rule == "rmsprop":
        return (lr, h["momentum"], 1 - h["decay"], h["epsilon"])
    step = lr * float(np.sqrt(1 - p2)) / (1 - p1)  # of Adam and its relatives
    decay, adapt = h.get("weight_decay", 0.0), h.get("adapt", 1.0)
    epsilon = h.get("epsilon", 0.0)
    if "weight" in h:
        return (lr, epsilon, h["weight"])
    scalars: dict[str, tuple[float, ...]] = {
        "rowwise_adagrad": (lr, epsilon),
        "partial_rowwise_adam": (lr / (1 - p1), 1 - b1, 1 - b2, 1 - p2, epsilon),
        "group_ftrl": (1 / lr, l1, 2 * l2, h.get("l21", 0.0)),
        "lamb": (lr, 1 - b1, 1 - b2, 1 - p1, 1 - p2, epsilon, decay, adapt),
        "lars": (lr, h.get("momentum", 0.0), decay, h.get("eeta", 0.0), epsilon, adapt),
        "gradient_descent": (lr,),
        "momentum": (lr, h.get("momentum", 0.0)),
        "adagrad": (lr,),
        "adadelta": (lr, h.get("rho", 0.0), 1 - h.get("rho", 0.0), h.get("epsilon", 0.0)),
        "adagrad_da": (lr, h.get("number", 1) * l1, l2 * h.get("number", 1) * lr),
        "proximal_gradient_descent": (lr, lr * l1, 1 + l2 * lr),
        "proximal_adagrad": (lr, l1, l2),
        "lion": (lr, 1 - b1, 1 - b2),
        "adam": (step, 1 - b1, 1 - b2, h.get("epsilon", 0.0)),
        "amsgrad": (step, 1 - b1, 1 - b2, h.get("epsilon", 0.0)),
        "adamax": (lr / (1 - p1), 1 - b1, b2, h.get("epsilon", 0.0)),
        "nadam": (step, b1, 1 - b1, 1 - b2, h.get("epsilon", 0.0)),
    }
    return scalars[rule]


_BETAS = {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-3}
_POWERS = {"beta1_power": 0.9**3, "beta2_power": 0.999**3}
HYPER: dict[str, list[dict[str, Any]]] = {
    "gradient_descent": [{"learning_rate": 0.1}],
    "momentum": [
        {"learning_rate": 0.1, "momentum": 0.9},
        {"learning_rate": 0.1, "momentum": 0.9, "use_nesterov": True},
    ],
    "adagrad": [{"learning_rate": 0.3}],
    "adam": [{**_BETAS, **_POWERS}],
    "ftrl": [
        {"learning_rate": 0.5, "l1": 0.2, "l2": 0.1, "shrinkage": 0.05, "beta": 0.3},
        {"learning_rate": 0.5, "l1": 0.1, "learning_rate_power": -0.3},
    ],
    "rmsprop": [
        {"learning_rate": 0.1, "momentum": 0.9, "decay": 0.8, "epsilon": 0.01},
        {"learning_rate": 0.1, "momentum": 0.5, "decay": 0.9, "epsilon": 0.1, "centered": True},
    ],
    "adadelta": [{"learning_rate": 0.5, "rho": 0.9, "epsilon": 1e-3}],
    "adagrad_da": [{"learning_rate": 0.5, "number": 3, "l1": 0.1, "l2": 0.2}],
    "proximal_gradient_descent": [{"learning_rate": 0.3, "l1": 0.5, "l2": 0.7}],
    "proximal_adagrad": [{"learning_rate": 0.3, "l1": 0.5, "l2": 0.7}],
    "lion": [{"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.99}],
    "adamax": [{**_BETAS, "beta1_power": 0.9**3}],
    "nadam": [{**_BETAS, **_POWERS}],
    "amsgrad": [{**_BETAS, **_POWERS}],
    "rowwise_adagrad": [
        {"learning_rate": 0.3, "epsilon": 0.01},
        {"learning_rate": 0.3, "epsilon": 0.01, "weight": 2.0},
    ],
    "partial_rowwise_adam": [{**_BETAS, **_POWERS}],
    "group_ftrl": [{"learning_rate": 0.5, "l1": 0.2, "l2": 0.1, "l21": 0.3}],
    "lamb": [{**_BETAS, **_POWERS, "weight_decay": 0.1}],
    "lars": [
        {"learning_rate": 0.3, "momentum": 0.9, "weight_decay": 0.1, "eeta": 0.5, "epsilon": 0.01},
        {"learning_rate": 0.3, "momentum": 0.9, "eeta": 0.5, "use_nesterov": True},
    ],
}
CASES = [(rule, hyper) for rule, cases in HYPER.items() for hyper in cases]
CASE_IDS = [kernel_of(rule, hyper) for rule, hyper in CASES]


def takes(rule: str, untouched: str = "skip") -> bool:
    """Whether plans of a rule take sparse gradients in this way."""
    reduction = RULES[rule].reduction
    if untouched == "update":
        return not reduction and RULES[rule].duplicates == "sum"
    return reduction != "variable"


SPARSE_CASES = [case for case, name in zip(CASES, CASE_IDS, strict=True) if takes(name)]
SPARSE_IDS = [name for name in CASE_IDS if takes(name)]


def state(
    rule: str, shape: tuple[int, ...], dtype: Any, rng: np.random.Generator
) -> tuple[Array, dict[str, Array]]:
    """Weights and slots for a test; slots that are sums of squares are positive."""

    def numbers() -> Array:
        return np.asarray(rng.normal(size=shape)).astype(dtype)

    slots = {}
    for name in RULES[rule].slots:
        slots[name] = numbers()
        if name in RULES[rule].row_slots:
            slots[name] = np.asarray(rng.normal(size=shape[:1])).astype(dtype)
        if name not in ("m", "momentum", "linear", "mg", "gradient_accumulator"):
            slots[name] = np.asarray(np.abs(slots[name]) + dtype(0.1))
    return numbers(), slots


def apply(
    rule: str,
    hyper: dict[str, Any],
    w: Array,
    slots: dict[str, Array],
    gradient: Array | Slices,
    untouched: str = "skip",
    decay: float = 0.0,
) -> Plan:
    """One step in place through a plan of one variable."""
    key = Key()
    plan = Plan(kernel_of(rule, hyper), [key], [w], [tuple(slots.values())], Slices, untouched)
    assert plan.bind([(gradient, key)])
    plan.run(scalars_of(rule, hyper), decay)
    plan.release()
    return plan


def digits(dtype: Any) -> dict[str, float]:
    """Tolerance of one step against the float64 oracle.

    A step is about ten rounded operations on numbers around one, and a difference of roots may
    cancel two digits.
    """
    eps = float(np.finfo(dtype).eps)
    return {"rtol": 100 * eps, "atol": 100 * eps}
