"""Nadam."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import Scalars, Slot
from fastopt.optimizers._powers import BETAS, PowersOptimizer


class NadamOptimizer(PowersOptimizer):
    """Nadam: Adam with Nesterov's look-ahead in the numerator [1]_.

    In call ``t``, counted from 1::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        w = w - lr_t * (beta1 * m + (1 - beta1) * g) / (sqrt(v) + epsilon)
        lr_t = learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t)

    Slots ``m`` and ``v``, from zeros. The powers of the betas are the variables ``beta1_power`` and
    ``beta2_power``, one pair for all variables of the optimizer: they count calls.

    This is the rule of TensorFlow's contributed class. That of Keras and PyTorch is another one: it
    changes beta1 by a schedule of its own.

    With a sparse gradient the averages of every row decay, as in Adam, while only the weights of
    rows that it lists move. So a step costs a pass over the averages of the whole table.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    beta1, beta2 : float, callable, Variable or array_like scalar
        How much of the averages stays in a step, in [0, 1).
    epsilon : float, callable, Variable or array_like scalar
        Keeps the denominator from zero; not negative.
    use_locking : bool
        See `Optimizer`.
    name : str
        The name of the optimizer.
    loss_scale : int, float, "dynamic" or LossScale, optional
        See `Optimizer`. Keyword only.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number within its bounds.

    References
    ----------
    .. [1] T. Dozat, "Incorporating Nesterov momentum into Adam", ICLR workshop 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0, 1.0]), name="w")
    >>> opt = fo.NadamOptimizer(learning_rate=0.5, beta1=0.5)
    >>> done = opt.apply_gradients([(np.array([8.0, -0.125]), w)])
    >>> w.numpy().round(3)
    array([0.25, 1.75])
    """

    _constraints = BETAS
    _slot_table = (Slot("m"), Slot("v"))
    _untouched = "defer"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Nadam",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
        )

    def _rule(self) -> str:
        return "nadam"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        power1, power2 = self._powers(graph)
        correction = math.sqrt(1.0 - power2) / (1.0 - power1)
        return (
            values["learning_rate"] * correction,
            values["beta1"],
            1.0 - values["beta1"],
            1.0 - values["beta2"],
            values["epsilon"],
        )
