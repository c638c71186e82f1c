"""RMSProp, plain and centered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._validate import Flag, Real
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot


class RMSPropOptimizer(KernelOptimizer):
    """RMSProp: steps divided by a running root mean square of the gradient [1]_.

    The update is::

        rms = rms + (g**2 - rms) * (1 - decay)
        mg = mg + (g - mg) * (1 - decay)                                  centered only
        mom = momentum * mom + learning_rate * g / sqrt(rms + epsilon)    plain
        mom = momentum * mom + learning_rate * g / sqrt(max(rms - mg**2, 0) + epsilon)    centered
        w = w - mom

    Slots ``rms``, from ones, ``momentum``, from zeros, and if centered ``mg``, from zeros [2]_.
    Epsilon stands inside the root, and the learning rate is folded into the momentum. Where
    rounding makes the centered variance negative it counts as 0; TensorFlow takes the root of what
    is left, which may be NaN.

    With a sparse gradient only the rows that it lists change, after repeated rows have been summed;
    the averages of the other rows don't decay.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    decay : float, callable, Variable or array_like scalar
        How much of the averages stays in a step, in [0, 1].
    momentum : float, callable, Variable or array_like scalar
        How much of the last step is repeated.
    epsilon : float, callable, Variable or array_like scalar
        Keeps the denominator from zero; not negative.
    use_locking : bool
        See `Optimizer`.
    centered : bool
        Divide by the standard deviation of the gradient instead.
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
    .. [1] T. Tieleman, G. Hinton, "Lecture 6.5: rmsprop", COURSERA: Neural Networks for Machine
       Learning, 2012.
    .. [2] A. Graves, "Generating sequences with recurrent neural networks", arXiv:1308.0850, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0]), name="w")
    >>> opt = fo.RMSPropOptimizer(0.5, decay=0.75, epsilon=0.0)
    >>> done = opt.apply_gradients([(np.array([5.0]), w)])
    >>> opt.get_slot(w, "rms").numpy(), w.numpy().round(6)
    (array([7.]), array([0.055089]))
    """

    _constraints = {
        "learning_rate": Real(),
        "decay": Real(ge=0, le=1),
        "momentum": Real(),
        "epsilon": Real(ge=0),
        "centered": Flag(),
    }
    _slot_table: tuple[Slot, ...] = (Slot("rms", initial=1.0), Slot("momentum"))

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            decay=decay,
            momentum=momentum,
            epsilon=epsilon,
            centered=centered,
        )
        if self._hyperparameters["centered"]:
            self._slot_table = (Slot("rms", initial=1.0), Slot("mg"), Slot("momentum"))

    def _rule(self) -> str:
        return "rmsprop_centered" if self._hyperparameters["centered"] else "rmsprop"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        return (
            values["learning_rate"],
            values["momentum"],
            1.0 - values["decay"],
            values["epsilon"],
        )
