"""A directory of checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt.checkpoint import CheckpointManager, latest


def names(manager: CheckpointManager) -> list[str]:
    return [os.path.basename(path) for path in manager.checkpoints]


def program() -> Any:
    return (
        fo.Variable(np.ones(3), name="w"),
        fo.MomentumOptimizer(0.1, 0.9),
        fo.create_global_step(),
    )


def test_saves_every_n_steps_and_keeps_the_last(tmp_path: Path) -> None:
    w, optimizer, step = program()
    manager = CheckpointManager(
        tmp_path / "a" / "b", optimizer, max_to_keep=3, checkpoint_interval=4
    )
    assert manager.restore_or_initialize() is None and manager.latest_checkpoint is None
    saved = []
    for _ in range(20):
        optimizer.apply_gradients([(np.ones(3), w)], global_step=step)
        path = manager.save(extra={"step": int(step.value)})
        if path is not None:
            saved.append(int(step.value))
    assert saved == [1, 5, 9, 13, 17]
    assert names(manager) == [f"ckpt-{n}.safetensors" for n in (9, 13, 17)]
    assert sorted(os.listdir(manager.directory)) == sorted(names(manager))
    assert manager.latest_checkpoint == latest(manager.directory) == manager.checkpoints[-1]
    assert manager.save(check_interval=False) is not None
    assert names(manager)[-1] == "ckpt-20.safetensors"
    # Another process goes on where this one has stopped, with the same interval.
    with fo.Graph().as_default():
        w2, optimizer2, step2 = program()
        again = CheckpointManager(manager.directory, optimizer2, checkpoint_interval=4)
        done = again.restore_or_initialize()
        assert done is not None and (done.step, int(step2.value), done.extra) == (20, 20, None)
        assert w2.numpy().tobytes() == w.numpy().tobytes()
        saved = []
        for _ in range(8):
            optimizer2.apply_gradients([(np.ones(3), w2)], global_step=step2)
            saved += [int(step2.value)] if again.save() else []
        assert saved == [24, 28]


def test_after_going_back(tmp_path: Path) -> None:
    w, optimizer, step = program()
    manager = CheckpointManager(tmp_path, optimizer, max_to_keep=2, checkpoint_interval=10)
    for number in (10, 20, 30):
        step.assign(number)
        manager.save()
    assert names(manager) == ["ckpt-20.safetensors", "ckpt-30.safetensors"]
    fo.checkpoint.restore(manager.checkpoints[0], optimizer)
    step.assign(25)
    assert manager.save() is not None  # the step is before that of the last checkpoint
    # What was just saved is kept, whatever its step.
    assert names(manager) == ["ckpt-25.safetensors", "ckpt-30.safetensors"]


def test_keeps_all(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, variables=[fo.Variable(1.0, name="w")], max_to_keep=None)
    for number in range(9):
        manager.save(number)
    assert len(names(manager)) == 9 and names(manager)[0] == "ckpt-0.safetensors"


def test_only_its_own_files(tmp_path: Path) -> None:
    w = fo.Variable(1.0, name="w")
    others = [
        "ckpt-x.safetensors",
        "ckpt-07.safetensors",
        "ckpt-8.safetensors.bak",
        "xckpt-9.safetensors",
    ]
    others += ["ckpt-9", "best-12.safetensors", ".ckpt.tmp", "ckpt-\u0663.safetensors"]
    for name in others:
        (tmp_path / name).write_text("mine")
    left = [tmp_path / ".ckpt-5.safetensors.0123abcd.tmp", tmp_path / ".best-5.safetensors.0f.tmp"]
    for directory in left:
        directory.mkdir()
        (directory / "new").write_text("half")
    assert latest(tmp_path) is None
    assert latest(tmp_path, "best") == str(tmp_path / "best-12.safetensors")
    manager = CheckpointManager(tmp_path, variables=[w], max_to_keep=1)
    assert not left[0].exists() and left[1].exists()  # that of another name may be being written
    for number in (2, 10):
        manager.save(number)
    assert names(manager) == ["ckpt-10.safetensors"]  # by number, not by text
    assert {*others, "ckpt-10.safetensors", left[1].name} == set(os.listdir(tmp_path))


def test_step_counter(tmp_path: Path) -> None:
    w, counter = fo.Variable(1.0, name="w"), fo.Variable(np.int64(3), name="n", trainable=False)
    with pytest.raises(ValueError, match="no global step"):
        CheckpointManager(tmp_path, variables=[w]).save()
    path = CheckpointManager(tmp_path, variables=[w], step_counter=counter).save()
    assert path is not None and fo.checkpoint.open(path).step == 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_to_keep": 0}, ValueError),
        ({"max_to_keep": 1.5}, TypeError),
        ({"max_to_keep": True}, TypeError),
        ({"checkpoint_interval": 0}, ValueError),
        ({"checkpoint_interval": None}, TypeError),
        ({"step_counter": 3}, TypeError),
        ({"checkpoint_name": ""}, ValueError),
        ({"checkpoint_name": "a/b"}, ValueError),
        ({"checkpoint_name": 1}, TypeError),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        CheckpointManager(tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()
    manager = CheckpointManager(tmp_path / "new")
    for number in (-1, 1.5, True):
        with pytest.raises(ValueError, match="checkpoint_number"):
            manager.save(number)  # type: ignore[arg-type]
