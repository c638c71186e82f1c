"""AdaMax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import Scalars, Slot
from fastopt.optimizers._powers import BETAS, PowersOptimizer


class AdamaxOptimizer(PowersOptimizer):
    """AdaMax: Adam that divides by a running maximum of the gradient [1]_.

    In call ``t``, counted from 1::

        m = beta1 * m + (1 - beta1) * g
        v = max(beta2 * v, |g|)
        w = w - learning_rate / (1 - beta1**t) * m / (v + epsilon)

    Slots ``m`` and ``v``, from zeros. The power of beta1 is the variable ``beta1_power``, one for
    all variables of the optimizer: it counts calls.

    With a sparse gradient only the rows that it lists change, after repeated rows have been summed,
    as in TensorFlow's contributed class and in Keras. The bias correction counts every call.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    beta1, beta2 : float, callable, Variable or array_like scalar
        How much of average and maximum stays in a step, in [0, 1).
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
    .. [1] D. P. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015, section
       7.1.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0, 1.0]), name="w")
    >>> opt = fo.AdamaxOptimizer(learning_rate=0.5)
    >>> done = opt.apply_gradients([(np.array([8.0, -0.125]), w)])
    >>> w.numpy().round(3)
    array([0.5, 1.5])
    """

    _constraints = BETAS
    _slot_table = (Slot("m"), Slot("v"))
    _betas = ("beta1",)
    _common = frozenset({"beta1"})  # its power is the optimizer's

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdaMax",
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
        return "adamax"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        (power,) = self._powers(graph)
        return (
            values["learning_rate"] / (1.0 - power),
            1.0 - values["beta1"],
            values["beta2"],
            values["epsilon"],
        )
