"""The cosine family."""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastopt._validate import Constraint, Real
from fastopt.schedules.base import Schedule, Step, from_start, power


@dataclass(frozen=True)
class CosineDecay(Schedule):
    """Half a cosine from ``learning_rate`` down to ``alpha * learning_rate``.

    With ``s = min(step, decay_steps)``::

        c = (1 + cos(pi * s / decay_steps)) / 2
        learning_rate * ((1 - alpha) * c + alpha)

    Parameters
    ----------
    learning_rate : float
        The value at step 0.
    decay_steps : float
        Step at which the end is reached, > 0.
    alpha : float, default 0.0
        The value at the end and after it, as a fraction of ``learning_rate``.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`.

    Raises
    ------
    TypeError
        If an argument is not a number.
    ValueError
        If a number is out of its range or not finite.

    References
    ----------
    I. Loshchilov and F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2016,
    arXiv:1608.03983.

    Examples
    --------
    >>> import fastopt as fo
    >>> schedule = fo.schedules.CosineDecay(1.0, decay_steps=100)
    >>> [round(schedule(step), 6) for step in (0, 50, 100, 150)]
    [1.0, 0.5, 0.0, 0.0]
    """

    learning_rate: float
    decay_steps: float
    alpha: float = 0.0

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "learning_rate": Real(fixed=True),
        "decay_steps": Real(fixed=True, gt=0),
        "alpha": Real(fixed=True),
    }

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        done = min(from_start(step) / self.decay_steps, 1.0)
        cosine = 0.5 * (1.0 + math.cos(math.pi * done))
        return self.learning_rate * ((1.0 - self.alpha) * cosine + self.alpha)


