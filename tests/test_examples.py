"""The programs in examples/ run, learn what they should, and print the same each time."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

# What `main` returns tells whether the program has learnt.
LEARNT: dict[str, Callable[[Any], bool]] = {
    "logistic_regression": lambda auc: auc > 0.7,
    "matrix_factorisation": lambda rmse: rmse < 0.2,
    "word2vec": lambda nearest: (
        {"dog", "mouse"} & set(nearest["cat"]) != set()
        and {"rome", "berlin", "lyon", "milan", "cologne"} & set(nearest["paris"]) != set()
    ),
    "pytorch_in_place": lambda loss: loss < 0.2,
    "own_rule": lambda loss: loss < 1e-3,
}


@pytest.mark.parametrize("name", sorted(LEARNT))
def test_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "pytorch_in_place":
        pytest.importorskip("torch")
    outputs = []
    for _ in range(2):
        result = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()
        assert LEARNT[name](result), result
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != ""


def test_every_example_is_tested_and_described() -> None:
    programs = {path.stem for path in EXAMPLES.glob("*.py")}
    assert programs == set(LEARNT)
    readme = (EXAMPLES / "README.md").read_text()
    assert all(f"`{name}.py`" in readme for name in programs)
