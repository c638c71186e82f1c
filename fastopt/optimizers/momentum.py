"""Gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._validate import Flag, Real
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot


class MomentumOptimizer(KernelOptimizer):
    """Gradient descent with momentum, plain or Nesterov's.

    The update is::

        a = a * momentum + g
        w = w - learning_rate * a                                        plain
        w = w - (learning_rate * g + learning_rate * momentum * a)       use_nesterov

    The slot ``momentum`` holds ``a``, from zeros. The learning rate is not folded into it (as it is
    in Keras), so a change of the learning rate rescales past gradients too.

    With a sparse gradient only the rows that it lists change, after repeated rows have been summed;
    the other rows neither coast nor decay.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    momentum : float, callable, Variable or array_like scalar
        How much of ``a`` stays.
    use_locking : bool
        See `Optimizer`.
    name : str
        The name of the optimizer.
    loss_scale : int, float, "dynamic" or LossScale, optional
        See `Optimizer`. Keyword only.
    use_nesterov : bool
        Whether to look ahead as Nesterov's method does [1]_.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number.

    References
    ----------
    .. [1] I. Sutskever, J. Martens, G. Dahl, G. Hinton, "On the importance of initialization and
       momentum in deep learning", ICML 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0, 2.0]), name="w")
    >>> opt = fo.MomentumOptimizer(2.0, 0.5)
    >>> for _ in range(2):
    ...     done = opt.apply_gradients([(np.array([0.25, 0.25]), w)])
    >>> opt.get_slot(w, "momentum").numpy(), w.numpy()
    (array([0.375, 0.375]), array([-0.25,  0.75]))
    """

    _constraints = {"learning_rate": Real(), "momentum": Real(), "use_nesterov": Flag()}
    _slot_table = (Slot("momentum"),)

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            momentum=momentum,
            use_nesterov=use_nesterov,
        )

    def _rule(self) -> str:
        return "momentum_nesterov" if self._hyperparameters["use_nesterov"] else "momentum"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        return values["learning_rate"], values["momentum"]
