"""What doesn't fit is refused, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests.checkpoint.support import edit, fresh, trained
from tests.optimizer_db import RECORDS, Record, state_of


@pytest.mark.parametrize("record", [r for r in RECORDS if r.slots], ids=lambda r: r.id)
@pytest.mark.parametrize("steps", [0, 2])
def test_a_slot_is_gone(record: Record, steps: int, tmp_path: Path) -> None:
    """DeepRec-AI/DeepRec#1023: moments were left uninitialised when the file lacked them."""
    (w, b), optimizer = trained(record.make, "w", "b")
    path = Path(fo.checkpoint.save(tmp_path / "c", optimizer))
    gone = optimizer.get_slot(w, record.slots[-1]).name
    edit(path, lambda tensors: tensors.pop(gone))
    (w2, b2), other = fresh(record.make, "w", "b") if not steps else _again(record)
    before = state_of(other, w2, b2)
    with pytest.raises(ValueError, match=f"missing: slot '{record.slots[-1]}' of 'w'.*'{gone}'"):
        fo.checkpoint.restore(path, other, [w2, b2])
    assert state_of(other, w2, b2) == before
    done = fo.checkpoint.restore(path, other, [w2, b2], strict=False)
    assert len(done.missing) == len(done.reset) == 1 and gone in done.missing[0]
    # What the slot of a fresh optimizer is.
    (w3, _), new = fresh(record.make, "w", "b")
    with w3.graph.as_default(), new._creating([w3]):
        new._create_slots([w3])
    assert (
        other.get_slot(w2, record.slots[-1]).numpy().tobytes()
        == new.get_slot(w3, record.slots[-1]).numpy().tobytes()
    )
    for name in record.slots:
        expected, found = optimizer.get_slot(b, name), other.get_slot(b2, name)
        assert expected.numpy().tobytes() == found.numpy().tobytes()
    other.apply_gradients([(np.ones((4, 2)), w2), (np.ones((4, 2)), b2)])


def _again(record: Record) -> Any:
    with fo.Graph().as_default():
        return trained(record.make, "w", "b")


@pytest.mark.parametrize("steps", [0, 2])
def test_a_slot_has_too_few_rows(steps: int, tmp_path: Path) -> None:
    """DeepRec-AI/DeepRec#1023, with slots for 5 of 7 rows."""
    make = RECORDS[2].make
    (w, b), optimizer = trained(make, "w", "b")
    path = Path(fo.checkpoint.save(tmp_path / "c", optimizer))
    edit(path, lambda tensors: tensors.update({"w/Adagrad": tensors["w/Adagrad"][:3].copy()}))
    (w2, b2), other = fresh(make, "w", "b") if not steps else _again(RECORDS[2])
    before = state_of(other, w2, b2)
    for strict in (True, False):
        with pytest.raises(ValueError, match=r"slot 'accumulator' of 'w'.*\(3, 2\).*\(4, 2\)"):
            fo.checkpoint.restore(path, other, [w2, b2], strict=strict)
        assert state_of(other, w2, b2) == before
    assert ("w/Adagrad" in w2.graph._names) == bool(steps)  # names are given back too


class RowWise(fo.Optimizer):
    """One number a row, as row-wise Adagrad keeps it."""

    def __init__(self, shape: Callable[[Any], tuple[int, ...]]) -> None:
        super().__init__(False, "RowWise")
        self.shape = shape

    def _create_slots(self, var_list: Any) -> None:
        for var in var_list:
            shape = self.shape(var)
            self._get_or_make_slot_with_initializer(
                var, np.zeros, shape, var.dtype, "accumulator", "RowWise"
            )

    def _apply_dense(self, grad: Any, var: Any) -> None:
        slot = self.get_slot(var, "accumulator")
        slot.assign_add(np.full(slot.shape, 2.0))


SHAPES: dict[str, Callable[[Any], tuple[int, ...]]] = {
    "(rows,)": lambda var: var.shape[:1],
    "(rows, 1)": lambda var: (var.shape[0], 1),
    "(rows, D)": lambda var: var.shape,
}


