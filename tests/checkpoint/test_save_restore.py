"""What is saved under which name, and who gets it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import fastopt as fo
from tests.checkpoint.support import fresh, trained
from tests.optimizer_db import Record, every_record

# ------------------------------------------------------------------ what is in the file


def test_names_and_what_is_recorded(tmp_path: Path) -> None:
    step = fo.create_global_step()
    step.assign(12)
    (table,), optimizer = trained(lambda: fo.AdamOptimizer(0.1, beta1=0.8), "table")
    extra = {"epoch": 2, "rng": np.random.default_rng(1).bit_generator.state}
    path = fo.checkpoint.save(tmp_path / "c.safetensors", optimizer, extra=extra)
    assert path == str((tmp_path / "c.safetensors").resolve())
    saved = fo.checkpoint.open(path)
    assert sorted(saved) == [
        "beta1_power", "beta2_power", "global_step", "table", "table/Adam", "table/Adam_1",
    ]  # fmt: skip
    assert saved.variables == ("global_step", "table")
    assert (saved.step, saved.extra) == (12, extra)
    assert saved.versions.keys() == {"fastopt", "numpy", "safetensors", "python"}
    record = saved.optimizers["Adam"]
    assert record.cls == "AdamOptimizer"
    assert record.hyperparameters == {
        "learning_rate": 0.1, "beta1": 0.8, "beta2": 0.999, "epsilon": 1e-8,
    } | {k: v for k, v in record.hyperparameters.items() if k not in AdamArguments}  # fmt: skip
    assert record.slots == {"m": {"table": "table/Adam"}, "v": {"table": "table/Adam_1"}}
    assert record.non_slots == {"beta1_power": "beta1_power", "beta2_power": "beta2_power"}
    for var in [table, step, *optimizer.variables()]:
        assert saved[var.name].dtype == var.dtype
        np.testing.assert_array_equal(saved[var.name], var.numpy())
    # Any safetensors reader reads it.
    np.testing.assert_array_equal(safetensors.numpy.load_file(path)["table"], table.numpy())


AdamArguments = ("learning_rate", "beta1", "beta2", "epsilon")


def test_every_dtype_and_shape_comes_back(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    names = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
    dtypes = [*map(np.dtype, names), np.dtype(ml_dtypes.bfloat16)]
    shapes = [(), (0,), (3,), (0, 4), (2, 3, 2)]
    values = {
        f"{dtype}{shape}": np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        for dtype in dtypes
        for shape in shapes
    }
    kept = [fo.Variable(value, name=name) for name, value in values.items()]
    path = fo.checkpoint.save(tmp_path / "c", variables=kept)
    again = [fo.Variable(np.ones(v.shape, v.dtype), name=n) for n, v in values.items()]
    fo.checkpoint.restore(path, variables=dict(zip(values, again, strict=True)))
    for var, other in zip(kept, again, strict=True):
        assert var.numpy().tobytes() == other.numpy().tobytes()


def test_hyperparameters_of_every_kind_are_recorded(tmp_path: Path) -> None:
    def rate() -> float:
        return 0.5

    schedule = fo.schedules.ExponentialDecay(0.1, 10, 0.5)
    optimizers = {
        "callable": fo.GradientDescentOptimizer(rate),
        "schedule": fo.GradientDescentOptimizer(schedule),
        "variable": fo.GradientDescentOptimizer(fo.Variable(0.25, name="rate")),
        "array": fo.GradientDescentOptimizer(np.array(0.25)),
        "number": fo.GradientDescentOptimizer(np.float32(0.5)),
    }
    path = fo.checkpoint.save(tmp_path / "c", optimizers)
    found = {
        key: record.hyperparameters["learning_rate"]
        for key, record in fo.checkpoint.open(path).optimizers.items()
    }
    assert found == {
        "callable": f"<callable {rate.__qualname__}>",
        "schedule": repr(schedule),
        "variable": "<Variable rate>",
        "array": 0.25,
        "number": 0.5,
    }


# ------------------------------------------------------------------ who gets what


@every_record()
def test_variables_in_another_order(record: Record, tmp_path: Path) -> None:
    """pytorch/pytorch#1489, facebookresearch/fairscale#380: state was matched by position."""
    (a, b), optimizer = trained(record.make, "a", "b")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (b2, a2), resumed = fresh(record.make, "b", "a")
    fo.checkpoint.restore(path, resumed, [b2, a2])
    for var, other in ((a, a2), (b, b2)):
        assert var.numpy().tobytes() == other.numpy().tobytes()
        assert resumed.get_slot_names() == optimizer.get_slot_names()
        for name in optimizer.get_slot_names():
            expected, found = optimizer.get_slot(var, name), resumed.get_slot(other, name)
            assert expected.numpy().tobytes() == found.numpy().tobytes()


