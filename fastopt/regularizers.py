"""Regularisation: terms of a loss that pull weights to zero.

A regularizer is called with weights and returns its term, a scalar to be added to the loss. On a
large table the term of all rows costs the whole table in every step; two functions are for the rows
that a step touches: `on_rows` is a term of a loss, `add_gradients` adds the term's gradient to
gradients that are there already. L2 of all rows at the cost of those that a step touches is a
matter of optimizers: ``l2_regularization_strength`` of `GradientDescentOptimizer`, and `decouple`
for every rule.

Names are those of ``tf.keras.regularizers`` (the coefficient multiplies the sum of squares) and of
``tf.contrib.layers`` (``l2_regularizer`` multiplies half of it).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fastopt._arrays import compute_dtype, shown
from fastopt._kernels._lists import sum_of_squares
from fastopt._pairs import as_list, split
from fastopt._validate import Real
from fastopt.autodiff import defvjp
from fastopt.autodiff.primitives import Primitive
from fastopt.conversion import as_gradient
from fastopt.embedding import embedding_lookup
from fastopt.embedding.tables import as_ids
from fastopt.graph import trainable_variables
from fastopt.indexed_slices import IndexedSlices
from fastopt.nn.numerics import as_floating, widened
from fastopt.variable import Variable

__all__ = [
    "L1L2",
    "add_gradients",
    "apply_regularization",
    "l1",
    "l1_l2",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2",
    "l2_regularizer",
    "on_rows",
]

Array = np.ndarray[Any, Any]

_COEFFICIENT = Real(ge=0, fixed=True)


class L1L2:
    """The term ``l1 * sum(abs(x)) + l2 * sum(x ** 2)``.

    Its gradient is ``l1 * sign(x) + 2 * l2 * x``, where the sign of 0 is 0.

    Parameters
    ----------
    l1, l2 : float, default 0
        The coefficients, not negative.

    Raises
    ------
    TypeError, ValueError
        If a coefficient is not a finite number that is at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([3.0, -4.0]), name="w")
    >>> penalty = fo.regularizers.L1L2(l1=0.5, l2=0.1)
    >>> float(penalty(w))
    6.0
    >>> fo.gradients(penalty(w), [w])
    [array([ 1.1, -1.3])]
    """

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self._l1 = _COEFFICIENT.accept(type(self).__name__, "l1", l1)
        self._l2 = _COEFFICIENT.accept(type(self).__name__, "l2", l2)

    def __call__(self, x: Any) -> Any:
        """Return the term of these weights.

        Parameters
        ----------
        x : array_like, Variable or Tensor
            Real numbers of any shape.

        Returns
        -------
        Tensor or ndarray
            0-d, of the dtype of `x`, float32 if `x` has 16 bits. Sums are taken in float64.

        Raises
        ------
        TypeError
            If `x` does not hold real numbers.
        """
        return _penalty(x, self._l1, self._l2)

    def gradient(self, x: Array) -> Array:
        """Return the gradient of the term with respect to an array of weights.

        Parameters
        ----------
        x : ndarray
            Of a floating dtype.

        Returns
        -------
        ndarray
            Of the shape and dtype of `x`, float32 if `x` has 16 bits.
        """
        x = x.astype(compute_dtype(x.dtype), copy=False)
        gradient: Array = np.multiply(x, 2 * self._l2)
        if self._l1:
            gradient += np.sign(x) * self._l1
        return gradient

    def get_config(self) -> dict[str, float]:
        """Return the arguments of the constructor."""
        return {"l1": self._l1, "l2": self._l2}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(l1={self._l1:g}, l2={self._l2:g})"


def l1(l1: float = 0.01) -> L1L2:
    """Return the regularizer ``l1 * sum(abs(x))``, as ``tf.keras.regularizers.l1``.

    Parameters
    ----------
    l1 : float
        The coefficient, not negative.
    """
    return L1L2(l1=l1)


def l2(l2: float = 0.01) -> L1L2:
    """Return the regularizer ``l2 * sum(x ** 2)``, as ``tf.keras.regularizers.l2``.

    Parameters
    ----------
    l2 : float
        The coefficient, not negative. The gradient is ``2 * l2 * x``.
    """
    return L1L2(l2=l2)


def l1_l2(l1: float = 0.01, l2: float = 0.01) -> L1L2:
    """Return the sum of both, as ``tf.keras.regularizers.l1_l2``.

    Parameters
    ----------
    l1, l2 : float
        The coefficients, not negative.
    """
    return L1L2(l1, l2)


def l1_regularizer(scale: float) -> L1L2:
    """Return the regularizer ``scale * sum(abs(x))``, as ``tf.contrib.layers`` has it.

    Parameters
    ----------
    scale : float
        The coefficient, not negative.
    """
    return L1L2(l1=scale)


def l2_regularizer(scale: float) -> L1L2:
    """Return the regularizer ``scale * sum(x ** 2) / 2``, as ``tf.contrib.layers`` has it.

    Parameters
    ----------
    scale : float
        The coefficient, not negative. The gradient is ``scale * x``.
    """
    return L1L2(l2=_COEFFICIENT.accept("l2_regularizer", "scale", scale) / 2)


def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0) -> L1L2:
    """Return the sum of `l1_regularizer` and `l2_regularizer`.

    Parameters
    ----------
    scale_l1, scale_l2 : float
        The coefficients, not negative.
    """
    return L1L2(scale_l1, _COEFFICIENT.accept("l1_l2_regularizer", "scale_l2", scale_l2) / 2)


def apply_regularization(
    regularizer: Any, weights_list: Iterable[Any] | Variable | None = None
) -> Any:
    """Return the sum of a regularizer's terms of several weights.

    Parameters
    ----------
    regularizer : callable
        Called with each of the weights.
    weights_list : iterable of Variable, Tensor or array_like, or one Variable, optional
        The weights. Default: the trainable variables of the default graph.

    Returns
    -------
    Tensor or ndarray
        0-d. The sum of the terms.

    Raises
    ------
    ValueError
        If there are no weights.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w, b = np.array([1.0, 2.0]), np.array([3.0])
    >>> float(fo.regularizers.apply_regularization(fo.regularizers.l2(0.5), [w, b]))
    7.0
    """
    if weights_list is None:
        weights_list = trainable_variables()
    weights = [weights_list] if isinstance(weights_list, Variable) else list(weights_list)
    if not weights:
        raise ValueError("No weights to regularize: weights_list is empty")
    total = regularizer(weights[0])
    for each in weights[1:]:
        total = total + regularizer(each)
    return total


def on_rows(regularizer: Any, params: Variable, ids: Any) -> Any:
    """Return a regularizer's term of the rows that are looked up, each row once.

    The cost is that of the rows, and so is the gradient, an `IndexedSlices`. In expectation over
    batches this is not the term of the whole table: frequent rows are pulled more often.

    Parameters
    ----------
    regularizer : callable
        Called with the rows.
    params : Variable or array_like, shape (rows, ...)
        The table.
    ids : array_like of int
        Row numbers, of any shape.

    Returns
    -------
    Tensor or ndarray
        0-d.

    Raises
    ------
    TypeError
        If `ids` are not integers.
    IndexError
        If there is no such row.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), name="table")
    >>> term = fo.regularizers.on_rows(fo.regularizers.l2(0.5), table, [[2, 0], [2, 2]])
    >>> float(term)
    33.0
    >>> fo.gradients(term, [table])[0].indices
    array([2, 0])
    """
    flat, _ = as_ids(ids, "ids")
    _, first = np.unique(flat, return_index=True)
    return regularizer(embedding_lookup(params, flat[np.sort(first)]))


def add_gradients(
    grads_and_vars: Any, regularizer: L1L2, var_list: Sequence[Variable] | None = None
) -> list[tuple[Any, Any]]:
    """Add the gradient of a regularizer's term to gradients, of sparse ones on their rows only.

    To be called between `Optimizer.compute_gradients` and `Optimizer.apply_gradients`.

    Parameters
    ----------
    grads_and_vars : iterable of (gradient, variable)
        As `Optimizer.apply_gradients` takes them. ``None`` stays ``None``.
    regularizer : L1L2
        Anything with its method ``gradient``.
    var_list : sequence of Variable, optional
        The variables whose gradients are changed. Default all of them.

    Returns
    -------
    list of tuple
        New pairs. A sparse gradient is an `IndexedSlices` that lists each row once, by first
        appearance, with the term of the row added once.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `Optimizer.apply_gradients` raises for such gradients.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.ones((4, 2)), name="table")
    >>> gradient = fo.IndexedSlices(np.zeros((2, 2)), [3, 3])
    >>> pairs = fo.regularizers.add_gradients([(gradient, table)], fo.regularizers.l2(0.25))
    >>> pairs[0][0].to_dense().tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.5, 0.5]]
    """
    if not callable(getattr(regularizer, "gradient", None)):
        raise TypeError(
            "regularizer must have a method gradient(x), as those of fastopt.regularizers,"
            f" got {shown(regularizer)}"
        )
    chosen = None if var_list is None else {id(var) for var in var_list}
    result: list[tuple[Any, Any]] = []
    for position, pair in enumerate(as_list(grads_and_vars)):
        gradient, var = split(pair, position)
        if gradient is not None and isinstance(var, Variable):
            if chosen is None or id(var) in chosen:
                gradient = _with_term(gradient, var, regularizer)
        result.append((gradient, var))
    return result


def _with_term(gradient: Any, var: Variable, regularizer: Any) -> Array | IndexedSlices:
    checked = as_gradient(
        gradient,
        like=compute_dtype(var.dtype),
        shape=var.shape,
        name=f"the gradient of variable {var.name!r}",
    )
    assert checked is not None
    if not isinstance(checked, IndexedSlices):
        return checked + regularizer.gradient(var._read())
    rows, indices = checked.grouping(var.shape[0]).sum_rows(checked.values)
    rows += regularizer.gradient(var._read_rows(indices))
    return IndexedSlices._unchecked(rows, indices, var.shape)


def _penalty_of(x: Any, l1: float, l2: float) -> Array:
    x = widened(as_floating(x, "x"))
    x = np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("="))
    total = l1 * np.sum(np.abs(x), dtype=np.float64) if l1 else 0.0
    if l2:
        total += l2 * (sum_of_squares([x]) if x.dtype.itemsize <= 8 else np.sum(x * x))
    return np.asarray(total, dtype=x.dtype)


_penalty = Primitive(_penalty_of, "fastopt.regularizers.L1L2", builtin=True)
defvjp(
    _penalty,
    lambda ans, x, l1, l2: lambda g: np.asarray(g * L1L2(l1, l2).gradient(np.asarray(x))),
    reads=[["x"]],
)
