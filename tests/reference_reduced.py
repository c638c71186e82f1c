"""The oracle of the rules that sum up before they update, over rows or over whole variables.

As in `tests.reference`: plain NumPy, written from the papers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Slots = dict[str, Array]


def by_row(numbers: Any, like: Array) -> Array:
    """Turn one number a row to a shape that goes with all elements."""
    numbers = np.asarray(numbers)
    return numbers.reshape(numbers.shape + (1,) * (like.ndim - numbers.ndim))


def mean_of_squares(g: Array) -> Any:
    """The mean over each row; the elements of a vector are rows of one."""
    if g.ndim < 2:
        return np.square(g)
    return np.square(g).reshape(len(g), -1).mean(axis=1)


def norm(x: Array) -> Any:
    """Over everything."""
    return np.sqrt(np.sum(np.square(x)))


def rowwise_adagrad(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    epsilon: float,
    weight: float | None = None,
) -> tuple[Array, Slots]:
    """Naumov et al. (2019); with a weight, sqrt(t + 1), FBGEMM's weighted form."""
    if not w.size:  # rows without elements
        return w, slots
    if weight is None:
        accumulator = slots["accumulator"] + mean_of_squares(g)
        rate = learning_rate / (np.sqrt(accumulator) + epsilon)
    else:
        accumulator = slots["accumulator"] + weight * mean_of_squares(g)
        rate = learning_rate * weight / (np.cbrt(accumulator) + epsilon)
    return w - by_row(rate, w) * g, {"accumulator": accumulator}


def partial_rowwise_adam(
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
    """Adam with the mean of squares over each row; epsilon is beside the corrected root."""
    if not w.size:  # rows without elements
        return w, slots
    m = beta1 * slots["m"] + (1 - beta1) * g
    v = beta2 * slots["v"] + (1 - beta2) * mean_of_squares(g)
    root = np.sqrt(v / (1 - beta2_power)) + epsilon
    return w - learning_rate * m / (1 - beta1_power) / by_row(root, w), {"m": m, "v": v}


def group_ftrl(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    l1: float = 0.0,
    l2: float = 0.0,
    l21: float = 0.0,
) -> tuple[Array, Slots]:
    """Yue et al. (2021), over rows."""
    n = slots["accum"] + np.square(g)
    linear = slots["linear"] + g - (np.sqrt(n) - np.sqrt(slots["accum"])) / learning_rate * w
    s = np.sign(linear) * np.maximum(np.abs(linear) - l1, 0)
    rows = s.reshape(w.shape[0] if w.ndim else 1, -1) if w.size else s.reshape(0, 1)
    new = np.zeros_like(w)
    denominator = np.sqrt(n) / learning_rate + 2 * l2
    for number, row in enumerate(rows):
        limit = l21 * np.sqrt(row.size)
        at = number if w.ndim else ()
        if norm(row) > limit:
            target = -(1 - limit / norm(row)) * s[at] / denominator[at]
            new[at] = np.where((s[at] != 0) & (denominator[at] > 0), target, 0)
    return new, {"accum": n, "linear": linear}


def lamb(
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
    weight_decay: float = 0.0,
    adapt: bool = True,
) -> tuple[Array, Slots]:
    """You et al. (2020)."""
    m = beta1 * slots["m"] + (1 - beta1) * g
    v = beta2 * slots["v"] + (1 - beta2) * np.square(g)
    update = m / (1 - beta1_power) / (np.sqrt(v / (1 - beta2_power)) + epsilon) + weight_decay * w
    ratio = norm(w) / norm(update) if adapt and norm(w) > 0 and norm(update) > 0 else 1.0
    return w - learning_rate * ratio * update, {"m": m, "v": v}


def lars(
    w: Array,
    g: Array,
    slots: Slots,
    *,
    learning_rate: float,
    momentum: float,
    weight_decay: float = 0.0,
    eeta: float = 0.001,
    epsilon: float = 0.0,
    use_nesterov: bool = False,
    adapt: bool = True,
) -> tuple[Array, Slots]:
    """You, Gitman and Ginsburg (2017), with TensorFlow's undamped momentum."""
    trust = 1.0
    if adapt and norm(w) > 0 and norm(g) > 0:
        trust = eeta * norm(w) / (norm(g) + weight_decay * norm(w) + epsilon)
    step = g + weight_decay * w
    a = momentum * slots["momentum"] + step
    way = step + momentum * a if use_nesterov else a
    return w - learning_rate * trust * way, {"momentum": a}


RULES: dict[str, Callable[..., tuple[Array, Slots]]] = {
    "rowwise_adagrad": rowwise_adagrad,
    "partial_rowwise_adam": partial_rowwise_adam,
    "group_ftrl": group_ftrl,
    "lamb": lamb,
    "lars": lars,
}
WHOLE = frozenset({"lamb", "lars"})
