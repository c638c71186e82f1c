"""TensorFlow's functions: the same schedules, with the step as an argument.

Each returns a schedule bound to ``global_step``, a callable of no arguments that reads the step
when it is called. ``name`` is accepted for compatibility; it names nothing here, since no
operation is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastopt.schedules.cosine import (
    CosineDecay,
    CosineDecayRestarts,
    LinearCosineDecay,
    NoisyLinearCosineDecay,
)
from fastopt.schedules.decay import (
    ExponentialDecay,
    InverseTimeDecay,
    NaturalExponentialDecay,
    PiecewiseConstantDecay,
    PolynomialDecay,
)


def exponential_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: float,
    decay_rate: float,
    staircase: bool = False,
    name: str | None = None,
) -> ExponentialDecay:
    """Return an :class:`ExponentialDecay` bound to ``global_step``.

    Parameters
    ----------
    learning_rate, decay_steps, decay_rate, staircase
        See :class:`ExponentialDecay`.
    global_step : int, float, Variable or callable
        The step to read at each call.
    name : str, optional
        Not used.

    Returns
    -------
    ExponentialDecay

    Raises
    ------
    TypeError, ValueError
        As :class:`ExponentialDecay`; ``ValueError`` if ``global_step`` is None.

    Examples
    --------
    >>> import fastopt as fo
    >>> step = fo.Variable(np.int64(0), trainable=False)
    >>> learning_rate = fo.schedules.exponential_decay(0.1, step, 1, 0.5)
    >>> learning_rate()
    0.1
    >>> _ = step.assign(1)
    >>> learning_rate()
    0.05
    """
    return ExponentialDecay(learning_rate, decay_steps, decay_rate, staircase).bind(global_step)


def natural_exp_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: float,
    decay_rate: float,
    staircase: bool = False,
    name: str | None = None,
) -> NaturalExponentialDecay:
    """Return a :class:`NaturalExponentialDecay` bound to ``global_step``.

    Parameters
    ----------
    learning_rate, decay_steps, decay_rate, staircase
        See :class:`NaturalExponentialDecay`.
    global_step : int, float, Variable or callable
        The step to read at each call.
    name : str, optional
        Not used.

    Returns
    -------
    NaturalExponentialDecay

    Raises
    ------
    TypeError, ValueError
        As :class:`NaturalExponentialDecay`; ``ValueError`` if ``global_step`` is None.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.schedules.natural_exp_decay(0.1, 0, 5, 0.5)()
    0.1
    """
    schedule = NaturalExponentialDecay(learning_rate, decay_steps, decay_rate, staircase)
    return schedule.bind(global_step)


def inverse_time_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: float,
    decay_rate: float,
    staircase: bool = False,
    name: str | None = None,
) -> InverseTimeDecay:
    """Return an :class:`InverseTimeDecay` bound to ``global_step``.

    Parameters
    ----------
    learning_rate, decay_steps, decay_rate, staircase
        See :class:`InverseTimeDecay`.
    global_step : int, float, Variable or callable
        The step to read at each call.
    name : str, optional
        Not used.

    Returns
    -------
    InverseTimeDecay

    Raises
    ------
    TypeError, ValueError
        As :class:`InverseTimeDecay`; ``ValueError`` if ``global_step`` is None.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.schedules.inverse_time_decay(0.5, 8, 4, 0.5)()
    0.25
    """
    return InverseTimeDecay(learning_rate, decay_steps, decay_rate, staircase).bind(global_step)


def polynomial_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: float,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> PolynomialDecay:
    """Return a :class:`PolynomialDecay` bound to ``global_step``.

    Parameters
    ----------
    learning_rate, decay_steps, end_learning_rate, power, cycle
        See :class:`PolynomialDecay`.
    global_step : int, float, Variable or callable
        The step to read at each call.
    name : str, optional
        Not used.

    Returns
    -------
    PolynomialDecay

    Raises
    ------
    TypeError, ValueError
        As :class:`PolynomialDecay`; ``ValueError`` if ``global_step`` is None.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.schedules.polynomial_decay(1.0, 5, 10, end_learning_rate=0.5)()
    0.75
    """
    schedule = PolynomialDecay(learning_rate, decay_steps, end_learning_rate, power, cycle)
    return schedule.bind(global_step)


def cosine_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: float,
    alpha: float = 0.0,
    name: str | None = None,
) -> CosineDecay:
    """Return a :class:`CosineDecay` bound to ``global_step``.

    Parameters
    ----------
    learning_rate, decay_steps, alpha
        See :class:`CosineDecay`.
    global_step : int, float, Variable or callable
        The step to read at each call.
    name : str, optional
        Not used.

    Returns
    -------
    CosineDecay

    Raises
    ------
    TypeError, ValueError
        As :class:`CosineDecay`; ``ValueError`` if ``global_step`` is None.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.schedules.cosine_decay(1.0, 0, 100)()
    1.0
    """
    return CosineDecay(learning_rate, decay_steps, alpha).bind(global_step)


def cosine_decay_restarts(
    learning_rate: float,
    global_step: Any,
    first_decay_steps: float,
    t_mul: float = 2.0,
    m_mul: float = 1.0,
    alpha: float = 0.0,
    name: str | None = None,
) -> CosineDecayRestarts:
    """Return a :class:`CosineDecayRestarts` bound to ``global_step``.

    Parameters
    ----------
    learning_rate, first_decay_steps, t_mul, m_mul, alpha
        See :class:`CosineDecayRestarts`.
    global_step : int, float, Variable or callable
        The step to read at each call.
    name : str, optional
        Not used.

    Returns
    -------
    CosineDecayRestarts

    Raises
    ------
    TypeError, ValueError
        As :class:`CosineDecayRestarts`; ``ValueError`` if ``global_step`` is None.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.schedules.cosine_decay_restarts(1.0, 10, 10, m_mul=0.5)()
    0.5
    """
    schedule = CosineDecayRestarts(learning_rate, first_decay_steps, t_mul, m_mul, alpha)
    return schedule.bind(global_step)


def linear_cosine_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: float,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
    name: str | None = None,
) -> LinearCosineDecay:
    """Return a :class:`LinearCosineDecay` bound to ``global_step``.

    Parameters
    ----------
    learning_rate, decay_steps, num_periods, alpha, beta
        See :class:`LinearCosineDecay`.
    global_step : int, float, Variable or callable
        The step to read at each call.
    name : str, optional
        Not used.

    Returns
    -------
    LinearCosineDecay

    Raises
    ------
    TypeError, ValueError
        As :class:`LinearCosineDecay`; ``ValueError`` if ``global_step`` is None.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.schedules.linear_cosine_decay(1.0, 100, 100)()
    0.001
    """
    schedule = LinearCosineDecay(learning_rate, decay_steps, num_periods, alpha, beta)
    return schedule.bind(global_step)


def noisy_linear_cosine_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: float,
    initial_variance: float = 1.0,
    variance_decay: float = 0.55,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
    name: str | None = None,
    *,
    seed: int | None = None,
) -> NoisyLinearCosineDecay:
    """Return a :class:`NoisyLinearCosineDecay` bound to ``global_step``.

    Parameters
    ----------
    learning_rate, decay_steps, initial_variance, variance_decay, num_periods, alpha, beta, seed
        See :class:`NoisyLinearCosineDecay`. TensorFlow has no ``seed``.
    global_step : int, float, Variable or callable
        The step to read at each call.
    name : str, optional
        Not used.

    Returns
    -------
    NoisyLinearCosineDecay

    Raises
    ------
    TypeError, ValueError
        As :class:`NoisyLinearCosineDecay`; ``ValueError`` if ``global_step`` is None.

    Examples
    --------
    >>> import fastopt as fo
    >>> learning_rate = fo.schedules.noisy_linear_cosine_decay(1.0, 10, 100, seed=1)
    >>> learning_rate() == learning_rate()
    True
    """
    schedule = NoisyLinearCosineDecay(
        learning_rate,
        decay_steps,
        initial_variance,
        variance_decay,
        num_periods,
        alpha,
        beta,
        seed,
    )
    return schedule.bind(global_step)


def piecewise_constant(
    x: Any, boundaries: Sequence[float], values: Sequence[float], name: str | None = None
) -> PiecewiseConstantDecay:
    """Return a :class:`PiecewiseConstantDecay` bound to ``x``.

    As in TensorFlow the kinds must agree, which :class:`PiecewiseConstantDecay` does not ask for:
    boundaries are integers if ``x`` is one, and values are all floats or all integers.

    Parameters
    ----------
    x : int, float, Variable or callable
        The step to read at each call. A callable is not called here, so its kind is not compared.
    boundaries : sequence of int or float
        Last step of each piece but the last one, ascending.
    values : sequence of float
        One more than boundaries.
    name : str, optional
        Not used.

    Returns
    -------
    PiecewiseConstantDecay

    Raises
    ------
    TypeError
        If an element is not a number.
    ValueError
        If ``x`` is None, kinds do not agree, boundaries do not ascend, or counts do not fit.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.schedules.piecewise_constant(101, [100, 200], [1.0, 0.1, 0.01])()
    0.1
    """
    schedule = PiecewiseConstantDecay(boundaries, values).bind(x)
    if not callable(x):
        x_kind = _kind(x)
        for i, boundary in enumerate(boundaries):
            if _kind(boundary) != x_kind:
                raise ValueError(
                    f"boundaries[{i}] must be {x_kind} as the step is, got {boundary!r}"
                )
    for i, value in enumerate(values):
        if _kind(value) != _kind(values[0]):
            raise ValueError(
                f"values[{i}] must be {_kind(values[0])} as values[0] is, got {value!r}"
            )
    return schedule


def _kind(number: Any) -> str:
    return "floating" if np.asarray(number).dtype.kind == "f" else "an integer"
