"""What every schedule shares: reading a step, and :class:`Schedule` itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from fastopt._validate import Constraint, accept_all

Step = int | float


def read_step(step: Any) -> Step:
    """Return the step as a Python number; integers stay integers, of any size.

    Parameters
    ----------
    step : int, float, NumPy number, Variable, array of one element, or callable
        A callable is called without arguments and what it returns is read.
    """
    if type(step) is int or type(step) is float:
        number: Step = step
    else:
        number = _unwrapped(step)
    if number != number or number in (math.inf, -math.inf):
        raise ValueError(f"the step must be finite, got {number!r}")
    return number


def _unwrapped(step: Any) -> Step:
    if callable(step):
        step = step()
    read = getattr(step, "_read", None)
    array = np.asarray(step if read is None else read())
    if array.size != 1 or array.dtype.kind not in "iuf":
        raise TypeError(f"the step must be a single real number, got {step!r}")
    number: Step = array.item()
    return number


def power(base: float, exponent: float) -> float:
    """Return ``base ** exponent`` for ``base >= 0``; infinite where it overflows, no exception."""
    try:
        return float(base**exponent)
    except (OverflowError, ZeroDivisionError):
        return math.inf


@dataclass(frozen=True)
class Schedule:
    """A hyperparameter that is a function of the step.

    A schedule is an immutable value. ``schedule(step)`` gives the hyperparameter at a step and
    depends on nothing else. A schedule *bound* to a step, ``schedule.bind(global_step)``, can be
    called without arguments and reads the step at each call; this is what the functions named as
    TensorFlow's (:func:`exponential_decay` and the others) return.

    Either kind is accepted wherever an optimizer takes a hyperparameter. A bound schedule reads
    the step it is bound to. An unbound one is given the value of the ``global_step`` passed to
    ``apply_gradients`` or ``minimize``, before that call increments it.

    To write a schedule of your own, derive from this class and define ``value_at``.

    Parameters
    ----------
    global_step : int, float, Variable or callable, optional
        The step that calls without an argument read. Keyword only, in every schedule.

    Notes
    -----
    All schedules compute in float64, TensorFlow in the dtype of the learning rate. As a function
    does, a schedule survives ``copy.deepcopy`` as itself: the copy reads the same step.

    Examples
    --------
    >>> import fastopt as fo
    >>> class Halving(fo.schedules.Schedule):
    ...     def value_at(self, step):
    ...         return 0.5**step
    >>> Halving()(3)
    0.125
    >>> step = fo.Variable(np.int64(1), trainable=False)
    >>> bound = Halving().bind(step)
    >>> bound()
    0.5
    >>> _ = step.assign_add(1)
    >>> bound()
    0.25
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {}

    global_step: Any = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in self.constraints}
        self._store(**accept_all(type(self).__name__, self.constraints, given))

    def value_at(self, step: Step) -> float:
        """Return the value at ``step``, a finite Python number.

        Parameters
        ----------
        step : int or float

        Returns
        -------
        float
        """
        raise NotImplementedError(f"{type(self).__name__} must define value_at(step)")

    def __call__(self, step: Any = None) -> float:
        """Return the value at ``step``, or at the bound step if none is given.

        Raises
        ------
        TypeError
            If no step is given and the schedule is bound to none, or if the step is no number.
        ValueError
            If the step is not finite, or negative where the schedule starts at step 0.
        """
        if step is None:
            step = self.global_step
            if step is None:
                raise TypeError(
                    f"{type(self).__name__} is not bound to a step: call it with one, "
                    "bind it with schedule.bind(global_step), or pass global_step= to "
                    "apply_gradients() or minimize()"
                )
        return self.value_at(read_step(step))

    def bind(self, global_step: Any) -> Self:
        """Return this schedule bound to ``global_step``, to be called without arguments.

        Parameters
        ----------
        global_step : int, float, Variable or callable

        Returns
        -------
        Schedule

        Raises
        ------
        ValueError
            If ``global_step`` is None.
        """
        if global_step is None:
            raise ValueError(f"global_step is required for {type(self).__name__}, got None")
        return dataclasses.replace(self, global_step=global_step)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def _store(self, **fields: Any) -> None:
        """Set fields while ``__post_init__`` runs; afterwards they are frozen."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)


def at_step(hyperparameter: Any, global_step: Any) -> Any:
    """Return a hyperparameter as it is to be read in a step: a schedule with a step to read.

    Parameters
    ----------
    hyperparameter : object
        Returned as it is, unless it is a schedule that is bound to no step.
    global_step : Variable or None
        The step to bind to. Without one, reading such a schedule says what is missing.
    """
    if isinstance(hyperparameter, Schedule) and hyperparameter.global_step is None:
        if global_step is not None:
            return partial(hyperparameter, global_step)
    return hyperparameter


def from_start(step: Step) -> Step:
    """Return ``step`` if it is not before the start of the schedule."""
    if step < 0:
        raise ValueError(f"the step must be >= 0, got {step!r}")
    return step