def test_slots_made_in_another_order(tmp_path: Path) -> None:
    """Two optimizers of one variable: the names of their slots depend on who came first."""

    def optimizers() -> dict[str, Any]:
        return {"fast": fo.AdamOptimizer(0.1), "slow": fo.AdamOptimizer(0.01)}

    w, first = fo.Variable(np.ones(3), name="w"), optimizers()
    first["fast"].apply_gradients([(np.ones(3), w)])
    first["slow"].apply_gradients([(np.full(3, 7.0), w)])
    path = fo.checkpoint.save(tmp_path / "c", first, [w])
    assert fo.checkpoint.open(path).optimizers["slow"].slots["m"] == {"w": "w/Adam_2"}
    with fo.Graph().as_default():
        w2, second = fo.Variable(np.ones(3), name="w"), optimizers()
        for key in ("slow", "fast"):
            second[key].apply_gradients([(np.ones(3), w2)])
        assert second["slow"].get_slot(w2, "m").name == "w/Adam"
        fo.checkpoint.restore(path, second, [w2])
        for key in first:
            for slot in ("m", "v"):
                expected, found = first[key].get_slot(w, slot), second[key].get_slot(w2, slot)
                np.testing.assert_array_equal(found.numpy(), expected.numpy())
    with pytest.raises(ValueError, match="two are named 'Adam'"):
        fo.checkpoint.save(tmp_path / "c", list(first.values()))


