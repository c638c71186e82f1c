"""What the demo prints: lines and tables for standard output, a progress bar for a terminal."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from .train import Epoch, Work

_REDRAW_SECONDS = 0.1


class ProgressBar:
    """Draws one line of a terminal over and over; draws nothing when `stream` is no terminal.

    Parameters
    ----------
    stream : text file
        Where to draw.
    total : int
        Examples in an epoch.
    """

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._total = total
        self._start = self._drawn = time.perf_counter()
        self._width = 0
        self.title = ""

    def restart(self, title: str) -> None:
        """Begin at zero under another title."""
        self.title = title
        self._start = self._drawn = time.perf_counter()

    def update(self, done: int, loss: float) -> None:
        """Show that `done` examples are trained on, unless the line was drawn just now."""
        now = time.perf_counter()
        if not self._live or now - self._drawn < _REDRAW_SECONDS:
            return
        self._drawn = now
        rate = done / (now - self._start)
        total = f"{self._total:,}"
        # Of fixed width, so that the bar doesn't jump.
        text = f" {done:>{len(total)},} of {total} {rate:>9,.0f} examples/s  loss {loss:.4f}"
        columns = shutil.get_terminal_size().columns - 1
        size = min(30, columns - len(self.title) - len(text) - 4)
        bar = ""
        if size >= 5:
            filled = size * done // self._total
            bar = f" [{'#' * filled}{'.' * (size - filled)}] "
        self._draw(f"{self.title}{bar}{text}"[:columns])

    def clear(self) -> None:
        """Wipe the line, so that something else can be printed."""
        if self._width:
            self._draw("")
            self._stream.write("\r")
            self._stream.flush()

    def _draw(self, line: str) -> None:
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)


EPOCH_HEADER = "epoch  train loss  test log-loss  test AUC  examples/s"


def epoch_line(epoch: Epoch) -> str:
    """Return the line under `EPOCH_HEADER` for an epoch."""
    auc = "-" if epoch.test_auc is None else f"{epoch.test_auc:.4f}"
    return (
        f"{epoch.number:5}  {epoch.train_loss:10.4f}  {epoch.test_log_loss:13.4f}  {auc:>8}"
        f"  {epoch.examples_per_second:10,.0f}"
    )


def work_table(work: Mapping[str, Work]) -> list[str]:
    """Return the lines of the table of what each optimizer did."""
    rows = [("optimizer", "steps", "sparse rows touched", "dense parameters", "variables")]
    for name, done in work.items():
        rows.append(
            (
                name,
                f"{done.steps:,}",
                f"{done.sparse_rows:,}",
                f"{done.dense_parameters:,}",
                _shorten(list(done.variables)),
            )
        )
    return _aligned(rows)


def _shorten(names: Sequence[str]) -> str:
    if len(names) <= 2:
        return ", ".join(names)
    return f"{names[0]} and {len(names) - 1} more"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align columns: words (the first and the last) left, numbers right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if position in (0, last) else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
