"""Losses on logits, each one recorded operation with its own derivative."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from fastopt._arrays import shown
from fastopt._kernels import _losses, _nn
from fastopt._scaling import times
from fastopt.autodiff import Differentiable, Tensor, defvjp
from fastopt.autodiff.at_hand import record
from fastopt.autodiff.recording import current
from fastopt.nn import numerics
from fastopt.nn.numerics import Array, as_floating, widened
from fastopt.nn.recorded import recorded


def sigmoid_cross_entropy_with_logits(*, labels: Any, logits: Any) -> Any:
    """Cross-entropy of independent yes-or-no labels, element by element.

    With ``x = logits`` and ``z = labels``, the loss is
    ``z * -log(sigmoid(x)) + (1 - z) * -log(1 - sigmoid(x))``, computed as
    ``max(x, 0) - x * z + log(1 + exp(-|x|))`` so that nothing overflows.

    Parameters
    ----------
    labels : array_like, Variable or Tensor
        Probabilities between 0 and 1 (not checked), of the shape of `logits`. They are cast to the
        dtype of `logits`.
    logits : array_like, Variable or Tensor
        Real numbers of any shape; integers are computed in float64.

    Returns
    -------
    Tensor or ndarray
        Of the shape and dtype of `logits`. An infinite logit costs nothing where the label agrees
        with it.

    Raises
    ------
    TypeError
        If `labels` or `logits` are not real numbers.
    ValueError
        If the shapes differ.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.sigmoid_cross_entropy_with_logits(labels=[1.0, 0.0], logits=[0.0, 1e4]).round(4)
    array([6.931e-01, 1.000e+04])
    """
    if type(logits) is Tensor and current().records and _losses.fits(labels, logits._value):
        x = logits._value
        slope = np.empty(x.shape, x.dtype)
        loss = numerics.sigmoid_cross_entropy(labels, x, slope)
        name = str(_sigmoid_cross_entropy.name)
        return record(name, loss, [(logits, lambda g: np.multiply(slope, g))])
    return _sigmoid_cross_entropy(labels, logits)


def _probabilities_and_logits(labels: Any, logits: Any) -> tuple[Array, Array]:
    logits = as_floating(logits, "logits")
    labels = as_floating(labels, "labels")
    if labels.shape != logits.shape:
        raise ValueError(
            f"labels and logits must have the same shape, got labels of shape {labels.shape} and "
            f"logits of shape {logits.shape}"
        )
    return labels.astype(logits.dtype, copy=False), logits


@recorded
def _sigmoid_cross_entropy(labels: Any, logits: Any) -> Any:
    labels, logits = _probabilities_and_logits(labels, logits)
    loss = numerics.sigmoid_cross_entropy(widened(labels), widened(logits))
    return loss.astype(logits.dtype, copy=False)


def mean_squared_error(*, labels: Any, predictions: Any) -> Any:
    """Mean of the squared differences, the loss of regression and of matrix factorisation.

    The number is that of ``np.mean((predictions - labels) ** 2)``, up to rounding, as one recorded
    operation.

    Parameters
    ----------
    labels : array_like, Variable or Tensor
        What the predictions should be. Arrays are cast to the dtype of `predictions`.
    predictions : array_like, Variable or Tensor
        Real numbers of the same shape; integers are computed in float64.

    Returns
    -------
    Tensor or scalar
        Of the dtype of `predictions`; NaN if there are none.

    Raises
    ------
    TypeError
        If `labels` or `predictions` are not real numbers.
    ValueError
        If the shapes differ: a column less a row would be a matrix.

    Examples
    --------
    >>> import fastopt as fo
    >>> float(fo.nn.mean_squared_error(labels=[1.0, 2.0], predictions=[1.0, 4.0]))
    2.0
    """
    if type(predictions) is Tensor and current().records:
        made = _mean_squared_error_of(labels, predictions)
        if made is not None:
            return made
    shapes = np.shape(labels), np.shape(predictions)
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"labels and predictions must have the same shape, got labels of shape {shapes[0]} and "
            f"predictions of shape {shapes[1]}"
        )
    if not isinstance(predictions, Differentiable):
        predictions = as_floating(predictions, "predictions")
    if not isinstance(labels, Differentiable):
        labels = as_floating(labels, "labels").astype(predictions.dtype, copy=False)
    return np.mean(np.square(predictions - labels))


def _mean_squared_error_of(labels: Any, predictions: Tensor) -> Any | None:
    """Return the loss of what the kernel takes: labels that are an array like the predictions."""
    x = predictions._value
    if type(labels) is not np.ndarray or labels.dtype != x.dtype or labels.shape != x.shape:
        return None
    if not (x.size and _nn.fits(x) and _nn.fits(labels)):
        return None
    difference = np.empty(x.shape, x.dtype)
    loss = x.dtype.type(_losses.squared_error(labels, x, difference))
    factor = 2.0 / x.size
    return record(
        "fastopt.nn.mean_squared_error",
        loss,
        [(predictions, lambda g: times(difference, factor * float(g)))],
    )


def softmax_cross_entropy_with_logits(*, labels: Any, logits: Any, axis: int = -1) -> Any:
    """Cross-entropy between class probabilities and the softmax of logits.

    The loss is ``-sum(labels * log_softmax(logits))`` along `axis`.

    Parameters
    ----------
    labels : array_like, Variable or Tensor
        Class probabilities, of the shape of `logits`; each row along `axis` should sum to 1 (not
        checked). They are cast to the dtype of `logits`. Gradients flow into them as well; wrap
        them into `fastopt.stop_gradient` where they should not.
    logits : array_like, Variable or Tensor
        Real numbers with at least one axis; integers are computed in float64. A logit of -inf masks
        a class out.
    axis : int
        The axis of classes.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `logits` without `axis`, of its dtype.

    Raises
    ------
    TypeError
        If `labels` or `logits` are not real numbers.
    ValueError
        If the shapes differ.
    numpy.exceptions.AxisError
        If `logits` has no such axis.

    Notes
    -----
    The gradient of the logits is ``softmax * sum(labels) - labels``, the true one for every
    `labels`. TensorFlow leaves out the sum, which is 1 for probabilities.

    Examples
    --------
    >>> import fastopt as fo
    >>> loss = fo.nn.softmax_cross_entropy_with_logits(labels=[[0.5, 0.5]], logits=[[0.0, 2.0]])
    >>> loss.round(4)
    array([1.1269])
    """
    return _softmax_cross_entropy(labels, logits, axis)


@recorded
def _softmax_cross_entropy(labels: Any, logits: Any, axis: int) -> Any:
    labels, logits = _probabilities_and_logits(labels, logits)
    axis = normalize_axis_index(axis, logits.ndim)
    loss = numerics.cross_entropy(widened(labels), widened(logits), axis)
    return loss.astype(logits.dtype, copy=False)


def sparse_softmax_cross_entropy_with_logits(*, labels: Any, logits: Any) -> Any:
    """Cross-entropy between one class an example and the softmax of logits.

    The loss of an example is ``-log_softmax(logits)[label]``.

    Parameters
    ----------
    labels : array_like of integers
        The class of each example, between 0 and the number of classes, which is excluded.
    logits : array_like, Variable or Tensor
        Real numbers, of the shape of `labels` and one more axis, the classes, at the end; integers
        are computed in float64.

    Returns
    -------
    Tensor or ndarray
        Of the shape of `labels` and the dtype of `logits`.

    Raises
    ------
    TypeError
        If `labels` are not integers or `logits` not real numbers.
    ValueError
        If the shapes do not fit.
    IndexError
        If a label is negative or not less than the number of classes; the message names it.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.nn.sparse_softmax_cross_entropy_with_logits(labels=[1], logits=[[0.0, 2.0]]).round(4)
    array([0.1269])
    """
    return _sparse_softmax_cross_entropy(_class_labels(labels), logits)


def _class_labels(labels: Any) -> Array:
    array = np.asarray(labels._read() if isinstance(labels, Differentiable) else labels)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"labels must be integers, got dtype {array.dtype}: {shown(labels)}")
    return array


@recorded
def _sparse_softmax_cross_entropy(labels: Array, logits: Any) -> Any:
    logits = as_floating(logits, "logits")
    if logits.ndim == 0 or labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"logits must have the shape of labels and one more axis of classes, got labels of "
            f"shape {labels.shape} and logits of shape {logits.shape}"
        )
    n_classes = logits.shape[-1]
    outside = (labels < 0) | (labels >= n_classes)
    if np.any(outside):
        position = tuple(int(i) for i in np.argwhere(outside)[0])
        raise IndexError(
            f"labels{list(position) if position else ''} is {int(labels[position])}, outside the "
            f"range of {n_classes} classes"
        )
    shifted, log_sum = numerics.log_sum_exp_minus(widened(logits), -1)
    picked = np.take_along_axis(shifted, _as_column(labels), axis=-1)
    return (log_sum - picked)[..., 0].astype(logits.dtype, copy=False)


def _as_column(labels: Array) -> Array:
    return labels.astype(np.intp, copy=False)[..., None]


def _sigmoid_cross_entropy_vjp_labels(ans: Any, labels: Any, logits: Any) -> Any:
    return lambda g: np.asarray(-logits * g).astype(labels.dtype, copy=False)


def _sigmoid_cross_entropy_vjp_logits(ans: Any, labels: Any, logits: Any) -> Any:
    def vjp(g: Array) -> Array:
        out = numerics.sigmoid(as_floating(logits, "logits"))
        out -= labels
        out *= g
        return out

    return vjp


def _softmax_cross_entropy_vjp_labels(ans: Any, labels: Any, logits: Any, axis: int) -> Any:
    def vjp(g: Array) -> Array:
        costs = -numerics.log_softmax(as_floating(logits, "logits"), axis)
        return np.asarray(costs * np.expand_dims(g, axis)).astype(labels.dtype, copy=False)

    return vjp


def _softmax_cross_entropy_vjp_logits(ans: Any, labels: Any, logits: Any, axis: int) -> Any:
    def vjp(g: Array) -> Array:
        probabilities, x = _probabilities_and_logits(labels, logits)
        out = numerics.softmax(x, axis)
        out *= np.sum(probabilities, axis=axis, keepdims=True)
        out -= probabilities
        out *= np.expand_dims(g, axis)
        return out

    return vjp


def _sparse_softmax_cross_entropy_vjp(ans: Any, labels: Array, logits: Any) -> Any:
    def vjp(g: Array) -> Array:
        out = numerics.softmax(as_floating(logits, "logits"), -1)
        column = _as_column(labels)
        np.put_along_axis(out, column, np.take_along_axis(out, column, axis=-1) - 1, axis=-1)
        out *= np.expand_dims(g, -1)
        return out

    return vjp


defvjp(
    _sigmoid_cross_entropy,
    _sigmoid_cross_entropy_vjp_labels,
    _sigmoid_cross_entropy_vjp_logits,
    reads=[["logits"], ["labels", "logits"]],
)
defvjp(
    _softmax_cross_entropy,
    _softmax_cross_entropy_vjp_labels,
    _softmax_cross_entropy_vjp_logits,
    reads=[["logits"], ["labels", "logits"]],
)
defvjp(
    _sparse_softmax_cross_entropy,
    _sparse_softmax_cross_entropy_vjp,
    argnums=[1],
    reads=[["labels", "logits"]],
)