def test_variables_under_other_names(tmp_path: Path) -> None:
    (w,), optimizer = trained(lambda: fo.AdagradOptimizer(0.1), "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer, {"encoder/w": w})
    assert sorted(fo.checkpoint.open(path)) == ["encoder/w", "encoder/w/Adagrad"]
    (other,), resumed = fresh(lambda: fo.AdagradOptimizer(0.1), "other")
    fo.checkpoint.restore(path, resumed, {"encoder/w": other})
    np.testing.assert_array_equal(other.numpy(), w.numpy())
    expected, found = optimizer.get_slot(w, "accumulator"), resumed.get_slot(other, "accumulator")
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_a_slot_is_no_variable(tmp_path: Path) -> None:
    (w,), optimizer = trained(lambda: fo.AdagradOptimizer(0.1), "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    with pytest.raises(ValueError, match=r"variable 'w/Adagrad' \(in the file it is 'accumulator'"):
        fo.checkpoint.restore(path, variables=[w, optimizer.get_slot(w, "accumulator")])


def test_a_power_is_no_variable(tmp_path: Path) -> None:
    (w,), optimizer = trained(lambda: fo.AdamOptimizer(0.1), "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    wanted = {"w": w, "beta1_power": fo.Variable(np.ones(()))}
    with pytest.raises(ValueError, match=r"'beta1_power' \(in the file it belongs to .*'Adam'\)"):
        fo.checkpoint.restore(path, variables=wanted)


def test_slots_of_variables_that_are_not_saved_are_not_either(tmp_path: Path) -> None:
    (a, _), optimizer = trained(lambda: fo.AdagradOptimizer(0.1), "a", "b")
    path = fo.checkpoint.save(tmp_path / "c", optimizer, [a])
    assert sorted(fo.checkpoint.open(path)) == ["a", "a/Adagrad"]


# ------------------------------------------------------------------ arguments


def test_bad_arguments(tmp_path: Path) -> None:
    w = fo.Variable(np.ones(3), name="w")
    optimizer = fo.AdamOptimizer()
    target = tmp_path / "c"
    bad: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"optimizers": w}, TypeError, "."),
        ({"optimizers": [w]}, TypeError, "optimizers must be of type Optimizer"),
        ({"optimizers": {1: optimizer}}, TypeError, "name must be a string"),
        ({"variables": [np.ones(3)]}, TypeError, "variables must be fastopt Variables"),
        ({"variables": {1: w}}, TypeError, "name must be a string"),
        ({"averages": [w]}, TypeError, "averages must be of type"),
        ({"extra": {1: 2}}, TypeError, "extra has the key 1"),
        ({"extra": {"a": [np.ones(2)]}}, TypeError, r"extra\['a'\]\[0\] must be"),
        ({"extra": (1, 2)}, TypeError, "extra must be"),
        ({"step": 1.5}, TypeError, "step must be an int"),
        ({"step": True}, TypeError, "step must be an int"),
        ({"variables": {"__metadata__": w}}, ValueError, "__metadata__"),
    ]
    for arguments, error, message in bad:
        with pytest.raises(error, match=message):
            fo.checkpoint.save(target, **arguments)
    assert not list(tmp_path.iterdir())


def test_a_step_that_cannot_be_told(tmp_path: Path) -> None:
    counter = fo.Variable(2.5, name="global_step", trainable=False)
    path = fo.checkpoint.save(tmp_path / "c", variables=[counter])
    assert fo.checkpoint.open(path).step is None
    assert fo.checkpoint.open(fo.checkpoint.save(path, variables=[counter], step=3)).step == 3


def test_equal_names(tmp_path: Path) -> None:
    w = fo.Variable(np.ones(3), name="w")
    with fo.Graph().as_default():
        other = fo.Variable(np.ones(3), name="w")
    with pytest.raises(ValueError, match="two variables are named 'w'"):
        fo.checkpoint.save(tmp_path / "c", variables=[w, other])
    optimizer = fo.AdagradOptimizer(0.1)
    optimizer.apply_gradients([(np.ones(3), w)])
    with pytest.raises(
        ValueError, match="two tensors of the checkpoint would be named 'w/Adagrad'"
    ):
        fo.checkpoint.save(tmp_path / "c", optimizer, {"w": w, "w/Adagrad": other})
    fo.checkpoint.save(tmp_path / "c", optimizer, [w, w])
    wrapper = fo.GradientAccumulation(fo.AdagradOptimizer(0.1), 2)
    with pytest.raises(ValueError, match="'a/base_optimizer' is a part of another one"):
        fo.checkpoint.save(tmp_path / "c", {"a": wrapper, "a/base_optimizer": optimizer})
    other_graph = fo.AdamOptimizer()
    for var in (w, other):
        other_graph.apply_gradients([(np.ones(3), var)])
    with pytest.raises(ValueError, match=r"several graphs and has 'beta1_power' for each"):
        fo.checkpoint.save(tmp_path / "c", other_graph, {"w": w, "other": other})


def test_a_safetensors_file_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"w": np.full(3, 2.0, np.float32)}, path)
    w = fo.Variable(np.zeros(3, np.float32), name="w")
    done = fo.checkpoint.restore(path, variables=[w])
    assert (done.variables, done.step, done.extra) == (("w",), None, None)
    assert w.numpy().tolist() == [2.0] * 3
    assert fo.checkpoint.open(path).variables == ("w",)
    with pytest.raises(ValueError, match="missing: optimizer 'Adam'"):
        fo.checkpoint.restore(path, fo.AdamOptimizer(), [w])
