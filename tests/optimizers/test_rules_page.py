"""The page of rules says what the code does."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastopt as fo

DOCS = Path(__file__).parents[2] / "docs"
MAKE = runpy.run_path(str(DOCS / "make_rules.py"))
VARIANTS = [
    pytest.param(cls, number, id=f"{cls.__name__}{'-' * bool(name)}{name}")
    for cls in MAKE["optimizers"]()
    for number, (name, _) in enumerate(MAKE["variants"](cls))
]
every_variant = pytest.mark.parametrize(("cls", "number"), VARIANTS)


def make(cls: Any, number: int) -> tuple[Any, dict[str, str]]:
    """Make an optimizer and read its line of the page."""
    name, optimizer = list(MAKE["variants"](cls))[number]
    start = f"| [`{cls.__name__}`](#{cls.__name__.lower()})" + (f", {name}" if name else "") + " |"
    (line,) = [line for line in MAKE["page"]().splitlines() if line.startswith(start)]
    _, _, slots, size, sparse, peers, _ = (cell.strip() for cell in line.split("|"))
    return optimizer, {"slots": slots, "bytes": size, "sparse": sparse, "peers": peers}


def test_the_page_is_that_of_the_code() -> None:
    written = (DOCS / "rules.md").read_text(encoding="utf-8")
    assert written == MAKE["page"](), "run docs/make_rules.py"


@every_variant
def test_slots_and_bytes(cls: Any, number: int) -> None:
    optimizer, cells = make(cls, number)
    table = fo.Variable(np.ones((6, 8), np.float32))
    optimizer.apply_gradients([(np.ones((6, 8)), table)])
    named = set(re.findall(r"`(\w+)`", cells["slots"]))
    assert named == set(optimizer.get_slot_names())
    for name in named:
        rows = f"`{name}` (a row)" in cells["slots"]
        assert optimizer.get_slot(table, name).shape == ((6,) if rows else (6, 8))
    slots = [optimizer.get_slot(table, name).value for name in named]
    cost = (table.value.nbytes + sum(slot.nbytes for slot in slots)) / table.size
    said = sum(eval(term, {"D": 8}) for term in cells["bytes"].split("+"))
    assert cost == said


@every_variant
def test_what_a_sparse_gradient_changes(cls: Any, number: int) -> None:
    optimizer, cells = make(cls, number)
    start = np.random.default_rng(1).normal(size=(6, 3))
    table = fo.Variable(start)
    optimizer.apply_gradients([(np.ones((6, 3)), table)])
    names = optimizer.get_slot_names()
    before = [table.numpy(), *(optimizer.get_slot(table, name).numpy() for name in names)]
    for _ in range(2):
        optimizer.apply_gradients([(fo.IndexedSlices(np.ones((2, 3)), [4, 4]), table)])
    after = [table.numpy(), *(optimizer.get_slot(table, name).numpy() for name in names)]
    moved, *faded = [
        np.array([(a[row] != b[row]).any() for row in range(6)])
        for a, b in zip(before, after, strict=True)
    ]
    listed = np.arange(6) == 4
    decays = "weight_decay" in optimizer._constraints and optimizer._decay is not None
    assert moved[4]
    if cells["sparse"].startswith("all rows"):
        assert moved.all()
    elif cells["sparse"] == "listed rows; averages fade in all":
        assert (moved == listed).all() and all(slot.all() for slot in faded)
    else:
        assert cells["sparse"].startswith("listed rows")
        assert (moved == listed).all() or decays
        assert all((slot == listed).all() for slot in faded)


def test_only_one_rule_takes_repeated_rows_one_after_the_other() -> None:
    said = {
        cls.__name__
        for cls in MAKE["optimizers"]()
        if "one after the other" in MAKE["sparse"](MAKE["example"](cls))
    }
    assert said == {"GradientDescentOptimizer"}
    var = fo.Variable(np.zeros((1, 1), np.float32))
    slices = fo.IndexedSlices(np.array([[1], [1e8], [-1e8]], np.float32), [0, 0, 0])
    fo.GradientDescentOptimizer(1.0).apply_gradients([(slices, var)])
    assert var.numpy() == 0  # as TensorFlow; see pytorch/FBGEMM PR#586


@pytest.mark.parametrize("cls", MAKE["optimizers"](), ids=lambda cls: cls.__name__)
def test_every_rule_has_a_formula_a_paper_and_a_name_elsewhere(cls: Any) -> None:
    if cls is not fo.GradientDescentOptimizer:  # whose formula is its first line
        assert MAKE["formula"](cls) or cls is fo.LazyAdamOptimizer
        assert MAKE["papers"](cls)
    assert MAKE["PEERS"][cls.__name__]


@pytest.mark.parametrize(("word", "module"), [("torch", "torch.optim"), ("optax", "optax")])
def test_names_elsewhere_exist(word: str, module: str) -> None:
    pytest.importorskip(word)
    peer = importlib.import_module(module)
    names = [
        name for text in MAKE["PEERS"].values() for name in re.findall(rf"{word} `(\w+)", text)
    ]
    assert names
    assert [name for name in names if not hasattr(peer, name)] == []