@pytest.mark.parametrize("saved", SHAPES)
@pytest.mark.parametrize("wanted", SHAPES)
def test_width_of_row_wise_slots(saved: str, wanted: str, tmp_path: Path) -> None:
    """NVIDIA/recsys-examples PR#305: the width of row-wise state was confused on load."""
    (w,), optimizer = trained(lambda: RowWise(SHAPES[saved]), "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (w2,), other = fresh(lambda: RowWise(SHAPES[wanted]), "w")
    if saved == wanted:
        fo.checkpoint.restore(path, other, [w2])
        slot = other.get_slot(w2, "accumulator")
        assert slot.shape == SHAPES[saved](w2)
        np.testing.assert_array_equal(slot.numpy(), 4.0)
    else:
        with pytest.raises(ValueError, match="slot 'accumulator' of 'w'.* has shape"):
            fo.checkpoint.restore(path, other, [w2], strict=False)
        assert other.get_slot(w2, "accumulator") is None and not w2.numpy().any()


def test_everything_that_is_wrong_is_listed(tmp_path: Path) -> None:
    variables = {
        "same": fo.Variable(np.ones(3), name="same"),
        "gone": fo.Variable(np.ones(3), name="gone"),
        "wide": fo.Variable(np.ones((3, 1)), name="wide"),
        "exact": fo.Variable(np.ones(3), name="exact"),
    }
    path = fo.checkpoint.save(tmp_path / "c", variables=variables)
    same = fo.Variable(np.zeros(3))
    wanted = {
        "same": same,
        "new": fo.Variable(np.zeros(3)),
        "wide": fo.Variable(np.zeros(3)),
        "exact": fo.Variable(np.zeros(3, np.float32)),
    }
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        fo.checkpoint.restore(path, variables=wanted)
    for part in (
        "variable 'wide' has shape (3, 1) in the file, (3,) here",
        "variable 'exact' has dtype float64 in the file, float32 here",
        "missing: variable 'new'",
        "unexpected: gone",
        str(path),
    ):
        assert part in str(caught.value)
    assert "strict=False" not in str(caught.value)  # which would not help
    with pytest.raises(ValueError, match="of another kind"):
        fo.checkpoint.restore(path, variables=wanted, strict=False)
    assert not any(var.numpy().any() for var in wanted.values())
    fit = {"same": same, "new": wanted["new"]}
    with pytest.raises(ValueError, match=r"missing.*unexpected.*strict=False"):
        fo.checkpoint.restore(path, variables=fit)
    assert not same.numpy().any()
    done = fo.checkpoint.restore(path, variables=fit, strict=False)
    assert done.variables == ("same",)
    assert done.missing == ("variable 'new'",)
    assert sorted(done.unexpected) == ["exact", "gone", "wide"]
    assert same.numpy().all() and not wanted["new"].numpy().any()


def test_other_optimizers(tmp_path: Path) -> None:
    (w,), optimizer = trained(lambda: fo.AdamOptimizer(0.1), "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (w2,), lazy = fresh(lambda: fo.LazyAdamOptimizer(0.2), "w")
    with pytest.raises(ValueError, match="'Adam' is of class AdamOptimizer in the file, LazyAdam"):
        fo.checkpoint.restore(path, {"Adam": lazy}, [w2])
    assert lazy.get_slot(w2, "m") is None
    done = fo.checkpoint.restore(path, {"Adam": lazy}, [w2], strict=False)
    assert done.changed["Adam.learning_rate"] == (0.1, 0.2)
    np.testing.assert_array_equal(lazy.get_slot(w2, "m"), optimizer.get_slot(w, "m").numpy())
    (w3,), adagrad = fresh(lambda: fo.AdagradOptimizer(0.2), "w")
    with pytest.raises(ValueError, match="missing: optimizer 'Adagrad'; unexpected: .*w/Adam"):
        fo.checkpoint.restore(path, adagrad, [w3])
    # Without optimizers nothing of theirs is expected.
    assert fo.checkpoint.restore(path, variables=[w3]).variables == ("w",)


def test_each_optimizer_begins_anew_as_its_own(tmp_path: Path) -> None:
    w = fo.Variable(np.ones(3), name="w")
    path = fo.checkpoint.save(tmp_path / "c", variables=[w])
    initial = {"low": 0.25, "high": 0.5}
    optimizers = {key: fo.AdagradOptimizer(0.1, value) for key, value in initial.items()}
    for optimizer in optimizers.values():
        optimizer.apply_gradients([(np.ones(3), w)])
    fo.checkpoint.restore(path, optimizers, [w], strict=False)
    for key, optimizer in optimizers.items():
        np.testing.assert_array_equal(optimizer.get_slot(w, "accumulator"), initial[key])


def test_a_read_only_variable(tmp_path: Path) -> None:
    memory = np.zeros(3)
    var, other = fo.Variable(memory, name="w", copy=False), fo.Variable(np.zeros(3), name="b")
    path = fo.checkpoint.save(tmp_path / "c", variables={"w": fo.Variable(np.ones(3)), "b": var})
    var._storage.flags.writeable = False
    with pytest.raises(ValueError, match="variable 'w' is read-only"):
        fo.checkpoint.restore(path, variables=[other, var])
    assert not other.numpy().any()


def test_variables_that_share_memory(tmp_path: Path) -> None:
    """No step could be made with them, and the last one restored would overwrite the first."""
    (a, b), optimizer = trained(lambda: fo.AdamOptimizer(0.1), "a", "b")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    memory = np.zeros((6, 2), np.float32)
    parts = {"a": memory[:4], "b": memory[2:]}
    with fo.Graph().as_default():
        shared = [fo.Variable(part, name=name, copy=False) for name, part in parts.items()]
        other = fo.AdamOptimizer(0.1)
        with pytest.raises(ValueError, match="'a' and .*'b' share memory"):
            fo.checkpoint.restore(path, other, shared)
    assert not memory.any() and other.get_slot(shared[0], "m") is None
