"""The oracle: every update rule in plain NumPy, slow and written from the formulas.

Nothing here comes from the kernels. A rule takes hyperparameters as a user gives them, computes in
the dtype of the arrays it gets (so a caller who wants the exact answer passes float64), takes any
shape and layout, and returns new arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests import reference_reduced

Array = np.ndarray[Any, Any]
Slots = dict[str, Array]
Rule = Callable[..., tuple[Array, Slots]]


def gradient_descent(
    w: Array, g: Array, slots: Slots, *, learning_rate: float
) -> tuple[Array, Slots]:
    """``w - g * lr``."""
    return w - g * w.dtype.type(learning_rate), {}


def momentum(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    momentum: float,
    use_nesterov: bool = False,
) -> tuple[Array, Slots]:
    """Polyak's heavy ball with an undamped sum; Nesterov's variant looks one step ahead."""
    lr, mu = w.dtype.type(learning_rate), w.dtype.type(momentum)
    a = slots["momentum"] * mu + g
    step = g * lr + a * mu * lr if use_nesterov else a * lr
    return w - step, {"momentum": a}


def adagrad(w: Array, g: Array, slots: Slots, *, learning_rate: float) -> tuple[Array, Slots]:
    """Duchi, Hazan and Singer (2011), diagonal; no epsilon."""
    accumulator = slots["accumulator"] + np.square(g)
    return w - w.dtype.type(learning_rate) * g / np.sqrt(accumulator), {"accumulator": accumulator}


def adam(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    beta1_power: float,
    beta2_power: float,
) -> tuple[Array, Slots]:
    """Kingma and Ba (2015) with "epsilon hat"; the powers are those of this step, t >= 1."""
    b1, b2, eps = (w.dtype.type(x) for x in (beta1, beta2, epsilon))
    lr_t = w.dtype.type(learning_rate * np.sqrt(1 - beta2_power) / (1 - beta1_power))
    m = b1 * slots["m"] + (1 - b1) * g
    v = b2 * slots["v"] + (1 - b2) * np.square(g)
    return w - lr_t * m / (np.sqrt(v) + eps), {"m": m, "v": v}


def ftrl(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    learning_rate_power: float = -0.5,
    l1: float = 0.0,
    l2: float = 0.0,
    shrinkage: float = 0.0,
    beta: float = 0.0,
) -> tuple[Array, Slots]:
    """McMahan et al. (2013), "FTRL-Proximal", with TensorFlow's shrinkage and beta."""
    dtype = w.dtype.type
    lr, power = dtype(learning_rate), dtype(-learning_rate_power)
    n_old = slots["accum"]
    n_new = n_old + np.square(g)
    sigma = (n_new**power - n_old**power) / lr
    g_shrunk = g + dtype(2 * shrinkage) * w if shrinkage > 0 else g
    linear = slots["linear"] + g_shrunk - sigma * w
    denominator = n_new**power / lr + dtype(2 * (l2 + beta / (2 * learning_rate)))
    new = np.zeros_like(w)
    with np.errstate(invalid="ignore"):
        moved = (np.abs(linear) > l1) & (denominator != 0)
        np.divide(np.sign(linear) * dtype(l1) - linear, denominator, out=new, where=moved)
    return new, {"accum": n_new, "linear": linear}


def rmsprop(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    decay: float = 0.9,
    momentum: float = 0.0,
    epsilon: float = 1e-10,
    centered: bool = False,
) -> tuple[Array, Slots]:
    """Tieleman and Hinton (2012); centered: Graves (2013). Epsilon is inside the root."""
    lr, rho, mu, eps = (w.dtype.type(x) for x in (learning_rate, decay, momentum, epsilon))
    new = {"rms": rho * slots["rms"] + (1 - rho) * np.square(g)}
    spread = new["rms"]
    if centered:
        new["mg"] = rho * slots["mg"] + (1 - rho) * g
        spread = np.maximum(spread - np.square(new["mg"]), 0)
    new["momentum"] = mu * slots["momentum"] + lr * g / np.sqrt(spread + eps)
    return w - new["momentum"], new


def adadelta(
    w: Array, g: Array, slots: Slots, *, learning_rate: float, rho: float, epsilon: float
) -> tuple[Array, Slots]:
    """Zeiler (2012), with a learning rate on top."""
    lr, decay, eps = (w.dtype.type(x) for x in (learning_rate, rho, epsilon))
    accum = decay * slots["accum"] + (1 - decay) * np.square(g)
    update = g * np.sqrt((slots["accum_update"] + eps) / (accum + eps))
    accum_update = decay * slots["accum_update"] + (1 - decay) * np.square(update)
    return w - lr * update, {"accum": accum, "accum_update": accum_update}


def soft(x: Array, threshold: Any) -> Array:
    """The proximal operator of an L1 penalty."""
    return np.sign(x) * np.maximum(np.abs(x) - threshold, 0)


def adagrad_da(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    number: int,
    l1: float = 0.0,
    l2: float = 0.0,
) -> tuple[Array, Slots]:
    """Duchi, Hazan and Singer (2011), dual averaging; `number` of the step, from 1."""
    total = slots["gradient_accumulator"] + g
    squares = slots["gradient_squared_accumulator"] + np.square(g)
    scale = w.dtype.type(learning_rate) / (
        w.dtype.type(l2 * number * learning_rate) + np.sqrt(squares)
    )
    new = -scale * soft(total, w.dtype.type(number * l1))
    return new, {"gradient_accumulator": total, "gradient_squared_accumulator": squares}


