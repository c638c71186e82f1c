"""The regression guard: ratios to the best peer, saved; times would say more about the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.summary import Row

TOLERANCE = 0.2


def ratios(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the ratio to each peer, by scenario and number of threads."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        mine = {e.name: e.ratio for e in row.peers if e.ratio is not None}
        if mine:
            found[f"{row.work.name} @{row.threads}"] = mine
    return found


def save(rows: Sequence[Row], path: Path) -> None:
    """Write the ratios, keeping those of scenarios that were not run."""
    kept = load(path) | ratios(rows)
    rounded = {
        name: {peer: float(f"{value:.3g}") for peer, value in sorted(kept[name].items())}
        for name in sorted(kept)
    }
    path.write_text(json.dumps(rounded, indent=1) + "\n")


def load(path: Path) -> dict[str, dict[str, float]]:
    """Return saved ratios; none if there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def slower(
    now: Mapping[str, Mapping[str, float]],
    saved: Mapping[str, Mapping[str, float]],
    tolerance: float = TOLERANCE,
) -> list[str]:
    """Return a sentence for each scenario that got slower against its peers.

    A scenario is slower when its ratio fell by more than the tolerance against *every* peer that
    both runs measured: one peer alone may have become faster, or been disturbed.
    """
    found = []
    for name, then in saved.items():
        here = now.get(name, {})
        common = {peer: here[peer] / before for peer, before in then.items() if peer in here}
        if common and max(common.values()) < 1.0 - tolerance:
            peer = max(common, key=lambda p: common[p])
            found.append(f"{name}: {here[peer]:.3g} times as fast as {peer}, was {then[peer]:.3g}")
    return found
