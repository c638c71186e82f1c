"""Adagrad with dual averaging."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fastopt._arrays import shown
from fastopt._validate import Bad, Real
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot
from fastopt.variable import Variable


class _Counter:
    """A step counter: a scalar variable of int64."""

    def __str__(self) -> str:
        return "a scalar Variable of int64"

    def accept(self, owner: str, name: str, value: Any) -> Variable:
        """Return the variable."""
        if not isinstance(value, Variable):
            raise TypeError(f"{owner}: {name} must be {self}, got {shown(value)}")
        if value.dtype != np.int64 or value.shape != ():
            raise ValueError(
                f"{owner}: {name} must be {self}, got variable {value.name!r} of {value.dtype} and"
                f" shape {value.shape}"
            )
        return value

    def read(self, owner: str, name: str, kept: Any) -> Any:
        """Return the variable."""
        return kept

    def bad_values(self) -> Iterator[Bad]:
        """Yield what does not count steps."""
        for value in (None, 0, np.int64(0), np.zeros((), np.int64), "step"):
            yield value, TypeError
        for array in (np.int32(0), np.float64(0), np.zeros(1, np.int64)):
            yield Variable(array, trainable=False), ValueError


class AdagradDAOptimizer(KernelOptimizer):
    """Adagrad with dual averaging: sparse linear models from all gradients at once [1]_.

    The update is::

        T = global_step + 1    as it is before the update
        G = G + g
        Q = Q + g**2
        w = -learning_rate * sign(G) * max(|G| - T * l1, 0) / (T * l2 * learning_rate + sqrt(Q))

    Slots ``gradient_accumulator``, which holds ``G``, from zeros, and
    ``gradient_squared_accumulator``, which holds ``Q``, from the initial value.

    The weight is computed anew from what was accumulated: its own value plays no role, and the
    first update of a weight forgets where it started. The optimizer reads `global_step` and doesn't
    advance it: pass it to `minimize` or `apply_gradients` too.

    With a sparse gradient only the rows that it lists change, after repeated rows have been summed.
    The others stay as they were computed last, although ``T`` goes on.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    global_step : Variable
        The step counter, a scalar of int64.
    initial_gradient_squared_accumulator_value : float
        The value ``Q`` starts from, greater than 0.
    l1_regularization_strength : float, callable, Variable or array_like scalar
        The penalty on each step's absolute weights, which makes exact zeros. A negative one counts
        as 0.
    l2_regularization_strength : float, callable, Variable or array_like scalar
        The penalty on each step's squared weights.
    use_locking : bool
        See `Optimizer`.
    name : str
        The name of the optimizer.
    loss_scale : int, float, "dynamic" or LossScale, optional
        See `Optimizer`. Keyword only.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number within its bounds, or `global_step` is not a
        scalar variable of int64.

    References
    ----------
    .. [1] J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods for online learning and
       stochastic optimization", JMLR 12, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.zeros(2), name="w")
    >>> step = fo.Variable(np.int64(0), trainable=False, name="step")
    >>> opt = fo.AdagradDAOptimizer(3.0, step, 9.0, l1_regularization_strength=1.0)
    >>> done = opt.apply_gradients([(np.array([4.0, 0.5]), w)], global_step=step)
    >>> w.numpy()
    array([-1.8, -0. ])
    """

    _constraints = {
        "learning_rate": Real(),
        "global_step": _Counter(),
        "initial_gradient_squared_accumulator_value": Real(gt=0, fixed=True),
        "l1_regularization_strength": Real(),
        "l2_regularization_strength": Real(),
    }
    _slot_table = (
        Slot("gradient_accumulator"),
        Slot("gradient_squared_accumulator", initial="initial_gradient_squared_accumulator_value"),
    )

    def __init__(
        self,
        learning_rate: Any,
        global_step: Variable,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            global_step=global_step,
            initial_gradient_squared_accumulator_value=initial_gradient_squared_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
        )

    def _rule(self) -> str:
        return "adagrad_da"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        number = values["global_step"]._storage.item() + 1
        rate = values["learning_rate"]
        return (
            rate,
            number * max(values["l1_regularization_strength"], 0.0),
            values["l2_regularization_strength"] * number * rate,
        )
