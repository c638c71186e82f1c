"""Adagrad."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._validate import Real
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot


class AdagradOptimizer(KernelOptimizer):
    """Adagrad: steps that shrink with the gradients a weight has seen [1]_.

    The update is::

        a = a + g**2
        w = w - learning_rate * g / sqrt(a)

    The slot ``accumulator`` holds ``a``. There is no epsilon: the initial value keeps the root from
    zero.

    With a sparse gradient only the rows that it lists change. Repeated rows are summed first, so
    that the sum is squared.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    initial_accumulator_value : float
        The value the accumulators start from, greater than 0.
    use_locking : bool
        See `Optimizer`.
    name : str
        The name of the optimizer.
    loss_scale : int, float, "dynamic" or LossScale, optional
        See `Optimizer`. Keyword only.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number, or the initial value is not greater than 0
        (at the first step: in the dtype of the variable).

    References
    ----------
    .. [1] J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods for online learning and
       stochastic optimization", JMLR 12, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0]), name="w")
    >>> opt = fo.AdagradOptimizer(1.0, initial_accumulator_value=9.0)
    >>> done = opt.apply_gradients([(np.array([4.0]), w)])
    >>> opt.get_slot(w, "accumulator").numpy(), w.numpy()
    (array([25.]), array([0.2]))
    """

    _constraints = {"learning_rate": Real(), "initial_accumulator_value": Real(gt=0, fixed=True)}
    _slot_table = (Slot("accumulator", initial="initial_accumulator_value"),)

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            initial_accumulator_value=initial_accumulator_value,
        )

    def _rule(self) -> str:
        return "adagrad"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        return (values["learning_rate"],)
