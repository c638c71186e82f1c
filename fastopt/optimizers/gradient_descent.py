"""Gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._validate import Real
from fastopt.graph import Graph
from fastopt.indexed_slices import IndexedSlices
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars
from fastopt.variable import Variable


class GradientDescentOptimizer(KernelOptimizer):
    """Gradient descent: ``w -= learning_rate * g``.

    With a sparse gradient only the rows that it lists change. A row that is listed several times is
    updated several times, in the order of the list, as TensorFlow does.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size. A callable is called, and anything but a plain number is read, once in every
        step. It may be negative, which ascends.
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

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0, 2.0]), name="w")
    >>> done = fo.GradientDescentOptimizer(3.0).apply_gradients([(np.array([0.1, 0.1]), w)])
    >>> w.numpy()
    array([0.7, 1.7])
    """

    _constraints = {"learning_rate": Real()}

    def __init__(
        self,
        learning_rate: Any,
        use_locking: bool = False,
        name: str = "GradientDescent",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(use_locking, name, loss_scale, learning_rate=learning_rate)

    def _rule(self) -> str:
        return "gradient_descent"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        return (values["learning_rate"],)

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Variable) -> Any:
        # Linear in the gradient: repeated rows need no sum, and are not summed in TensorFlow.
        return self._apply_sparse(grad, var)
