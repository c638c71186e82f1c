"""Before and after the first step, in which an optimizer makes its slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests.checkpoint.support import edit, fresh, trained
from tests.optimizer_db import state_of


def test_saved_before_the_first_step(tmp_path: Path) -> None:
    """A saved optimizer without slots restores; its slots then start from their initial values."""
    w, optimizer = fo.Variable(np.ones(2), name="w"), fo.AdamOptimizer(0.1)
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (w2,), other = fresh(lambda: fo.AdamOptimizer(0.1), "w", shape=(2,))
    w2 = fo.Variable(np.zeros(2), name="w2")
    fo.checkpoint.restore(path, other, {"w": w2})
    for var, opt in ((w, optimizer), (w2, other)):
        opt.apply_gradients([(np.ones(2), var)])
    assert w.numpy().tobytes() == w2.numpy().tobytes()


def test_back_to_before_the_first_step(tmp_path: Path) -> None:
    w, optimizer = fo.Variable(np.ones(2), name="w"), fo.AdamOptimizer(0.1)
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    runs = []
    for _ in range(2):
        for _ in range(3):
            optimizer.apply_gradients([(np.ones(2), w)])
        runs.append(w.numpy().tobytes())
        with pytest.raises(ValueError, match="missing: slot 'm' of 'w'"):
            fo.checkpoint.restore(path, optimizer, [w])
        done = fo.checkpoint.restore(path, optimizer, [w], strict=False)
        assert len(done.reset) == 4
    assert runs[0] == runs[1]


def test_state_of_variables_that_are_not_in_the_file_is_left_alone(tmp_path: Path) -> None:
    path = fo.checkpoint.save(
        tmp_path / "c", variables={"a": fo.Variable(np.full((4, 2), 9.0, np.float32))}
    )
    (a, b), optimizer = trained(lambda: fo.AdamOptimizer(0.1), "a", "b")
    before = state_of(optimizer, a, b)
    done = fo.checkpoint.restore(path, optimizer, [a, b], strict=False)
    after = state_of(optimizer, a, b)
    assert {name for name in before if before[name] != after[name]} == {"a", "a/Adam", "a/Adam_1"}
    assert not optimizer.get_slot(a, "m").numpy().any() and len(done.reset) == 2


class Counting(fo.Optimizer):
    """Without slots; counts its steps, from what a callable says."""

    def __init__(self) -> None:
        super().__init__(False, "Counting")

    def _create_slots(self, var_list: Any) -> None:
        self._create_non_slot_variable(lambda: np.int64(0), "steps", var_list[0])

    def _apply_dense(self, grad: Any, var: Any) -> None:
        var.assign(var.numpy() - grad)

    def _finish(self, update_ops: Any, name_scope: str) -> None:
        for var in self._non_slot_variables():
            var.assign_add(1)


def test_deferred_until_the_variable_is_made(tmp_path: Path) -> None:
    (w,), optimizer = trained(Counting, "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (w2,), other = fresh(Counting, "w")
    done = fo.checkpoint.restore(path, other, [w2])
    assert done.deferred == ("steps",) and not other._non_slot_variables()
    # What waits is saved too, and restored: the newest wins.
    with w2.graph.as_default():
        again = fo.checkpoint.save(tmp_path / "d", other)
        fo.checkpoint.restore(again, other)
        other.apply_gradients([(np.ones((4, 2)), w2)])
    assert [int(var.value) for var in other.variables() or other._non_slot_variables()] == [3]
    assert int(fo.checkpoint.open(again)["steps"]) == 2
    # Once it is made, its own value counts.
    assert int(fo.checkpoint.open(fo.checkpoint.save(again, other, [w2]))["steps"]) == 3
    # A value that doesn't fit is refused when the variable would be made.
    edit(Path(path), lambda tensors: tensors.update(steps=np.zeros(3, np.int64)))
    both = {"a": fresh(Counting, "w")[1], "b": fresh(Counting, "w")[1]}
    for key, value in (("a", 7), ("b", 9)):
        both[key]._restorable["steps"] = np.int64(value)
    with w2.graph.as_default():
        fo.checkpoint.restore(fo.checkpoint.save(tmp_path / "e", both, [w2]), both, [w2])
    assert [int(opt._restorable["steps"]) for opt in both.values()] == [7, 9]
    (w3,), third = fresh(Counting, "w")
    fo.checkpoint.restore(path, third, [w3])
    before = w3.numpy().tobytes()
    with pytest.raises(ValueError, match=r"restored value of 'steps' has shape \(3,\)"):
        third.apply_gradients([(np.ones((4, 2)), w3)])
    assert w3.numpy().tobytes() == before


def test_what_waits_needs_the_file_no_more(tmp_path: Path) -> None:
    (w,), optimizer = trained(Counting, "w")
    path = Path(fo.checkpoint.save(tmp_path / "c", optimizer))
    (w2,), other = fresh(Counting, "w")
    fo.checkpoint.restore(path, other, [w2])
    with path.open("r+b") as file:  # where it lies
        file.write(bytes(path.stat().st_size))
    with w2.graph.as_default():
        other.apply_gradients([(np.ones((4, 2)), w2)])
    assert [int(var.value) for var in other._non_slot_variables()] == [3]


def test_hyperparameters_that_need_a_step(tmp_path: Path) -> None:
    """Slots are made before the first step, beta powers by a schedule of it."""
    schedule = fo.schedules.ExponentialDecay(0.5, 2, 0.9)

    def program() -> Any:
        step = fo.create_global_step()
        return fo.Variable(np.ones(2), name="w"), fo.AdamOptimizer(0.1, beta1=schedule), step

    w, optimizer, step = program()
    for _ in range(3):
        optimizer.apply_gradients([(np.ones(2), w)], global_step=step)
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    with fo.Graph().as_default():
        w2, other, step2 = program()
        fo.checkpoint.restore(path, other)
        other.apply_gradients([(np.ones(2), w2)], global_step=step2)
    optimizer.apply_gradients([(np.ones(2), w)], global_step=step)
    assert w.numpy().tobytes() == w2.numpy().tobytes()