def proximal_gradient_descent(
    w: Array, g: Array, slots: Slots, *, learning_rate: float, l1: float = 0.0, l2: float = 0.0
) -> tuple[Array, Slots]:
    """Duchi and Singer (2009): a step, then the proximal operator of both penalties."""
    lr = w.dtype.type(learning_rate)
    return soft(w - lr * g, lr * w.dtype.type(l1)) / (1 + lr * w.dtype.type(l2)), {}


def proximal_adagrad(
    w: Array, g: Array, slots: Slots, *, learning_rate: float, l1: float = 0.0, l2: float = 0.0
) -> tuple[Array, Slots]:
    """As proximal gradient descent, with Adagrad's rate for each weight."""
    accumulator = slots["accumulator"] + np.square(g)
    rate = w.dtype.type(learning_rate) / np.sqrt(accumulator)
    new = soft(w - rate * g, rate * w.dtype.type(l1)) / (1 + rate * w.dtype.type(l2))
    return new, {"accumulator": accumulator}


def lion(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    beta1: float = 0.9,
    beta2: float = 0.99,
) -> tuple[Array, Slots]:
    """Chen et al. (2023), without decay of weights."""
    lr, b1, b2 = (w.dtype.type(x) for x in (learning_rate, beta1, beta2))
    new = w - lr * np.sign(b1 * slots["m"] + (1 - b1) * g)
    return new, {"m": b2 * slots["m"] + (1 - b2) * g}


def adamax(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    beta1_power: float,
) -> tuple[Array, Slots]:
    """Kingma and Ba (2015), section 7.1, with an epsilon."""
    b1, b2, eps = (w.dtype.type(x) for x in (beta1, beta2, epsilon))
    m = b1 * slots["m"] + (1 - b1) * g
    v = np.maximum(b2 * slots["v"], np.abs(g))
    return w - w.dtype.type(learning_rate / (1 - beta1_power)) * m / (v + eps), {"m": m, "v": v}


def nadam(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    beta1_power: float,
    beta2_power: float,
) -> tuple[Array, Slots]:
    """Dozat (2016) in TensorFlow's simple form: Adam whose numerator looks one step ahead."""
    b1, b2, eps = (w.dtype.type(x) for x in (beta1, beta2, epsilon))
    lr_t = w.dtype.type(learning_rate * np.sqrt(1 - beta2_power) / (1 - beta1_power))
    m = b1 * slots["m"] + (1 - b1) * g
    v = b2 * slots["v"] + (1 - b2) * np.square(g)
    return w - lr_t * (b1 * m + (1 - b1) * g) / (np.sqrt(v) + eps), {"m": m, "v": v}


def amsgrad(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    beta1_power: float,
    beta2_power: float,
) -> tuple[Array, Slots]:
    """Reddi, Kale and Kumar (2018): Adam that divides by the largest average so far."""
    b1, b2, eps = (w.dtype.type(x) for x in (beta1, beta2, epsilon))
    lr_t = w.dtype.type(learning_rate * np.sqrt(1 - beta2_power) / (1 - beta1_power))
    m = b1 * slots["m"] + (1 - b1) * g
    v = b2 * slots["v"] + (1 - b2) * np.square(g)
    vhat = np.maximum(slots["vhat"], v)
    return w - lr_t * m / (np.sqrt(vhat) + eps), {"m": m, "v": v, "vhat": vhat}


RULES: dict[str, Rule] = {
    **reference_reduced.RULES,
    "gradient_descent": gradient_descent,
    "momentum": momentum,
    "adagrad": adagrad,
    "adam": adam,
    "ftrl": ftrl,
    "rmsprop": rmsprop,
    "adadelta": adadelta,
    "adagrad_da": adagrad_da,
    "proximal_gradient_descent": proximal_gradient_descent,
    "proximal_adagrad": proximal_adagrad,
    "lion": lion,
    "adamax": adamax,
    "nadam": nadam,
    "amsgrad": amsgrad,
}

# Rules that need all of a variable at once: a sparse gradient is the dense one it stands for.
WHOLE = reference_reduced.WHOLE

# Rules that apply the rows of a repeated index one after the other, and don't sum them first.
SEQUENTIAL = frozenset({"gradient_descent"})


def dense_step(rule: str, w: Array, g: Array, slots: Slots, **hyper: Any) -> tuple[Array, Slots]:
    """One step with a dense gradient."""
    with np.errstate(all="ignore"):
        return RULES[rule](w, np.asarray(g, w.dtype), slots, **hyper)


def sparse_step(
    rule: str,
    w: Array,
    values: Array,
    indices: Array,
    slots: Slots,
    *,
    untouched: str = "skip",
    **hyper: Any,
) -> tuple[Array, Slots]:
    """One step with the listed rows; ``untouched="update"`` gives the others a gradient of 0."""
    values = np.asarray(values, w.dtype)
    w, slots = w.copy(), {name: slot.copy() for name, slot in slots.items()}
    if rule in SEQUENTIAL:
        for row, value in zip(indices, values, strict=True):
            w[row], _ = dense_step(rule, w[row], value, {}, **hyper)
        return w, slots
    if rule in WHOLE:
        dense = np.zeros_like(w)
        np.add.at(dense, indices, values)
        return dense_step(rule, w, dense, slots, **hyper)
    sums: dict[int, Array] = {}
    for row, value in zip(indices.tolist(), values, strict=True):
        sums[row] = sums[row] + value if row in sums else value
    rows = range(len(w)) if untouched == "update" else sorted(sums)
    for row in rows:
        g = sums.get(row, np.zeros(w.shape[1:], w.dtype))
        one = slice(row, row + 1)
        old = {name: slot[one] for name, slot in slots.items()}
        w[one], new = dense_step(rule, w[one], g[None], old, **hyper)
        for name, slot in new.items():
            slots[name][one] = slot
    return w, slots
