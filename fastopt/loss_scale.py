"""Loss scales: keep small gradients of 16-bit numbers from vanishing.

The loss is multiplied by a scale before it is differentiated and the gradients by its reciprocal
afterwards, so that what the backward pass computes stays within the range of its numbers. A dynamic
scale looks for the largest scale that works: it falls when a gradient is not finite, and that step
is skipped, and rises after many steps that were.

Here are the scales; the optimizer's own option and :class:`MixedPrecisionLossScaleOptimizer` put
them to use.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from fastopt._arrays import shown
from fastopt._unscaling import all_finite
from fastopt._validate import Constraint, Real, accept_all
from fastopt.variable import Variable

__all__ = ["DynamicLossScale", "FixedLossScale", "LossScale", "get"]

_FLOAT32_MAX = float(np.finfo(np.float32).max)


class LossScale(ABC):
    """Base of loss scales.

    A subclass defines ``__call__``, ``update`` and ``get_config``.
    """

    @abstractmethod
    def __call__(self) -> np.float32:
        """Return the current scale."""

    @abstractmethod
    def update(self, grads: Any) -> tuple[None, bool]:
        """Take notice of a step's gradients.

        Parameters
        ----------
        grads : gradient, or nested list, tuple or dict of gradients
            Already multiplied by the reciprocal of the scale; ``None`` is passed over.

        Returns
        -------
        update_op : None
            The update is done when this returns.
        should_apply : bool
            Whether the gradients should be applied.
        """

    @abstractmethod
    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Make a loss scale of what `get_config` returned."""
        return cls(**config)

    def variables(self) -> list[Variable]:
        """Return the variables that hold the state."""
        return []

    def __repr__(self) -> str:
        config = ", ".join(f"{name}={value!r}" for name, value in self.get_config().items())
        return f"{type(self).__name__}({config})"


class FixedLossScale(LossScale):
    """A scale that never changes.

    Gradients are applied whatever they are; NaN too.

    Parameters
    ----------
    loss_scale_value : int or float
        The scale, at least 1.

    Raises
    ------
    ValueError
        If it is not a Python number (as in TensorFlow, no `TypeError`), less than 1, or not finite.

    Examples
    --------
    >>> import fastopt as fo
    >>> float(fo.loss_scale.FixedLossScale(1000)())
    1000.0
    """

    def __init__(self, loss_scale_value: float) -> None:
        if not isinstance(loss_scale_value, int | float):
            raise ValueError(
                f"loss_scale_value must be a Python int or float, got {shown(loss_scale_value)}"
            )
        if not 1 <= loss_scale_value <= _FLOAT32_MAX:
            raise ValueError(
                f"loss_scale_value must be at least 1 and finite in float32, got {loss_scale_value}"
            )
        self._value = float(loss_scale_value)

    def __call__(self) -> np.float32:
        """Return the scale."""
        return np.float32(self._value)

    def update(self, grads: Any) -> tuple[None, bool]:
        """Do nothing.

        Returns
        -------
        update_op : None
        should_apply : bool
            Always True.
        """
        return None, True

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"loss_scale_value": self._value}


