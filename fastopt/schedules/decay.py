"""Decays that only fall (or only rise): exponential, inverse in time, polynomial, piecewise."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fastopt._validate import Constraint, Flag, Real
from fastopt.schedules.base import Schedule, Step, from_start, power


@dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """Decay by a constant factor: ``learning_rate * decay_rate ** (step / decay_steps)``.

    Parameters
    ----------
    learning_rate : float
        The value at step 0.
    decay_steps : float
        Number of steps in which the value falls by ``decay_rate``, > 0.
    decay_rate : float
        The factor, >= 0.
    staircase : bool, default False
        Round ``step / decay_steps`` down, so that the value falls in steps.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`.

    Raises
    ------
    TypeError
        If an argument is not a number.
    ValueError
        If a number is out of its range or not finite.

    Examples
    --------
    >>> import fastopt as fo
    >>> schedule = fo.schedules.ExponentialDecay(0.1, decay_steps=3, decay_rate=0.5, staircase=True)
    >>> schedule(7)
    0.025
    """

    learning_rate: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "learning_rate": Real(fixed=True),
        "decay_steps": Real(fixed=True, gt=0),
        "decay_rate": Real(fixed=True, ge=0),
        "staircase": Flag(),
    }

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        return _scaled(self.learning_rate, power(self.decay_rate, _periods(self, step)))


@dataclass(frozen=True)
class NaturalExponentialDecay(Schedule):
    """Decay by powers of e: ``learning_rate * exp(-decay_rate * step / decay_steps)``.

    Parameters
    ----------
    learning_rate : float
        The value at step 0.
    decay_steps : float
        Number of steps in which the value falls by ``exp(-decay_rate)``, > 0.
    decay_rate : float
        The exponent; a negative one makes the value grow.
    staircase : bool, default False
        Round ``step / decay_steps`` down, so that the value falls in steps.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`.

    Raises
    ------
    TypeError
        If an argument is not a number.
    ValueError
        If a number is out of its range or not finite.

    Examples
    --------
    >>> import fastopt as fo
    >>> round(fo.schedules.NaturalExponentialDecay(0.1, decay_steps=5, decay_rate=0.5)(10), 6)
    0.036788
    """

    learning_rate: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "learning_rate": Real(fixed=True),
        "decay_steps": Real(fixed=True, gt=0),
        "decay_rate": Real(fixed=True),
        "staircase": Flag(),
    }

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        try:
            factor = math.exp(-self.decay_rate * _periods(self, step))
        except OverflowError:
            factor = math.inf
        return _scaled(self.learning_rate, factor)


@dataclass(frozen=True)
class InverseTimeDecay(Schedule):
    """Decay as one over time: ``learning_rate / (1 + decay_rate * step / decay_steps)``.

    Parameters
    ----------
    learning_rate : float
        The value at step 0.
    decay_steps : float
        Number of steps that count as one unit of time, > 0.
    decay_rate : float
        Speed of the decay, >= 0.
    staircase : bool, default False
        Round ``step / decay_steps`` down, so that the value falls in steps.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`.

    Raises
    ------
    TypeError
        If an argument is not a number.
    ValueError
        If a number is out of its range or not finite.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.schedules.InverseTimeDecay(0.5, decay_steps=4, decay_rate=0.5)(8)
    0.25
    """

    learning_rate: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "learning_rate": Real(fixed=True),
        "decay_steps": Real(fixed=True, gt=0),
        "decay_rate": Real(fixed=True, ge=0),
        "staircase": Flag(),
    }

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        return self.learning_rate / (1.0 + self.decay_rate * _periods(self, step))


@dataclass(frozen=True)
class PolynomialDecay(Schedule):
    """Go from one value to another along a polynomial, linearly by default.

    With ``s`` the step, ``n = decay_steps``::

        s = min(s, n)                               without cycle
        n = n * max(ceil(s / n), 1)                 with cycle
        end + (learning_rate - end) * (1 - s / n) ** power

    Parameters
    ----------
    learning_rate : float
        The value at step 0.
    decay_steps : float
        Step at which the end is reached, > 0.
    end_learning_rate : float, default 0.0001
        The value at the end and, without ``cycle``, after it.
    power : float, default 1.0
        Exponent, >= 0.
    cycle : bool, default False
        At each multiple of ``decay_steps``, rise again to the line from step 0 to the next
        multiple.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`.

    Raises
    ------
    TypeError
        If an argument is not a number.
    ValueError
        If a number is out of its range or not finite.

    Examples
    --------
    >>> import fastopt as fo
    >>> schedule = fo.schedules.PolynomialDecay(1.0, decay_steps=10, end_learning_rate=0.5)
    >>> [schedule(step) for step in (0, 5, 10, 1000)]
    [1.0, 0.75, 0.5, 0.5]
    """

    learning_rate: float
    decay_steps: float
    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "learning_rate": Real(fixed=True),
        "decay_steps": Real(fixed=True, gt=0),
        "end_learning_rate": Real(fixed=True),
        "power": Real(fixed=True, ge=0),
        "cycle": Flag(),
    }

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        step, end = from_start(step), self.decay_steps
        if self.cycle:
            end *= max(math.ceil(step / end), 1)
        # never below 0, where a fractional power is no real number
        left = max(1.0 - min(step, end) / end, 0.0)
        return self.end_learning_rate + (self.learning_rate - self.end_learning_rate) * power(
            left, self.power
        )


@dataclass(frozen=True)
class PiecewiseConstantDecay(Schedule):
    """One constant up to each boundary, another one behind the last.

    ``values[0]`` for ``step <= boundaries[0]``, ``values[i]`` for
    ``boundaries[i - 1] < step <= boundaries[i]``, ``values[-1]`` for ``step > boundaries[-1]``.

    Parameters
    ----------
    boundaries : sequence of int or float
        Last step of each piece but the last one, ascending.
    values : sequence of float
        One more than boundaries.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`. Here the step may be any number, also a negative one.

    Raises
    ------
    TypeError
        If an element is not a number.
    ValueError
        If the boundaries do not ascend, the number of values is not that of the boundaries plus
        one, or a number is not finite.

    Examples
    --------
    >>> import fastopt as fo
    >>> schedule = fo.schedules.PiecewiseConstantDecay([100, 200], [1.0, 0.1, 0.01])
    >>> [schedule(step) for step in (0, 100, 101, 500)]
    [1.0, 1.0, 0.1, 0.01]
    """

    boundaries: Sequence[Step]
    values: Sequence[float]

    def __post_init__(self) -> None:
        owner, number = type(self).__name__, Real(fixed=True)
        # Boundaries stay as they came: an integer step is compared with integers exactly.
        boundaries = tuple(self.boundaries)
        for i, boundary in enumerate(boundaries):
            number.accept(owner, f"boundaries[{i}]", boundary)
            if i and not boundaries[i - 1] < boundary:
                raise ValueError(
                    f"{owner}: boundaries must ascend, got boundaries[{i}] = {boundary!r} "
                    f"after {boundaries[i - 1]!r}"
                )
        values = tuple(
            number.accept(owner, f"values[{i}]", value) for i, value in enumerate(self.values)
        )
        if len(values) != len(boundaries) + 1:
            raise ValueError(
                f"{owner}: values must be one more than boundaries, got "
                f"{len(values)} values and {len(boundaries)} boundaries"
            )
        self._store(boundaries=boundaries, values=values)

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        return self.values[bisect_left(self.boundaries, step)]


def _periods(
    schedule: ExponentialDecay | NaturalExponentialDecay | InverseTimeDecay, step: Step
) -> float:
    periods = from_start(step) / schedule.decay_steps
    return math.floor(periods) if schedule.staircase else periods


def _scaled(learning_rate: float, factor: float) -> float:
    """``learning_rate * factor``, where a rate of 0 stays 0 whatever has overflowed."""
    return learning_rate * factor if learning_rate else 0.0
