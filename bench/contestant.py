"""What a peer hands to the clock: a prepared step of one workload."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


class Unsupported(Exception):
    """The peer has no such rule, or not in this version: a dash in the table."""


@dataclasses.dataclass
class Contestant:
    """One way of one library to do a workload's step.

    Attributes
    ----------
    step : callable
        Does one step, and returns once the result is there.
    before : callable, optional
        Called before each step, outside the measured time.
    loss : callable, optional
        Mean loss on examples that are never trained on.
    steps_to_loss : int
        How many steps, counted from the first, are done before `loss` is read.
    examples : int, optional
        Examples that a step learns, where it isn't the workload's.
    """

    step: Callable[[], Any]
    before: Callable[[], Any] | None = None
    loss: Callable[[], float] | None = None
    steps_to_loss: int = 0
    examples: int | None = None


Builders = Mapping[str, Callable[[], Contestant]]
