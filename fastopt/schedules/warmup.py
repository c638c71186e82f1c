"""Schedules that begin with a rise: linear warmup and one-cycle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from fastopt._validate import Constraint, Flag, Real
from fastopt.schedules.base import Schedule, Step, from_start


@dataclass(frozen=True)
class LinearWarmup(Schedule):
    """Rise along a line from one value to another, then go on with a constant or a schedule.

    For ``step < warmup_steps``::

        start_learning_rate + (peak - start_learning_rate) * step / warmup_steps

    where ``peak`` is the constant, or the value of the schedule at its step 0. Afterwards the
    constant, or the schedule at ``step - warmup_steps``.

    Parameters
    ----------
    learning_rate : float or Schedule
        What comes after the warmup. A schedule must not be bound to a step.
    warmup_steps : float
        Number of steps of the warmup, > 0.
    start_learning_rate : float, default 0.0
        The value at step 0.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`.

    Raises
    ------
    TypeError
        If an argument is neither a number nor, for ``learning_rate``, a schedule.
    ValueError
        If a number is out of its range or not finite, or ``learning_rate`` is a bound schedule.

    References
    ----------
    P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017,
    arXiv:1706.02677.

    Examples
    --------
    >>> import fastopt as fo
    >>> schedule = fo.schedules.LinearWarmup(fo.schedules.CosineDecay(1.0, 100), warmup_steps=10)
    >>> [round(schedule(step), 6) for step in (0, 5, 10, 60, 110)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    learning_rate: float | Schedule
    warmup_steps: float
    start_learning_rate: float = 0.0

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "warmup_steps": Real(fixed=True, gt=0),
        "start_learning_rate": Real(fixed=True),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        owner, after = type(self).__name__, self.learning_rate
        if not isinstance(after, Schedule):
            self._store(learning_rate=Real(fixed=True).accept(owner, "learning_rate", after))
        elif after.global_step is not None:
            raise ValueError(
                f"{owner}: learning_rate must be a schedule that is not bound to a step, got "
                f"{after!r} bound to {after.global_step!r}"
            )

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        if from_start(step) < self.warmup_steps:
            done = step / self.warmup_steps
            return self.start_learning_rate + (self._after(0) - self.start_learning_rate) * done
        return self._after(step - self.warmup_steps)

    def _after(self, step: Step) -> float:
        if isinstance(self.learning_rate, Schedule):
            return self.learning_rate.value_at(step)
        return self.learning_rate


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Rise to a maximum and fall far below the start, once (the 1cycle policy).

    From ``initial = max_learning_rate / div_factor`` at step 0 to ``max_learning_rate`` at step
    ``pct_start * total_steps - 1``, then to ``initial / final_div_factor`` at step
    ``total_steps - 1``. With ``three_phase``, first back to ``initial`` in as many steps as the
    rise took, and to the end from there. After the last step the value stays. Each part follows
    half a cosine, or a line.

    Parameters
    ----------
    max_learning_rate : float
        The maximum.
    total_steps : int
        Number of steps of the whole cycle, >= 2.
    pct_start : float, default 0.3
        Part of the cycle that the rise takes, in (0, 1), below 0.5 with ``three_phase``.
    anneal_strategy : {"cos", "linear"}, default "cos"
        How to get from one value to the next.
    div_factor : float, default 25.0
        ``max_learning_rate`` over the value at step 0, > 0.
    final_div_factor : float, default 1e4
        The value at step 0 over the value at the end, > 0.
    three_phase : bool, default False
        Whether the fall has two parts.
    global_step : int, float, Variable or callable, optional
        See :class:`Schedule`.

    Raises
    ------
    TypeError
        If an argument is not a number.
    ValueError
        If a number is out of its range or not finite, the strategy is unknown, or the rise takes
        less than one step.

    Notes
    -----
    The numbers are those of PyTorch's ``OneCycleLR``, which drives the momentum too. Here any
    hyperparameter takes a schedule of its own; a momentum that falls from 0.95 to 0.85 and rises
    again is ``OneCycle(0.85, total_steps, div_factor=0.85 / 0.95, final_div_factor=1.0)``.

    References
    ----------
    L. N. Smith and N. Topin, "Super-Convergence: Very Fast Training of Neural Networks Using
    Large Learning Rates", 2017, arXiv:1708.07120.

    Examples
    --------
    >>> import fastopt as fo
    >>> schedule = fo.schedules.OneCycle(1.0, total_steps=101, pct_start=50 / 101, div_factor=4.0)
    >>> [round(schedule(step), 6) for step in (0, 49, 100)]
    [0.25, 1.0, 2.5e-05]
    """

    max_learning_rate: float
    total_steps: int
    pct_start: float = 0.3
    anneal_strategy: Literal["cos", "linear"] = "cos"
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    three_phase: bool = False

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "max_learning_rate": Real(fixed=True),
        "total_steps": Real(fixed=True, ge=2),
        "pct_start": Real(fixed=True, gt=0, lt=1),
        "div_factor": Real(fixed=True, gt=0),
        "final_div_factor": Real(fixed=True, gt=0),
        "three_phase": Flag(),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        if self.anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"{owner}: anneal_strategy must be 'cos' or 'linear', got {self.anneal_strategy!r}"
            )
        if self.total_steps != int(self.total_steps):
            raise ValueError(f"{owner}: total_steps must be whole, got {self.total_steps!r}")
        self._store(total_steps=int(self.total_steps))
        if self.three_phase and self.pct_start >= 0.5:
            raise ValueError(
                f"{owner}: pct_start must be < 0.5 with three_phase, got {self.pct_start!r}"
            )
        if self.pct_start * self.total_steps <= 1:
            raise ValueError(
                f"{owner}: pct_start * total_steps must be > 1, so that the rise takes a step, "
                f"got {self.pct_start!r} * {self.total_steps!r}"
            )

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``."""
        rise, last = self.pct_start * self.total_steps - 1.0, self.total_steps - 1.0
        top, initial = self.max_learning_rate, self.max_learning_rate / self.div_factor
        final = initial / self.final_div_factor
        if from_start(step) <= rise:
            return self._between(initial, top, step / rise)
        if self.three_phase:
            if step <= 2.0 * rise:
                return self._between(top, initial, (step - rise) / rise)
            return self._between(initial, final, (step - 2.0 * rise) / (last - 2.0 * rise))
        return self._between(top, final, (step - rise) / (last - rise))

    def _between(self, start: float, end: float, done: float) -> float:
        done = min(done, 1.0)
        if self.anneal_strategy == "linear":
            return start + (end - start) * done
        return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * done))