@dataclass(frozen=True)
class CosineDecayRestarts(Schedule):
    """Cosine decay that starts again and again, in periods that grow.

    Period ``i`` has ``first_decay_steps * t_mul**i`` steps and starts from
    ``learning_rate * m_mul**i``; within it, with ``f`` the fraction of the period that is done::

        learning_rate * ((1 - alpha) * m_mul**i * (1 + cos(pi * f)) / 2 + alpha)

    Parameters
    ----------
    learning_rate : float
        The value at step 0.
    first_decay_steps : float
        Steps of the first period, > 0.
    t_mul : float, default 2.0
        Factor from the length of a period to that of the next one, >= 1.
    m_mul : float, default 1.0
        Factor from the start of a period to that of the next one, >= 0.
    alpha : float, default 0.0
        The value at the end of each period, as a fraction of ``learning_rate``.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`.

    Raises
    ------
    TypeError
        If an argument is not a number.
    ValueError
        If a number is out of its range or not finite.

    Notes
    -----
    TensorFlow finds the period from a float32 logarithm, so whether a step at the exact end of a
    period belongs to it or to the next one depends on rounding there. Here it starts the next.

    References
    ----------
    I. Loshchilov and F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2016,
    arXiv:1608.03983.

    Examples
    --------
    >>> import fastopt as fo
    >>> schedule = fo.schedules.CosineDecayRestarts(1.0, first_decay_steps=10, m_mul=0.5)
    >>> [round(schedule(step), 6) for step in (0, 5, 10, 20, 30)]
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    learning_rate: float
    first_decay_steps: float
    t_mul: float = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "learning_rate": Real(fixed=True),
        "first_decay_steps": Real(fixed=True, gt=0),
        "t_mul": Real(fixed=True, ge=1),
        "m_mul": Real(fixed=True, ge=0),
        "alpha": Real(fixed=True),
    }

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        period, fraction = self._position(from_start(step) / self.first_decay_steps)
        cosine = 0.5 * power(self.m_mul, period) * (1.0 + math.cos(math.pi * fraction))
        return self.learning_rate * ((1.0 - self.alpha) * cosine + self.alpha)

    def _position(self, x: float) -> tuple[int, float]:
        """Return the period of ``x``, measured in first periods, and how much of it is done."""
        if self.t_mul == 1.0:
            return math.floor(x), x - math.floor(x)
        growth = math.log(self.t_mul)

        def start(i: int) -> float:  # (t**i - 1) / (t - 1), also for t next to 1
            exponent = i * growth
            return math.expm1(exponent) / (self.t_mul - 1.0) if exponent < 709.0 else math.inf

        # The logarithm may be one off at the border of two periods. A border that is missed by
        # rounding alone counts as reached.
        i = math.floor(math.log1p(min(x * (self.t_mul - 1.0), sys.float_info.max)) / growth)
        if x >= start(i + 1) * (1.0 - 1e-14):
            i += 1
        elif i and x < start(i) * (1.0 - 1e-14):
            i -= 1
        fraction = (x - start(i)) / math.exp(i * growth)
        return i, min(max(fraction, 0.0), 1.0)


@dataclass(frozen=True)
class LinearCosineDecay(Schedule):
    """A line times a cosine.

    With ``s = min(step, n)`` and ``n = decay_steps``::

        line = (n - s) / n
        cosine = (1 + cos(2 * pi * num_periods * s / n)) / 2
        learning_rate * ((alpha + line) * cosine + beta)

    Parameters
    ----------
    learning_rate : float
        Scale of the schedule; the value at step 0 is ``learning_rate * (alpha + 1 + beta)``.
    decay_steps : float
        Step at which the end is reached, > 0.
    num_periods : float, default 0.5
        Periods of the cosine within ``decay_steps``.
    alpha : float, default 0.0
        Added to the line.
    beta : float, default 0.001
        Added to the product.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`.

    Raises
    ------
    TypeError
        If an argument is not a number.
    ValueError
        If a number is out of its range or not finite.

    References
    ----------
    I. Bello, B. Zoph, V. Vasudevan and Q. V. Le, "Neural Optimizer Search with Reinforcement
    Learning", 2017, arXiv:1709.07417.

    Examples
    --------
    >>> import fastopt as fo
    >>> schedule = fo.schedules.LinearCosineDecay(1.0, decay_steps=100)
    >>> [round(schedule(step), 6) for step in (0, 50, 100)]
    [1.001, 0.251, 0.001]
    """

    learning_rate: float
    decay_steps: float
    num_periods: float = 0.5
    alpha: float = 0.0
    beta: float = 0.001

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "learning_rate": Real(fixed=True),
        "decay_steps": Real(fixed=True, gt=0),
        "num_periods": Real(fixed=True),
        "alpha": Real(fixed=True),
        "beta": Real(fixed=True),
    }

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        return _line_times_cosine(self, from_start(step), noise=0.0)


@dataclass(frozen=True)
class NoisyLinearCosineDecay(Schedule):
    """:class:`LinearCosineDecay` with Gaussian noise on the line.

    The noise has variance ``initial_variance / (1 + s)**variance_decay`` with
    ``s = min(step, decay_steps)``.

    Parameters
    ----------
    learning_rate : float
        Scale of the schedule.
    decay_steps : float
        Step at which the end is reached, > 0.
    initial_variance : float, default 1.0
        Variance of the noise at step 0, >= 0.
    variance_decay : float, default 0.55
        Exponent with which the variance falls.
    num_periods : float, default 0.5
        Periods of the cosine within ``decay_steps``.
    alpha : float, default 0.0
        Added to the line.
    beta : float, default 0.001
        Added to the product.
    seed : int, optional
        Seed of the noise, >= 0; drawn once when the schedule is made if it is not given.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`.

    Raises
    ------
    TypeError
        If an argument is not a number, or the seed no integer.
    ValueError
        If a number is out of its range or not finite.

    Notes
    -----
    The noise of a step depends on ``(seed, step)`` alone: a run that is repeated, resumed or
    asked twice for the same step sees the same value. TensorFlow draws anew at each evaluation.

    References
    ----------
    I. Bello, B. Zoph, V. Vasudevan and Q. V. Le, "Neural Optimizer Search with Reinforcement
    Learning", 2017, arXiv:1709.07417.

    Examples
    --------
    >>> import fastopt as fo
    >>> schedule = fo.schedules.NoisyLinearCosineDecay(1.0, decay_steps=100, seed=1)
    >>> schedule(10) == schedule(10) != schedule(11)
    True
    """

    learning_rate: float
    decay_steps: float
    initial_variance: float = 1.0
    variance_decay: float = 0.55
    num_periods: float = 0.5
    alpha: float = 0.0
    beta: float = 0.001
    seed: int | None = None

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "learning_rate": Real(fixed=True),
        "decay_steps": Real(fixed=True, gt=0),
        "initial_variance": Real(fixed=True, ge=0),
        "variance_decay": Real(fixed=True),
        "num_periods": Real(fixed=True),
        "alpha": Real(fixed=True),
        "beta": Real(fixed=True),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self._store(seed=_checked_seed(type(self).__name__, self.seed))

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        step = from_start(step)
        within = min(step, self.decay_steps)
        variance = self.initial_variance * power(1.0 + within, -self.variance_decay)
        return _line_times_cosine(self, step, noise=math.sqrt(variance) * self._normal(step))

    def _normal(self, step: Step) -> float:
        # A counter-based generator: the step is the counter, so steps are independent and no
        # state is kept between them. 64 bits are left below for what one draw consumes.
        bits = np.random.Philox(key=self.seed, counter=(math.floor(step) << 64) % 2**256)
        return float(np.random.Generator(bits).standard_normal())


def _line_times_cosine(
    schedule: LinearCosineDecay | NoisyLinearCosineDecay, step: Step, noise: float
) -> float:
    done = min(step / schedule.decay_steps, 1.0)
    cosine = 0.5 * (1.0 + math.cos(2.0 * math.pi * schedule.num_periods * done))
    line = 1.0 - done + noise
    return schedule.learning_rate * ((schedule.alpha + line) * cosine + schedule.beta)


def _checked_seed(owner: str, seed: Any) -> int:
    """Return a seed of at most 128 bits, the key of the generator."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(2, np.uint64)[0])
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, numbers.Integral):
        raise TypeError(f"{owner}: seed must be an integer or None, got {seed!r}")
    if not 0 <= int(seed) < 2**128:
        raise ValueError(f"{owner}: seed must be in [0, 2**128), got {seed!r}")
    return int(seed)
