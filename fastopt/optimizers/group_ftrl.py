"""FTRL with a penalty on whole rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._validate import Real
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot


class GroupFtrlOptimizer(KernelOptimizer):
    """FTRL with group lasso: the rows of useless features become exactly zero [1]_.

    A row of a table belongs to a feature. The update is that of `FtrlOptimizer` with a learning
    rate power of -0.5, but for the last lines, in which norms are over the D elements of a row::

        n = accum + g**2
        linear = linear + g - (sqrt(n) - sqrt(accum)) / learning_rate * w
        accum = n
        s = sign(linear) * max(|linear| - l1, 0)
        w = 0                                                   where norm(s) <= l21 * sqrt(D)
        w = -(1 - l21 * sqrt(D) / norm(s)) * s / (sqrt(n) / learning_rate + 2 * l2)    elsewhere

    Slots ``accum``, from `initial_accumulator_value`, and ``linear``, from zeros. A row is zero
    exactly where zero minimizes the penalized objective; with rows of one element the rule is FTRL
    with ``l1 + l21``. The norm is summed in float64, in an order that depends on D alone.

    With a sparse gradient only the rows that it lists change, after repeated rows have been summed.
    `zero_rows` tells which features are of no use, and `prune_zero_rows` goes on without them.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size, greater than 0. A callable is called, and anything but a plain number is
        read, once in every step.
    initial_accumulator_value : float
        The value the accumulators start from, not negative.
    l1_regularization_strength : float, callable, Variable or array_like scalar
        The penalty on absolute weights, not negative: zeros within rows.
    l2_regularization_strength : float, callable, Variable or array_like scalar
        The penalty on squared weights, not negative.
    l21_regularization_strength : float, callable, Variable or array_like scalar
        The penalty on the norms of rows, not negative: rows of zeros.
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
    .. [1] Y. Yue et al., "Adaptive optimizers with sparse group lasso for neural networks in CTR
       prediction", ECML PKDD 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.zeros((3, 2)), name="table")
    >>> opt = fo.GroupFtrlOptimizer(1.0, 0.0, l21_regularization_strength=1.0)
    >>> slices = fo.IndexedSlices(np.array([[3.0, 4.0], [1.0, -1.0]]), [0, 2])
    >>> done = opt.apply_gradients([(slices, table)])
    >>> table.numpy()[0].round(6)
    array([-0.717157, -0.717157])
    >>> fo.zero_rows(table)
    array([1, 2])
    """

    _constraints = {
        "learning_rate": Real(gt=0),
        "initial_accumulator_value": Real(ge=0, fixed=True),
        "l1_regularization_strength": Real(ge=0),
        "l2_regularization_strength": Real(ge=0),
        "l21_regularization_strength": Real(ge=0),
    }
    _slot_table = (Slot("accum", initial="initial_accumulator_value"), Slot("linear"))

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        l21_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "GroupFtrl",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l21_regularization_strength=l21_regularization_strength,
        )

    def _rule(self) -> str:
        return "group_ftrl"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        return (
            1.0 / values["learning_rate"],
            values["l1_regularization_strength"],
            2.0 * values["l2_regularization_strength"],
            values["l21_regularization_strength"],
        )
