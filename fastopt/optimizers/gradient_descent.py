"""Gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._validate import Real
from fastopt.graph import Graph
from fastopt.indexed_slices import IndexedSlices
from fastopt.optimizers._decay import Decay
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars
from fastopt.variable import Variable


class GradientDescentOptimizer(KernelOptimizer):
    """Gradient descent: ``w -= learning_rate * g``.

    With a sparse gradient only the rows that it lists change. A row that is listed several times is
    updated several times, in the order of the list, as TensorFlow does.

    With an L2 penalty, ``l2_regularization_strength / 2 * sum(w**2)``, the update is::

        w = w - learning_rate * l2_regularization_strength * w
        w = w - learning_rate * g

    of all rows, also with a sparse gradient: the penalty has a gradient in every row. That costs no
    more than the listed rows; what others miss is made up for when they are next listed or read.
    For other rules than this one the penalty on a row without a gradient is no such factor; see
    `fastopt.regularizers` for what they can have.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size. A callable is called, and anything but a plain number is read, once in every
        step. It may be negative, which ascends.
    use_locking : bool
        See `Optimizer`.
    name : str
        The name of the optimizer.
    l2_regularization_strength : float, callable, Variable or array_like scalar
        The L2 penalty, not negative; times the weight it is added to the gradient, as
        ``weight_decay`` in PyTorch's SGD. ``configure(var, l2_regularization_strength=0.0)`` leaves
        a variable out. Keyword only.
    loss_scale : int, float, "dynamic" or LossScale, optional
        See `Optimizer`. Keyword only.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number within its bounds.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0, 2.0]), name="w")
    >>> done = fo.GradientDescentOptimizer(3.0).apply_gradients([(np.array([0.1, 0.1]), w)])
    >>> w.numpy()
    array([0.7, 1.7])
    >>> table = fo.Variable(np.ones((3, 1)), name="table")
    >>> opt = fo.GradientDescentOptimizer(0.5, l2_regularization_strength=0.5)
    >>> done = opt.apply_gradients([(fo.IndexedSlices(np.ones((1, 1)), [0]), table)])
    >>> table.numpy().ravel()
    array([0.25, 0.75, 0.75])
    """

    _constraints = {"learning_rate": Real(), "l2_regularization_strength": Real(ge=0)}

    def __init__(
        self,
        learning_rate: Any,
        use_locking: bool = False,
        name: str = "GradientDescent",
        *,
        l2_regularization_strength: Any = 0.0,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            l2_regularization_strength=l2_regularization_strength,
        )
        # The gradient of the penalty is linear in the weight: what is left of it is a factor.
        self._decay = Decay(times_learning_rate=True, hyperparameter="l2_regularization_strength")
        self._look_through()

    def _let_decay(self, decay: Decay, weight_decay: Any) -> None:
        if self._decays is not None:
            raise ValueError(
                f"{type(self).__name__}: weights that have an l2_regularization_strength can't have"
                " a weight_decay too; for this rule the penalty is a decay times the learning rate"
            )
        self._constraints = {"learning_rate": self._constraints["learning_rate"]}
        super()._let_decay(decay, weight_decay)

    def _rule(self) -> str:
        return "gradient_descent"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        return (values["learning_rate"],)

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Variable) -> Any:
        # Linear in the gradient: repeated rows need no sum, and are not summed in TensorFlow.
        return self._apply_sparse(grad, var)
