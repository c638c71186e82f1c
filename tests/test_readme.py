"""The Python blocks of README and the docs run, one after the other, and print what is said."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import re
import runpy
from pathlib import Path

import pytest

import fastopt as fo

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "docs/adam.md",
    "docs/checkpoint.md",
    "docs/errors.md",
    "docs/gradients.md",
    "docs/distribute.md",
    "docs/half_precision.md",
    "docs/regularization.md",
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(text: str) -> list[tuple[str, str | None]]:
    """Return each Python block with the text block that follows it, its output, if one does."""
    found = [match.groups() for match in BLOCK.finditer(text)]
    return [
        (content, found[i + 1][1] if i + 1 < len(found) and found[i + 1][0] == "text" else None)
        for i, (language, content) in enumerate(found)
        if language == "python"
    ]


def run(code: str, namespace: dict[str, object]) -> str:
    """Return what the code prints, and the error that it ends with."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            exec(compile(code, "README.md", "exec"), namespace)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    return re.sub(r"\b0x[0-9a-f]+", "0x...", output.getvalue())


@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str) -> None:
    fo.reset_default_graph()
    threads = fo.get_num_threads()
    namespace: dict[str, object] = {}
    python = blocks((ROOT / page).read_text())
    try:
        for code, expected in python:
            if "import torch" in code and importlib.util.find_spec("torch") is None:
                continue
            printed = run(code, namespace)
            if expected is None:
                assert "Error: " not in printed, code
            else:
                assert " ".join(printed.split()) == " ".join(expected.split()), code
    finally:
        fo.set_num_threads(threads)
        fo.reset_default_graph()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_found(page: str) -> None:
    text = (ROOT / page).read_text()
    assert len(blocks(text)) == text.count("```python") > 0


def headings(page: Path) -> set[str]:
    """Return what links within a page call its headings."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize(
    "page",
    [
        str(path.relative_to(ROOT))
        for pattern in ("*.md", "docs/*.md", "examples/*.md")
        for path in sorted(ROOT.glob(pattern))
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for link in re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8")):
        if not link.startswith("http"):
            file, _, heading = link.partition("#")
            target = path.parent / file if file else path
            assert target.exists(), link
            assert not heading or heading in headings(target), link


def test_the_page_of_public_names_is_that_of_the_code() -> None:
    written = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    page = runpy.run_path(str(ROOT / "docs/make_api.py"))["page"]()
    assert written == page, "run docs/make_api.py"


def test_every_public_name_is_on_its_page() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`fo\.([\w.]+)(?:\(\))?`", page))
    modules = {name for name in fo.__all__ if inspect.ismodule(getattr(fo, name))}
    assert set(fo.__all__) - modules - {"__version__"} <= named
    assert modules <= {name.partition(".")[0] for name in named if "." in name} | {
        "clip",
        "threads",
    }


def test_the_table_of_speed_is_the_measured_one() -> None:
    """`make bench ARGS="--out docs/images/bench"` writes it; README has a copy."""
    measured = (ROOT / "docs/images/bench/overview.md").read_text()
    assert measured in (ROOT / "README.md").read_text()


def test_every_rule_is_in_the_table() -> None:
    from fastopt import optimizers

    text = (ROOT / "README.md").read_text()
    _, _, table = text.partition("| | `...Optimizer` |")
    table, _, _ = table.partition("\n\n")
    listed = set(re.findall(r"`(\w+)`", table))
    names = {name.removesuffix("Optimizer") for name in optimizers.__all__}
    pruning = {"zero_rows", "count_zero_rows", "prune_zero_rows"}
    assert listed == names - pruning | {"configure"}
