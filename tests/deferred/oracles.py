"""Dense recurrences in NumPy: every row, in every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Recurrence:
    """One rule, computed in one dtype, all rows in each step.

    Parameters
    ----------
    rule : {"adam", "amsgrad", "adamax", "nadam"}
    w : ndarray
        The initial weights, copied.
    beta1, beta2, epsilon : float
    dtype : dtype
        Of all numbers, hyperparameters included.
    """

    def __init__(
        self,
        rule: str,
        w: Array,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        dtype: Any = np.float64,
    ) -> None:
        self.dtype = np.dtype(dtype).type
        self.rule = rule
        self.w = w.astype(dtype)
        self.m = np.zeros_like(self.w)
        self.v = np.zeros_like(self.w)
        self.vhat = np.zeros_like(self.w)
        self.betas = beta1, beta2
        self.epsilon = epsilon
        self.t = 0

    def correction(self) -> float:
        """Return the factor on the learning rate for the step that comes next."""
        beta1, beta2 = self.betas
        t = self.t + 1
        if self.rule == "adamax":
            return 1.0 / (1.0 - beta1**t)
        return float(np.sqrt(1.0 - beta2**t) / (1.0 - beta1**t))

    def step(self, lr: float, g: Array, listed: Array, keep: float = 1.0) -> None:
        """Make a step with a dense gradient; `listed` are the rows that a sparse one lists."""
        c = self.dtype
        beta1, beta2 = self.betas
        lr = c(lr * self.correction())
        self.t += 1
        g = g.astype(c)
        if keep != 1.0:
            self.w -= self.w * c(1.0 - keep)
        self.m += (g - self.m) * c(1.0 - beta1)
        if self.rule == "adamax":
            self.v = np.maximum(self.v * c(beta2), np.abs(g))
            root = self.v
        else:
            self.v += (g * g - self.v) * c(1.0 - beta2)
            self.vhat = np.maximum(self.vhat, self.v)
            root = np.sqrt(self.vhat if self.rule == "amsgrad" else self.v)
        move = self.m
        if self.rule == "nadam":
            move = np.zeros_like(self.m)
            move[listed] = g[listed] * c(1.0 - beta1) + self.m[listed] * c(beta1)
        with np.errstate(invalid="ignore"):
            self.w -= np.where(move == 0, 0, lr * move / (root + c(self.epsilon)))


def far(a: Array, exact: Array) -> float:
    """Return how far numbers are from exact ones, relative to the largest of these."""
    return float(np.max(np.abs(a - exact)) / np.max(np.abs(exact)))


Slices = tuple[Array, Array]


def walk(
    n_rows: int, width: int, seed: int = 0, listed: int = 5
) -> Callable[[], tuple[Slices, Array]]:
    """Return a function that makes gradients: rows as they come in real tables, few of them often.

    It returns (values, ids), with repeated ids, and the same as an array in float64.
    """
    rng = np.random.default_rng(seed)
    p = 1.0 / np.arange(1, n_rows + 1) ** 1.2
    p /= p.sum()

    def draw() -> tuple[Slices, Array]:
        ids = rng.choice(n_rows, listed, p=p)
        values = rng.normal(size=(listed, width)).astype(np.float32)
        dense = np.zeros((n_rows, width))
        np.add.at(dense, ids, values.astype(np.float64))
        return (values, ids), dense

    return draw
