"""Proximal gradient descent and proximal Adagrad."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._validate import Real
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot


class ProximalGradientDescentOptimizer(KernelOptimizer):
    """Gradient descent followed by the proximal step of L1 and L2 penalties [1]_.

    The update is::

        p = w - learning_rate * g
        w = sign(p) * max(|p| - learning_rate * l1, 0) / (1 + learning_rate * l2)

    No slots. With a sparse gradient only the rows that it lists change, after repeated rows have
    been summed; the other rows are not shrunk.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size. A callable is called, and anything but a plain number is read, once in every
        step.
    l1_regularization_strength : float, callable, Variable or array_like scalar
        The penalty on absolute weights, which makes exact zeros. A negative one counts as 0.
    l2_regularization_strength : float, callable, Variable or array_like scalar
        The penalty on squared weights.
    use_locking : bool
        See `Optimizer`.
    name : str
        The name of the optimizer.
    loss_scale : int, float, "dynamic" or LossScale, optional
        See `Optimizer`. Keyword only.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number.

    References
    ----------
    .. [1] J. Duchi, Y. Singer, "Efficient online and batch learning using forward backward
       splitting", JMLR 10, 2009.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0, 0.25]), name="w")
    >>> opt = fo.ProximalGradientDescentOptimizer(0.5, l1_regularization_strength=0.5)
    >>> done = opt.apply_gradients([(np.array([2.0, 1.0]), w)])
    >>> w.numpy() + 0.0
    array([0., 0.])
    """

    _constraints = {
        "learning_rate": Real(),
        "l1_regularization_strength": Real(),
        "l2_regularization_strength": Real(),
    }

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
        )

    def _rule(self) -> str:
        return "proximal_gradient_descent"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        rate = values["learning_rate"]
        return (
            rate,
            rate * max(values["l1_regularization_strength"], 0.0),
            1.0 + values["l2_regularization_strength"] * rate,
        )


class ProximalAdagradOptimizer(KernelOptimizer):
    """Adagrad followed by the proximal step of L1 and L2 penalties [1]_ [2]_.

    The update is::

        a = a + g**2
        r = learning_rate / sqrt(a)
        p = w - r * g
        w = sign(p) * max(|p| - r * l1, 0) / (1 + r * l2)

    The slot ``accumulator`` holds ``a``. There is no epsilon: the initial value keeps the root from
    zero.

    With a sparse gradient only the rows that it lists change, after repeated rows have been summed;
    the other rows are not shrunk.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size, greater than 0. A callable is called, and anything but a plain number is
        read, once in every step.
    initial_accumulator_value : float
        The value the accumulators start from, greater than 0.
    l1_regularization_strength, l2_regularization_strength : float, callable, Variable or scalar
        The penalties on absolute weights, which makes exact zeros, and on squared weights; not
        negative.
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
    .. [1] J. Duchi, Y. Singer, "Efficient online and batch learning using forward backward
       splitting", JMLR 10, 2009.
    .. [2] J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods for online learning and
       stochastic optimization", JMLR 12, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0]), name="w")
    >>> opt = fo.ProximalAdagradOptimizer(
    ...     1.0, initial_accumulator_value=9.0, l1_regularization_strength=0.5
    ... )
    >>> done = opt.apply_gradients([(np.array([4.0]), w)])
    >>> opt.get_slot(w, "accumulator").numpy(), w.numpy().round(6)
    (array([25.]), array([0.1]))
    """

    _constraints = {
        "learning_rate": Real(gt=0),
        "initial_accumulator_value": Real(gt=0, fixed=True),
        "l1_regularization_strength": Real(ge=0),
        "l2_regularization_strength": Real(ge=0),
    }
    _slot_table = (Slot("accumulator", initial="initial_accumulator_value"),)

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
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
        )

    def _rule(self) -> str:
        return "proximal_adagrad"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        return (
            values["learning_rate"],
            values["l1_regularization_strength"],
            values["l2_regularization_strength"],
        )
