"""The scenarios, one module a family; `select` finds workloads by name."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from bench.scenarios import aggregation, dense, end_to_end, hogwild, lookups, scaling, sparse
from bench.workloads import Workload

FAMILIES = {
    "dense": dense,
    "sparse": sparse,
    "aggregation": aggregation,
    "lookups": lookups,
    "end_to_end": end_to_end,
    "hogwild": hogwild,
    "scaling": scaling,
}


def workloads(quick: bool = False) -> list[Workload]:
    """Return all workloads, or those that show the most in two minutes."""
    return [w for module in FAMILIES.values() for w in (module.quick() if quick else module.full())]


def select(names: Sequence[str], available: Sequence[Workload]) -> list[Workload]:
    """Return the workloads that a name means: the start of a path, or a pattern.

    Raises
    ------
    ValueError
        If a name means none.
    """
    chosen: dict[str, Workload] = {} if names else {work.name: work for work in available}
    for name in names:
        found = [work for work in available if means(name, work.name)]
        if not found:
            raise ValueError(f"no scenario {name!r}; families are {', '.join(FAMILIES)}")
        chosen.update((work.name, work) for work in found)
    return list(chosen.values())


def means(name: str, path: str) -> bool:
    """Say whether `name` is `path`, a leading part of it, or a pattern that it fits."""
    return path == name or path.startswith(name.rstrip("/") + "/") or fnmatchcase(path, name)
