"""Adadelta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._validate import Real
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot


class AdadeltaOptimizer(KernelOptimizer):
    """Adadelta: steps in the units of the weights, without a rate to choose [1]_.

    The update is::

        a = rho * a + (1 - rho) * g**2
        u = sqrt(d + epsilon) / sqrt(a + epsilon) * g
        w = w - learning_rate * u
        d = rho * d + (1 - rho) * u**2

    Slots ``accum``, which holds ``a``, and ``accum_update``, which holds ``d``, from zeros. ``d``
    accumulates the update without the learning rate. The paper has a learning rate of 1.

    With a sparse gradient only the rows that it lists change, after repeated rows have been summed;
    the averages of the other rows don't decay.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    rho : float, callable, Variable or array_like scalar
        How much of the averages stays in a step, in [0, 1].
    epsilon : float, callable, Variable or array_like scalar
        Keeps the denominator from zero, and starts the first steps; not negative.
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
    .. [1] M. D. Zeiler, "ADADELTA: an adaptive learning rate method", arXiv:1212.5701, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0]), name="w")
    >>> opt = fo.AdadeltaOptimizer(1.0, rho=0.75, epsilon=1.0)
    >>> done = opt.apply_gradients([(np.array([2.0]), w)])
    >>> opt.get_slot(w, "accum").numpy(), w.numpy().round(6)
    (array([1.]), array([-0.414214]))
    """

    _constraints = {
        "learning_rate": Real(),
        "rho": Real(ge=0, le=1),
        "epsilon": Real(ge=0),
    }
    _slot_table = (Slot("accum"), Slot("accum_update"))

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking, name, loss_scale, learning_rate=learning_rate, rho=rho, epsilon=epsilon
        )

    def _rule(self) -> str:
        return "adadelta"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        rho = values["rho"]
        return values["learning_rate"], rho, 1.0 - rho, values["epsilon"]
