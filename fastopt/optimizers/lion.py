"""Lion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._validate import Real
from fastopt.graph import Graph
from fastopt.optimizers._decay import WEIGHT_DECAY, Decay
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot


class LionOptimizer(KernelOptimizer):
    """Lion: steps of one size, in the direction of a sign [1]_.

    The update is::

        c = beta1 * m + (1 - beta1) * g
        w = w - learning_rate * (sign(c) + weight_decay * w)
        m = beta2 * m + (1 - beta2) * g

    The slot ``m`` starts from zeros; it is the only one.

    With a sparse gradient only the rows that it lists change, after repeated rows have been summed:
    a sign doesn't fade, so a row that is seen once would else walk for ever. The decay of weights
    concerns every row (see `decouple`).

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step. It is 3 to 10 times smaller than Adam's.
    beta1 : float, callable, Variable or array_like scalar
        How much the average counts against the gradient in the direction, in [0, 1].
    beta2 : float, callable, Variable or array_like scalar
        How much of the average stays in a step, in [0, 1].
    weight_decay : float, callable, Variable or array_like scalar
        How much of a weight decays in a step, multiplied with the learning rate; not negative.
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
    .. [1] X. Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0, 1.0, 1.0]), name="w")
    >>> opt = fo.LionOptimizer(learning_rate=0.25)
    >>> done = opt.apply_gradients([(np.array([100.0, -0.01, 0.0]), w)])
    >>> w.numpy()
    array([0.75, 1.25, 1.  ])
    """

    _constraints = {
        "learning_rate": Real(),
        "beta1": Real(ge=0, le=1),
        "beta2": Real(ge=0, le=1),
        "weight_decay": WEIGHT_DECAY,
    }
    _slot_table = (Slot("m"),)

    def __init__(
        self,
        learning_rate: Any = 0.0001,
        beta1: Any = 0.9,
        beta2: Any = 0.99,
        weight_decay: Any = 0.0,
        use_locking: bool = False,
        name: str = "Lion",
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
            weight_decay=weight_decay,
        )
        self._decay = Decay(times_learning_rate=True)
        self._look_through()

    def _rule(self) -> str:
        return "lion"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        return values["learning_rate"], 1.0 - values["beta1"], 1.0 - values["beta2"]
