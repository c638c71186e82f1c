"""Averages of variables and their steps: of all rows at once, or of those that changed.

While the value of a row stays what it was, the distance of its average shrinks by the decay at each
step: what the row has missed is made up for when it is read or changes.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from fastopt._arrays import compute_dtype, contiguous
from fastopt._kernels import _lists
from fastopt.variable import Variable

Array = np.ndarray[Any, Any]

# Logarithms are counted from anew beyond this, so that their differences stay exact to 1e-13.
_FAR = 1024.0
# Elements that are worked on at once, so that temporaries stay small and in cache.
_BLOCK = 1 << 16


class Shadow(Variable):
    """The average of a variable; rows may have steps to make up for.

    While a row's value stays what it was, the distance of its average shrinks by the decay at each
    step. So a row needs to know when it was brought up to date (the sum of the logarithms of all
    decays until then), and the value that it was averaged with.
    """

    _log: float = 0.0
    _row_logs: Array | None = None
    _averaged: Array | None = None

    def follow(self, var: Variable, decay: float, changed: Array | None) -> None:
        """Move by one step; with `changed`, only these rows at once."""
        with self._lock:
            if changed is not None and self._row_logs is None:
                # Right for the rows that have not changed; the others are due now anyway.
                self._averaged = var.numpy()
                self._row_logs = np.full(self.shape[0], self._log)
            logs, averaged = self._row_logs, self._averaged
            if logs is None or averaged is None:
                move(self._storage, var._read(), decay)
            else:
                if changed is None or decay == 0.0:  # which has no logarithm, and forgets all
                    changed = np.arange(self.shape[0])
                self._catch_up(changed)
                self._advance(decay)
                values = var._read_rows(changed)
                if self._kernel_fits(averaged):
                    share = 1.0 - decay
                    _lists.follow_rows(self._storage, averaged, changed, values, share)
                else:
                    rows = self._storage[changed]
                    move(rows, values, decay)
                    self._storage[changed] = rows
                    averaged[changed] = values
                logs[changed] = self._log
            self._version += 1

    def _advance(self, decay: float) -> None:
        self._log += math.log(decay or 1.0)
        if self._log < -_FAR and self._row_logs is not None:
            self._row_logs -= self._log
            self._log = 0.0

    def _catch_up(self, ids: Array | None) -> None:
        """Make up for the steps that rows have missed, all of them if no ids are given."""
        logs, averaged = self._row_logs, self._averaged
        if logs is None or averaged is None:
            return
        # A row that is up to date stays as it is, to the bit.
        ids = np.flatnonzero(logs != self._log) if ids is None else ids[logs[ids] != self._log]
        ids = ids.astype(np.int64, copy=False)
        block = max(_BLOCK // max(math.prod(self.shape[1:]), 1), 1)
        for start in range(0, ids.size, block):
            some = ids[start : start + block]
            factors = np.exp(self._log - logs[some])
            if self._kernel_fits(averaged):
                _lists.catch_up_rows(self._storage, averaged, some, factors)
            else:
                factors = factors.reshape(-1, *(1,) * (self.ndim - 1))
                values = averaged[some].astype(np.float64)
                self._storage[some] = values + (self._storage[some] - values) * factors
            logs[some] = self._log

    def _kernel_fits(self, averaged: Array) -> bool:
        # Of a variable of 16 bits the values that were averaged have another dtype.
        return _lists.fits(self._storage) and averaged.dtype == self.dtype

    def _read(self) -> Array:
        if self._row_logs is not None:
            with self._lock:
                self._catch_up(None)
                # All rows begin anew, as after a restore: what follows doesn't depend on the past.
                self._row_logs.fill(0.0)
                self._log = 0.0
        return self._storage

    def _read_rows(self, ids: Array) -> Array:
        if self._row_logs is not None:
            with self._lock:
                self._catch_up(np.unique(ids))
        return super()._read_rows(ids)

    def assign(self, value: Any) -> Variable:
        """Replace the value, with nothing left to make up for."""
        with self._lock:
            self._read()
            return super().assign(value)

    def restore(self, value: Array) -> None:
        """Take a value that was saved, of a time when the variable had another value too."""
        with self._lock:
            self._row_logs = self._averaged = None
            self._log = 0.0
            super().assign(value)


class Moves:
    """Steps of shadows that are made together: in one pass over all of them and their variables."""

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._pairs: list[tuple[Shadow, Variable]] = []
        self._known: set[int] = set()

    def make_way(self, var: Variable, shadow: Shadow | None) -> None:
        """Make the steps that must come before one of this variable: others of the same arrays."""
        if id(var) in self._known or id(shadow) in self._known:
            self.make()

    def add(self, shadow: Shadow, var: Variable) -> None:
        """Add the step of one shadow."""
        self._pairs.append((shadow, var))
        self._known.update((id(shadow), id(var)))

    def make(self) -> None:
        """Make the steps that have been added."""
        plain: list[tuple[Shadow, Array]] = []
        with contextlib.ExitStack() as stack:
            for shadow, _ in sorted(self._pairs, key=lambda pair: id(pair[0])):
                stack.enter_context(shadow._lock)
            for shadow, var in self._pairs:
                if shadow._row_logs is None and _lists.fits(shadow._storage):
                    plain.append((shadow, var._read()))
                else:
                    shadow.follow(var, self._decay, None)
            averages = [shadow._storage for shadow, _ in plain]
            _lists.follow(averages, [value for _, value in plain], 1.0 - self._decay)
            for shadow, _ in plain:
                shadow._version += 1
        self._pairs = []
        self._known = set()


def move(average: Array, value: Array, decay: float) -> None:
    """Move a contiguous average one step, in place; 16-bit numbers are computed in float32."""
    if _lists.fits(average) and average.dtype != np.float16:
        _lists.follow([average], [contiguous(value)], 1.0 - decay)
        return
    wide = compute_dtype(average.dtype).type
    share, averages, values = wide(1.0 - decay), average.reshape(-1), value.reshape(-1)
    for start in range(0, averages.size, _BLOCK):
        some = averages[start : start + _BLOCK]
        delta = np.subtract(some, values[start : start + _BLOCK], dtype=wide)
        delta *= share
        np.subtract(some, delta, out=some, casting="same_kind")
