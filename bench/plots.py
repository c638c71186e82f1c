"""Plots of the table, as small PNG files."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import overview
from bench.peers import CANDIDATE, LIMIT, PEERS
from bench.summary import Row


def draw(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw one plot a family, and one of all; none where matplotlib isn't installed."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for family in dict.fromkeys(row.work.name.split("/", 1)[0] for row in rows):
        chosen = [row for row in rows if row.work.name.startswith(family + "/")]
        path = directory / f"{family}.png"
        if family == "scaling":
            _scaling(chosen, path)
        else:
            _ratios(chosen, path, family)
        if path.exists():
            made.append(path)
    _overview(rows, directory / "overview.png")
    return [*made, *directory.glob("overview.png")]


def _ratios(rows: Sequence[Row], path: Path, family: str) -> None:
    """Draw the scenarios of a family with its most threads."""
    threads = max(row.threads for row in rows)
    shown = {
        row.work.name.split("/", 1)[1]: row.best_by_library()
        for row in rows
        if row.threads == threads
    }
    _dots(shown, path, family.replace("_", " "), threads)


def _overview(rows: Sequence[Row], path: Path) -> None:
    """Draw the medians of kinds of scenarios."""
    groups = overview.telling(rows)
    threads = max((group.threads for group in groups), default=0)
    shown = {
        group.label: {title: statistics.median(ratios) for title, ratios in group.ratios.items()}
        for group in groups
        if group.threads == threads
    }
    _dots(shown, path, "medians over the scenarios of a kind", threads)


def _dots(shown: Mapping[str, Mapping[str, float]], path: Path, title: str, threads: int) -> None:
    """Draw dots: how many times fastopt's time each library takes."""
    import matplotlib.pyplot as plt

    shown = {label: ratios for label, ratios in shown.items() if ratios}
    if not shown:
        return
    figure, axes = plt.subplots(figsize=(7.5, 1.2 + 0.19 * len(shown)))
    series: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for k, ratios in enumerate(shown.values()):
        for library, ratio in ratios.items():
            series[library].append((ratio, k))
    for library in (PEERS[key].title for key in PEERS if PEERS[key].title in series):
        x, y = zip(*series[library], strict=True)
        limit = library == PEERS[LIMIT].title
        axes.plot(x, y, "|" if limit else "o", label=library, color="black" if limit else None,
                  markersize=9 if limit else 4)  # fmt: skip
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(shown)), list(shown), fontsize=6)
    axes.invert_yaxis()
    axes.set_xlabel(f"time, in times of fastopt's ({threads} threads); right of 1: slower")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=6, loc="lower right")
    _save(figure, path)


def _scaling(rows: Sequence[Row], path: Path) -> None:
    """Draw lines: milliseconds a step over what grows."""
    import matplotlib.pyplot as plt

    panels: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        panels["/".join(row.work.name.split("/")[1:-1])].append(row)
    figure, grid = plt.subplots(1, len(panels), figsize=(3.2 * len(panels), 3.2), squeeze=False)
    most = max(row.threads for row in rows)
    for axes, (panel, members) in zip(grid[0], panels.items(), strict=True):
        lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in members:
            for entry in row.entries:
                if entry.seconds is None or (row.threads != most and entry.peer != CANDIDATE):
                    continue
                label = (
                    f"{entry.name}, {row.threads} thr." if entry.peer == CANDIDATE else entry.name
                )
                lines[label].append((_grows(panel, row.work), entry.seconds * 1e3))
        for label, points in lines.items():
            x, y = zip(*sorted(points), strict=True)
            axes.plot(x, y, "o-", label=label, markersize=3, linewidth=1)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(panel.split("/")[0])
        axes.set_title(panel, fontsize=8)
        axes.legend(fontsize=5)
    grid[0][0].set_ylabel("ms a step")
    _save(figure, path)


def _grows(panel: str, work: Any) -> float:
    return float(getattr(work, panel.split("/")[0]))


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
