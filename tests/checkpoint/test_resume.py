"""A training that was stopped and resumed in another process ends with the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests.checkpoint.program import END, STOP, Training, variants
from tests.optimizer_db import Record

ROOT = Path(__file__).parents[2]


def in_new_process(module: str, *arguments: str, cwd: Path) -> str:
    # The checkout comes last on the path: an installed package is what is tested.
    code = f"import runpy, sys; sys.path.append({str(ROOT)!r}); sys.argv = {['', *arguments]!r};"
    code += f"runpy.run_module({module!r}, run_name='__main__')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stop every training, go on in another process; return where the checkpoints are."""
    directory = tmp_path_factory.mktemp("resume")
    for name, record, kwargs in variants():
        with fo.Graph().as_default():
            training = Training(record, kwargs)
            training.train(STOP)
            fo.checkpoint.save(directory / f"{name}.stop", **training.state)
            training.train(END)
            fo.checkpoint.save(directory / f"{name}.straight", **training.state)
    in_new_process("tests.checkpoint.program", str(directory), cwd=directory)
    return directory


def bits(path: Path) -> dict[str, Any]:
    saved = fo.checkpoint.open(path)
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in saved.items()}


@pytest.mark.parametrize(
    ("name", "record", "kwargs"), [pytest.param(*v, id=v[0]) for v in variants()]
)
def test_resumed_is_as_never_stopped(
    name: str, record: Record, kwargs: dict[str, Any], resumed: Path
) -> None:
    straight, again = bits(resumed / f"{name}.straight"), bits(resumed / f"{name}.resumed")
    assert straight.keys() == again.keys()
    assert {k for k in straight if straight[k] != again[k]} == set()
    # The whole state is there, and has moved since the stop.
    half = bits(resumed / f"{name}.stop")
    assert half.keys() == straight.keys()
    assert {"table", "vector", "global_step", "good_steps", "current_loss_scale"} <= half.keys()
    assert len(half) == 7 + 2 * len(record.slots) + sum(
        "_power" in k or k == "iteration" for k in half
    )
    for key in ("table", "vector", "table/ExponentialMovingAverage", "global_step"):
        assert half[key] != straight[key]
    saved = fo.checkpoint.open(resumed / f"{name}.resumed")
    assert saved.step == END
    assert saved._document.loss_scales.popitem()[1].skipped_steps == 1


def test_saving_changes_nothing(resumed: Path) -> None:
    """A run that saves ends as one that doesn't, for rules without anything left for later."""
    for name, record, kwargs in variants():
        if record.other_rows:
            continue
        with fo.Graph().as_default():
            training = Training(record, kwargs)
            training.train(END)
            straight = fo.checkpoint.open(resumed / f"{name}.straight")
            assert training.table.numpy().tobytes() == straight["table"].tobytes()
            assert training.vector.numpy().tobytes() == straight["vector"].tobytes()


def test_ftrl(tmp_path: Path) -> None:
    """VowpalWabbit/vowpal_wabbit#763, #1355, #1905, #1958: the state of FTRL was not saved."""

    def program() -> tuple[Any, Any]:
        w = fo.Variable(np.zeros(1), name="w")
        return w, fo.FtrlOptimizer(
            0.5,
            initial_accumulator_value=0.1,
            l1_regularization_strength=0.1,
            l2_regularization_strength=0.01,
        )

    gradients = [1, -0.5, 0.25, 2, -1]
    with fo.Graph().as_default():
        w, optimizer = program()
        for gradient in gradients[:3]:
            optimizer.apply_gradients([(np.array([gradient], float), w)])
        path = fo.checkpoint.save(tmp_path / "ftrl.safetensors", optimizer, w)
        for gradient in gradients[3:]:
            optimizer.apply_gradients([(np.array([gradient], float), w)])
    with fo.Graph().as_default():
        again, resumed = program()
        fo.checkpoint.restore(path, resumed, again)
        for gradient in gradients[3:]:
            resumed.apply_gradients([(np.array([gradient], float), again)])
    found = {
        "w": w,
        "accum": optimizer.get_slot(w, "accum"),
        "linear": optimizer.get_slot(w, "linear"),
    }
    expected = {"w": -0.5472961, "accum": 6.4125, "linear": 2.8827722}
    for name, var in found.items():
        np.testing.assert_allclose(var.numpy(), expected[name], rtol=1e-7)  # digits of the source
        other = again if name == "w" else resumed.get_slot(again, name)
        assert other.numpy().tobytes() == var.numpy().tobytes()
