"""Times steps inside a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.contestant import Contestant

GROUP_SECONDS = 200e-6  # steps shorter than this are timed in groups: the clock itself costs 0.1 µs
SLOW_SECONDS = 0.25  # a longer step doesn't notice what the caches held before it
KB_A_MB = 1024


class Clock:
    """Takes turns of one contestant.

    Parameters
    ----------
    contestant : Contestant
    now : callable
        The clock, in seconds.
    warm : float
        Seconds of steps that aren't timed at the start of a turn.
    """

    def __init__(
        self,
        contestant: Contestant,
        now: Callable[[], float] = time.perf_counter,
        warm: float = 0.0,
    ) -> None:
        self._contestant = contestant
        self._now = now
        self._warm = warm
        self._group = 1
        self._slow = False

    def warm_up(self) -> dict[str, Any]:
        """Do the first steps, read the loss where there is one, and choose the size of groups."""
        contestant = self._contestant
        self._once()
        for _ in range(contestant.steps_to_loss - 1):
            self._once()
        loss = contestant.loss() if contestant.loss is not None else None
        one = self._once()
        self._slow = one > SLOW_SECONDS
        if not self._slow and not contestant.steps_to_loss:
            one = min(one, self._once())
        if contestant.before is None and one < GROUP_SECONDS:
            self._group = max(1, int(GROUP_SECONDS / max(one, 1e-7)))
        return {"loss": loss, "examples": contestant.examples}

    def turn(self, seconds: float) -> list[float]:
        """Return seconds a step, one number for each step (or group of short ones) of a turn."""
        start = self._now()
        if not self._slow:
            self._once()  # caches and sleeping threads after the others' turns
            while self._now() < start + self._warm:
                self._once()
        times = []
        end = self._now() + seconds
        while not times or self._now() < end:
            times.append(self._once(self._group))
        return times

    def _once(self, group: int = 1) -> float:
        if self._contestant.before is not None:
            self._contestant.before()
        step = self._contestant.step
        start = self._now()
        for _ in range(group):
            step()
        return (self._now() - start) / group


def reset_peak() -> None:
    """Set this process's peak memory back to what it uses now, where the system allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def memory_mb(field: str) -> float | None:
    """Return ``VmRSS`` or ``VmHWM`` of this process in MiB, None if the system doesn't tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(x.split()[1]) / KB_A_MB for x in lines if x.startswith(field + ":")), None)
