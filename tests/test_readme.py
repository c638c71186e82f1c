"""README's Python blocks run, one after the other, and print what README says they print."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import fastopt as fo

ROOT = Path(__file__).parent.parent
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


def test_readme_runs() -> None:
    threads = fo.get_num_threads()
    namespace: dict[str, object] = {}
    python = blocks((ROOT / "README.md").read_text())
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
    assert len(python) == (ROOT / "README.md").read_text().count("```python") > 0


def test_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_every_rule_is_in_the_table() -> None:
    from fastopt import optimizers

    text = (ROOT / "README.md").read_text()
    listed = set(re.findall(r"^\| `(\w+Optimizer)\(", text, re.M))
    assert listed == set(optimizers.__all__)