class DynamicLossScale(LossScale):
    """A scale that falls when gradients overflow and rises while they do not.

    After `increment_period` steps in a row with finite gradients it is multiplied by `multiplier`,
    unless the result is not finite in float32. After a step with a gradient that is not finite it
    is divided by `multiplier`, but not below `min_loss_scale`, and that step should not be applied.

    Parameters
    ----------
    initial_loss_scale : float, default 2**15
        The scale to begin with, > 0. One below `min_loss_scale` stays until the first bad step.
    increment_period : int, default 2000
        Good steps before the scale rises, >= 1.
    multiplier : float, default 2.0
        Factor by which it rises and falls, >= 1.
    min_loss_scale : float, default 1.0
        Lower bound on the way down, > 0. Keyword only; TensorFlow's is 1.

    Attributes
    ----------
    skipped_steps : int
        How many bad steps this object has seen.

    Raises
    ------
    TypeError
        If an argument is not a number.
    ValueError
        If it is out of its range.

    Notes
    -----
    The state are two variables that do not train, ``current_loss_scale`` (float32) and
    ``good_steps`` (int64).

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> scale = fo.loss_scale.DynamicLossScale(4.0, increment_period=2)
    >>> for gradient in (1.0, 1.0, np.nan):
    ...     _, should_apply = scale.update([gradient])
    ...     print(float(scale()), should_apply)
    4.0 True
    8.0 True
    4.0 False
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "initial_loss_scale": Real(fixed=True, gt=0),
        "increment_period": Real(fixed=True, ge=1),
        "multiplier": Real(fixed=True, ge=1),
        "min_loss_scale": Real(fixed=True, gt=0),
    }

    def __init__(
        self,
        initial_loss_scale: float = 2.0**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        *,
        min_loss_scale: float = 1.0,
    ) -> None:
        given = {
            "initial_loss_scale": initial_loss_scale,
            "increment_period": increment_period,
            "multiplier": multiplier,
            "min_loss_scale": min_loss_scale,
        }
        accepted = accept_all(type(self).__name__, self.constraints, given)
        self._initial: float = accepted["initial_loss_scale"]
        self._multiplier: float = accepted["multiplier"]
        self._minimum: float = accepted["min_loss_scale"]
        self._period = int(accepted["increment_period"])
        if self._period != increment_period:
            raise ValueError(
                f"{type(self).__name__}: increment_period must be whole, got {increment_period!r}"
            )
        for name in ("initial_loss_scale", "min_loss_scale"):
            if not accepted[name] <= _FLOAT32_MAX:
                raise ValueError(
                    f"{type(self).__name__}: {name} must be finite in float32, got {given[name]!r}"
                )
        self.skipped_steps = 0
        self._lock = threading.RLock()
        self._scale = Variable(np.float32(self._initial), False, "current_loss_scale")
        self._good_steps = Variable(np.int64(0), False, "good_steps")

    @property
    def initial_loss_scale(self) -> float:
        """The scale to begin with."""
        return self._initial

    @property
    def increment_period(self) -> int:
        """Good steps before the scale rises."""
        return self._period

    @property
    def multiplier(self) -> float:
        """Factor by which the scale rises and falls."""
        return self._multiplier

    @property
    def min_loss_scale(self) -> float:
        """Lower bound on the way down."""
        return self._minimum

    def __call__(self) -> np.float32:
        """Return the current scale."""
        return np.float32(self._scale.item())

    def update(self, grads: Any) -> tuple[None, bool]:
        """Raise or lower the scale.

        Parameters
        ----------
        grads : gradient, or nested list, tuple or dict of gradients
            Already multiplied by the reciprocal of the scale; ``None`` is passed over.

        Returns
        -------
        update_op : None
            The update is done when this returns.
        should_apply : bool
            Whether all gradients are finite. No gradients count as finite.

        Raises
        ------
        TypeError
            If a gradient cannot be one.
        """
        finite = all_finite(grads)
        self.advance(finite)
        return None, finite

    def advance(self, finite: bool) -> None:
        """Raise or lower the scale after a step of which it is known whether it was good.

        Parameters
        ----------
        finite : bool
            Whether all gradients were finite, on all replicas.
        """
        with self._lock:
            scale, good_steps = self(), self._good_steps.item()
            if not finite:
                self.skipped_steps += 1
                good_steps = 0
                scale = np.float32(max(float(scale) / self._multiplier, self._minimum))
            elif good_steps + 1 >= self._period:
                good_steps = 0
                with np.errstate(over="ignore"):
                    higher = np.float32(float(scale) * self._multiplier)
                scale = higher if np.isfinite(higher) else scale
            else:
                good_steps += 1
            self._scale.assign(scale)
            self._good_steps.assign(np.int64(good_steps))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = {
            "initial_loss_scale": self._initial,
            "increment_period": self._period,
            "multiplier": self._multiplier,
        }
        return config if self._minimum == 1.0 else config | {"min_loss_scale": self._minimum}

    def variables(self) -> list[Variable]:
        """Return ``current_loss_scale`` and ``good_steps``."""
        return [self._scale, self._good_steps]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()


def get(identifier: Any) -> LossScale | None:
    """Return the loss scale that is meant.

    Parameters
    ----------
    identifier : int, float, "dynamic", LossScale or None
        A number makes a :class:`FixedLossScale`, ``"dynamic"`` a :class:`DynamicLossScale` with its
        defaults.

    Returns
    -------
    LossScale or None

    Raises
    ------
    ValueError
        If it is nothing of that.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.loss_scale.get(128)
    FixedLossScale(loss_scale_value=128.0)
    """
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    if isinstance(identifier, int | float):
        return FixedLossScale(identifier)
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale()
    raise ValueError(
        f"a loss scale must be a number, 'dynamic', a LossScale or None, got {shown(identifier)}"
    )


def from_environment() -> LossScale | None:
    """Return the loss scale that the environment asks for, as TensorFlow does.

    Returns
    -------
    DynamicLossScale or None
        A scale if ``TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING`` is "1" or, where that is not set,
        ``TF_ENABLE_AUTO_MIXED_PRECISION`` is.
    """
    wanted = os.environ.get("TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING")
    if wanted is None:
        wanted = os.environ.get("TF_ENABLE_AUTO_MIXED_PRECISION")
    return DynamicLossScale() if wanted == "1" else None


def apply_if_finite(
    loss_scale: LossScale,
    gradients: Any,
    apply: Callable[[], Any],
    skip: Callable[[], Any],
    finite: bool | None = None,
) -> Any:
    """Apply gradients if the loss scale agrees, and update it.

    If applying raises, a dynamic scale has not changed either.

    Parameters
    ----------
    loss_scale : LossScale
        The scale.
    gradients : nest of gradients
        Unscaled.
    apply, skip : callable
        One of them is called, without arguments.
    finite : bool, optional
        Whether all gradients are finite, if that is known.

    Returns
    -------
    object
        What the function that was called returned.
    """
    if isinstance(loss_scale, DynamicLossScale):
        finite = all_finite(gradients) if finite is None else finite
        done = apply() if finite else skip()
        loss_scale.advance(finite)
        return done
    _, should_apply = loss_scale.update(gradients)
    return apply() if should_apply else skip()
