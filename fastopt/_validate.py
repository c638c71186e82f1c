"""Constraints on hyperparameters, as data.

Each optimizer class lists its hyperparameters in one table, name to constraint. The table checks
the constructor's arguments, checks again what a callable or a variable yields at a step, writes the
messages, and makes the bad values that the tests try.

A value that may change from step to step (a callable, a `Variable`, a `Tensor`, a 0-d array of
anybody's) is kept as it came and read once a step; a plain number is kept as a float64 and never
looked at again.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Bad = tuple[Any, type[Exception]]


class UnsupportedTypeError(TypeError, AttributeError):
    """An object of a type that has no place here.

    TensorFlow lets such objects run into an `AttributeError` (they have no dtype, no assign); code
    that was written for it may catch that. What happened is a `TypeError`. So this is both.
    """


class Constraint(Protocol):
    """What a table of hyperparameters holds."""

    def accept(self, owner: str, name: str, value: Any) -> Any:
        """Return what the optimizer keeps of an argument, or raise."""

    def read(self, owner: str, name: str, kept: Any) -> Any:
        """Return this step's value of what `accept` returned, or raise."""

    def bad_values(self) -> Iterator[Bad]:
        """Yield values that `accept` refuses, each with the exception it raises."""


@dataclass(frozen=True, kw_only=True)
class Real:
    """A finite real number, within bounds where bounds are given.

    Parameters
    ----------
    gt, ge, lt, le : float, optional
        Bounds: greater than, at least, less than, at most.
    fixed : bool
        Only a plain number will do, because it is used once (an initial value of a slot).
    optional : bool
        ``None`` is allowed and stands for 0.
    """

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    fixed: bool = False
    optional: bool = False

    def __str__(self) -> str:
        bounds = [
            f"{sign} {bound:g}"
            for sign, bound in ((">", self.gt), (">=", self.ge), ("<", self.lt), ("<=", self.le))
            if bound is not None
        ]
        text = "a finite real number"
        if bounds:
            text += " " + " and ".join(bounds)
        if self.optional:
            text += " or None"
        return text

    def accept(self, owner: str, name: str, value: Any) -> Any:
        """Return a float for a number, the value itself for what is read at every step."""
        if value is None and self.optional:
            return 0.0
        if is_number(value):
            return self._checked(owner, name, value)
        if self.fixed:
            raise TypeError(f"{owner}: {name} must be {self}, got {_shown(value)}")
        if not callable(value):
            self._number(owner, name, value)  # within bounds it must be at the steps, not yet
        elif _needs_arguments(value):
            raise TypeError(
                f"{owner}: {name} must be {self} or a function without arguments, got "
                f"{_shown(value)}; what depends on the step reads it, see fastopt.schedules"
            )
        return value

    def read(self, owner: str, name: str, kept: Any) -> float:
        """Return this step's value of what `accept` returned, checked again."""
        if type(kept) is float:
            return kept
        if callable(kept):
            return self._checked(owner, f"{name}()", kept())
        return self._checked(owner, name, kept)

    def holds(self, number: float) -> bool:
        """Whether a number is finite and within the bounds."""
        return (
            math.isfinite(number)
            and (self.gt is None or number > self.gt)
            and (self.ge is None or number >= self.ge)
            and (self.lt is None or number < self.lt)
            and (self.le is None or number <= self.le)
        )

    def _number(self, owner: str, name: str, value: Any) -> float:
        number = as_float(value)
        if number is None:
            raise TypeError(f"{owner}: {name} must be {self}, got {_shown(value)}")
        if isinstance(number, tuple):
            raise ValueError(
                f"{owner}: {name} must be {self}, got an array of shape {number}: {_shown(value)}"
            )
        return number

    def _checked(self, owner: str, name: str, value: Any) -> float:
        number = self._number(owner, name, value)
        if not self.holds(number):
            raise ValueError(f"{owner}: {name} must be {self}, got {_shown(value)}")
        return number

    def bad_values(self) -> Iterator[Bad]:
        """Yield values out of bounds, not finite, not scalar, not numbers."""
        for value in (math.nan, math.inf, -math.inf, np.float32(math.nan), 10**400):
            yield value, ValueError
        for value in self.out_of_bounds():
            yield value, ValueError
            yield np.float32(value), ValueError
        for other in ("0.1", True, np.True_, 1j, [0.1], object(), np.ma.masked):
            yield other, TypeError
        if not self.optional:
            yield None, TypeError
        if self.fixed:
            yield (lambda: 1.0), TypeError
        else:
            yield (lambda step: 1.0), TypeError
            yield np.full(2, 0.5), ValueError
            yield np.array("text"), TypeError

    def out_of_bounds(self) -> Iterator[float]:
        """Yield numbers just beyond each bound and far from it."""
        if self.gt is not None:
            yield from (self.gt, self.gt - 1.0)
        if self.ge is not None:
            yield from (self.ge - 1e-3, self.ge - 1.0)
        if self.lt is not None:
            yield from (self.lt, self.lt + 1.0)
        if self.le is not None:
            yield from (self.le + 1e-3, self.le + 1.0)


