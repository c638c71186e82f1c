"""Write the page of all public names, ``docs/api.md``, from their docstrings.

Run it after a name has come, gone or changed its first line; a test compares page and code.

    python docs/make_api.py
"""

from __future__ import annotations

import re
from inspect import getdoc, isclass, isfunction, ismodule
from pathlib import Path
from typing import Any

import fastopt as fo

PAGE = Path(__file__).with_name("api.md")

# In what order they stand, and what modules they come from.
SECTIONS = {
    "Variables and gradients": (
        "variable",
        "indexed_slices",
        "autodiff",
        "sparse_product",
        "global_step",
        "graph",
    ),
    "Optimizers": ("optimizer", "optimizers", "operation"),
    "Around an optimizer": (
        "loss_scale_optimizer",
        "gradient_accumulation",
        "sync_replicas",
        "moving_averages",
        "accumulators",
        "clip",
        "loss_scale",
        "regularizers",
        "constraints",
    ),
    "Schedules": ("schedules",),
    "Look-ups": ("embedding",),
    "Layers and losses": ("nn", "metrics"),
    "Replicas": ("distribute",),
    "Checkpoints": ("checkpoint",),
    "Data": ("datasets",),
    "Threads, memory, versions": ("threads", "step_memory", "config"),
}

INTRODUCTION = """\
# Public names

<!-- Written by docs/make_api.py from the docstrings: change those and run it. -->

What begins with `fo.` below is `import fastopt as fo`. A line is the first of its docstring;
`help(fo.AdamOptimizer)` has the rest: arguments, shapes, errors, and an example that runs.
"""


def names() -> list[tuple[list[str], Any]]:
    """List everything public that has a docstring, with the names that it goes by."""
    found: dict[int, tuple[list[str], Any]] = {}
    places = [("", {name: getattr(fo, name) for name in fo.__all__})]
    places += [
        (f"{name}.", {member: getattr(module, member) for member in module.__all__})
        for name, module in places[0][1].items()
        if ismodule(module)
    ]
    for prefix, members in places:
        for name, thing in members.items():
            if name.startswith("_") or not (isclass(thing) or isfunction(thing)):
                continue
            found.setdefault(id(thing), ([], thing))[0].append(prefix + name)
    return list(found.values())


def section_of(thing: Any) -> str:
    """Return the heading under which it stands."""
    module = thing.__module__.split(".")[1]
    for heading, modules in SECTIONS.items():
        if module in modules:
            return heading
    raise LookupError(f"docs/make_api.py has no section for fastopt.{module}")


def summary(thing: Any) -> str:
    """Return the first paragraph of its docstring as one line of Markdown."""
    first = (getdoc(thing) or "").partition("\n\n")[0]
    first = re.sub(r"\s*\[\d+\]_|:\w+:(?=`)", "", first)  # references, roles
    return " ".join(first.split()).replace("``", "`").replace("|", "\\|")


def page() -> str:
    """Return the text of the page."""
    lines: dict[str, list[str]] = {heading: [] for heading in SECTIONS}
    for known_as, thing in names():
        call = "()" if isfunction(thing) else ""
        cell = ", ".join(f"`fo.{name}{call}`" for name in known_as)
        lines[section_of(thing)].append(f"| {cell} | {summary(thing)} |")
    return INTRODUCTION + "".join(
        "\n".join(
            ["", f"## {heading}", "", "| name | |", "| --- | --- |", *sorted(rows, key=str.lower)]
        )
        + "\n"
        for heading, rows in lines.items()
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
