"""Rules for tables that keep one number a row: row-wise Adagrad, partially row-wise Adam."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastopt._validate import Flag, Real
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot
from fastopt.optimizers._powers import BETAS, PowersOptimizer
from fastopt.variable import Variable


class RowWiseAdagradOptimizer(KernelOptimizer):
    """Row-wise Adagrad: Adagrad with one accumulator for each row of a table [1]_.

    For each row, with means over its elements::

        a = a + mean(g**2)
        w = w - learning_rate * g / (sqrt(a) + epsilon)

    or, if weighted, in call ``t``, counted from 1::

        a = a + sqrt(t + 1) * mean(g**2)                                     weighted
        w = w - learning_rate * sqrt(t + 1) * g / (cbrt(a) + epsilon)

    The slot ``accumulator`` holds ``a``: one number a row, so a table of D columns needs D times
    less memory for it than in `AdagradOptimizer`. A row is an index along the first axis; the
    elements of a vector are rows of one element. The weighted form counts calls in the variable
    ``iteration``.

    With a sparse gradient only the rows that it lists change, after repeated rows have been summed.
    The mean is summed in float64, in an order that depends on the width of a row alone.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    initial_accumulator_value : float
        The value the accumulators start from, not negative.
    epsilon : float, callable, Variable or array_like scalar
        Keeps the denominator from zero; not negative.
    weighted : bool
        Let later gradients count more, under a cube root [2]_.
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
    .. [1] M. Naumov et al., "Deep learning recommendation model for personalization and
       recommendation systems", arXiv:1906.00091, 2019; as ``EXACT_ROWWISE_ADAGRAD`` and
       ``EXACT_ROWWISE_WEIGHTED_ADAGRAD`` in FBGEMM.
    .. [2] A. Defazio, S. Jelassi, "Adaptivity without compromise: a momentumized, adaptive, dual
       averaged gradient method for stochastic optimization", JMLR 23, 2022.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.ones((3, 2)), name="table")
    >>> opt = fo.RowWiseAdagradOptimizer(5.0, epsilon=0.0)
    >>> slices = fo.IndexedSlices(np.array([[1.0, 7.0]]), [1])
    >>> done = opt.apply_gradients([(slices, table)])
    >>> opt.get_slot(table, "accumulator").numpy(), table.numpy()[1]
    (array([ 0., 25.,  0.]), array([ 0., -6.]))
    """

    _constraints = {
        "learning_rate": Real(),
        "initial_accumulator_value": Real(ge=0, fixed=True),
        "epsilon": Real(ge=0),
        "weighted": Flag(),
    }
    _slot_table = (Slot("accumulator", initial="initial_accumulator_value", per_row=True),)

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.0,
        epsilon: Any = 1e-8,
        weighted: bool = False,
        use_locking: bool = False,
        name: str = "RowWiseAdagrad",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            initial_accumulator_value=initial_accumulator_value,
            epsilon=epsilon,
            weighted=weighted,
        )

    def _rule(self) -> str:
        weighted = self._hyperparameters["weighted"]
        return "rowwise_adagrad_weighted" if weighted else "rowwise_adagrad"

    def _create_slots(self, var_list: list[Variable]) -> None:
        if self._hyperparameters["weighted"]:
            first = min(var_list, key=lambda var: var.name)
            self._create_non_slot_variable(np.int64(1), "iteration", first)
        super()._create_slots(var_list)

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        scalars = values["learning_rate"], values["epsilon"]
        if not values["weighted"]:
            return scalars
        return (*scalars, math.sqrt(self._iteration(graph)._storage.item() + 1))

    def _advance(self, values: Mapping[str, Any], graph: Graph) -> None:
        if values["weighted"]:
            iteration = self._iteration(graph)
            with iteration._lock:  # each call counts, however many threads apply at once
                iteration._storage[()] = iteration._storage.item() + 1

    def _iteration(self, graph: Graph) -> Variable:
        iteration = self._get_non_slot_variable("iteration", graph)
        assert iteration is not None
        return iteration


class PartialRowWiseAdamOptimizer(PowersOptimizer):
    """Partially row-wise Adam: Adam with one average of squares for each row of a table [1]_.

    For each row, with means over its elements, in call ``t``, counted from 1::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * mean(g**2)
        w = w - learning_rate * m / (1 - beta1**t) / (sqrt(v / (1 - beta2**t)) + epsilon)

    Slots ``m``, of the variable's shape, and ``v``, one number a row, from zeros. The powers of the
    betas are the variables ``beta1_power`` and ``beta2_power``, one pair for all variables of the
    optimizer: they count calls. Epsilon stands beside the corrected root, as in FBGEMM and PyTorch,
    and unlike `AdamOptimizer`.

    With a sparse gradient only the rows that it lists change, after repeated rows have been summed:
    it is lazy as `LazyAdamOptimizer` is.

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
    .. [1] ``PARTIAL_ROWWISE_ADAM`` in FBGEMM; after D. P. Kingma, J. Ba, "Adam: a method for
       stochastic optimization", ICLR 2015.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.ones((3, 2)), name="table")
    >>> opt = fo.PartialRowWiseAdamOptimizer(learning_rate=0.5)
    >>> slices = fo.IndexedSlices(np.array([[1.0, 7.0]]), [1])
    >>> done = opt.apply_gradients([(slices, table)])
    >>> table.numpy()[1].round(6), opt.get_slot(table, "v").shape
    (array([0.9, 0.3]), (3,))
    """

    _constraints = BETAS
    _slot_table = (Slot("m"), Slot("v", per_row=True))

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "PartialRowWiseAdam",
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
        return "partial_rowwise_adam"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        power1, power2 = self._powers(graph)
        return (
            values["learning_rate"] / (1.0 - power1),
            1.0 - values["beta1"],
            1.0 - values["beta2"],
            1.0 - power2,
            values["epsilon"],
        )