class _Fixed:
    """What never changes."""

    def read(self, owner: str, name: str, kept: Any) -> Any:
        """Return what was kept."""
        return kept


@dataclass(frozen=True)
class Flag(_Fixed):
    """True or False."""

    def __str__(self) -> str:
        return "a bool"

    def accept(self, owner: str, name: str, value: Any) -> bool:
        """Return a bool."""
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{owner}: {name} must be {self}, got {_shown(value)}")
        return bool(value)

    def bad_values(self) -> Iterator[Bad]:
        """Yield what only looks like a flag."""
        for value in (1, 0.0, "yes", None, np.ones(2, bool)):
            yield value, TypeError


@dataclass(frozen=True)
class Text(_Fixed):
    """A string, or ``None``."""

    def __str__(self) -> str:
        return "a string or None"

    def accept(self, owner: str, name: str, value: Any) -> str | None:
        """Return the string, ``None`` for an empty one."""
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{owner}: {name} must be {self}, got {_shown(value)}")
        return value or None

    def bad_values(self) -> Iterator[Bad]:
        """Yield what is no text."""
        for value in (1, b"accum", ["accum"]):
            yield value, TypeError


@dataclass(frozen=True)
class Choice(_Fixed):
    """One of some strings."""

    options: tuple[str, ...]

    def __str__(self) -> str:
        return f"one of {', '.join(map(repr, self.options))}"

    def accept(self, owner: str, name: str, value: Any) -> str:
        """Return the string."""
        if not isinstance(value, str):
            raise TypeError(f"{owner}: {name} must be {self}, got {_shown(value)}")
        if value not in self.options:
            raise ValueError(f"{owner}: {name} must be {self}, got {_shown(value)}")
        return value

    def bad_values(self) -> Iterator[Bad]:
        """Yield what is no option."""
        for value in (1, None, True, list(self.options)):
            yield value, TypeError
        yield "", ValueError
        yield self.options[0].upper(), ValueError


def accept_all(
    owner: str, table: Mapping[str, Constraint], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Check all hyperparameters of a constructor, in the order of the table."""
    return {name: constraint.accept(owner, name, given[name]) for name, constraint in table.items()}


def is_number(value: Any) -> bool:
    """Whether `value` is a plain real number: a Python or NumPy scalar, not a bool."""
    return isinstance(value, numbers.Real | np.floating | np.integer) and not isinstance(
        value, bool | np.bool_
    )


def as_float(value: Any) -> float | tuple[int, ...] | None:
    """Read one real number from whatever holds one.

    Returns
    -------
    float, tuple of int or None
        The number (infinite if it is too large for float64); the shape of an array that isn't 0-d;
        ``None`` for what holds no real number.
    """
    if not is_number(value):
        read: Callable[[], np.ndarray] | None = getattr(value, "_read", None)
        if read is not None:
            value = read()
        elif not any(hasattr(value, protocol) for protocol in ("__array__", "__dlpack__")):
            return None
        if isinstance(value, bool | np.bool_) or isinstance(value, type):
            return None
        detach = getattr(value, "detach", None)  # a PyTorch tensor that requires a gradient
        try:
            array = np.asarray(detach() if callable(detach) else value)
        except (TypeError, ValueError, RuntimeError):
            return None
        if array.dtype.kind not in "iufV":
            return None
        if array.ndim:
            return array.shape
        if value is np.ma.masked:  # seems to hold 0
            return None
        value = array[()]
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def _needs_arguments(function: Callable[..., Any]) -> bool:
    """Say whether a call without arguments is known to fail, as of another library's schedule."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # compiled code that doesn't say
        return False
    return False


def _shown(value: Any) -> str:
    text = repr(value)
    if len(text) > 80:
        text = text[:77] + "..."
    return f"{text} ({type(value).__name__})"
