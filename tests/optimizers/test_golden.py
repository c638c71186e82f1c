"""The numbers of TensorFlow itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests.optimizer_db import RECORDS, Record

GOLDEN = Path(__file__).parents[1] / "golden"

# What several float32 operations a step leave over eight steps, where TensorFlow's order of them
# differs.
TOLERANCE = {"float32": {"rtol": 2e-5, "atol": 2e-6}, "float64": {"rtol": 1e-11, "atol": 1e-13}}

# Where TensorFlow computes a number of the step in float32 for float64 variables too. Adam's powers
# are recorded, and taken from the record below; FTRL's beta / lr is not: a rounding of 6e-8.
FLOAT32_INSIDE = {
    "ftrl__beta": {"rtol": 1e-6, "atol": 1e-9},
    "ftrl__all": {"rtol": 1e-6, "atol": 1e-9},
}


def cases() -> Iterator[Any]:
    for record in RECORDS:
        for name in record.golden:
            with np.load(GOLDEN / f"{name}.npz") as data:
                found = sorted({key.rpartition("/")[0].partition("/slot")[0] for key in data.files})
            for case in found:
                if case.startswith(("float32/", "float64/")) and case.count("/") == 1:
                    yield pytest.param(record, name, case, id=f"{name}-{case}")


def hyperparameters(meta: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Return the arguments as TensorFlow used them: most were rounded to float32 first."""
    given = {name.replace("beta_", "beta"): x for name, x in meta["hyperparameters"].items()}
    if meta.get("hyperparameter_dtype") == "variable dtype":
        return given
    exact = {"weight_decay"} | {name for name in given if name.startswith("initial")}
    if meta.get("optimizer", "").startswith("Keras"):
        exact.add("epsilon")
    return {
        name: float(np.float32(value)) if isinstance(value, float) and name not in exact else value
        for name, value in given.items()
    }


@pytest.mark.parametrize(("record", "name", "case"), list(cases()))
@pytest.mark.parametrize("threads", [1, 2])
def test_golden(record: Record, name: str, case: str, threads: int) -> None:
    dtype = case.partition("/")[0]
    with np.load(GOLDEN / f"{name}.npz") as data:
        meta = json.loads(str(data["meta"]))
        arrays = {
            key.removeprefix(case + "/"): data[key]
            for key in data.files
            if key.startswith(case + "/")
        }
    tolerance = TOLERANCE[dtype]
    if dtype == "float64" and name in FLOAT32_INSIDE:
        tolerance = FLOAT32_INSIDE[name]
    given = {**hyperparameters(meta, dtype), **record.golden_arguments.get(name, {})}
    step_counter = None
    if "global_step" in arrays:  # one that the rule reads
        step_counter = fo.Variable(np.int64(0), trainable=False, name="step")
        given["global_step"] = step_counter
    optimizer = record.cls(**given)
    var = fo.Variable(arrays["var"][0], name="var")
    gradients = _gradients(arrays, var.shape)
    slots = [key.removeprefix("slot/") for key in arrays if key.startswith("slot/")]
    assert set(slots) <= set(record.slots)
    assert "tensorflow" not in meta or len(slots) == len(record.slots)
    with fo.num_threads(threads), np.errstate(invalid="ignore"):
        for step, gradient in enumerate(gradients, 1):
            optimizer.apply_gradients([(gradient, var)], global_step=step_counter)
            where = f"after step {step}"
            np.testing.assert_allclose(var.numpy(), arrays["var"][step], err_msg=where, **tolerance)
            for slot in slots:
                np.testing.assert_allclose(
                    optimizer.get_slot(var, slot).numpy(),
                    arrays[f"slot/{slot}"][step],
                    err_msg=f"{slot} {where}",
                    **tolerance,
                )
            for key in arrays:
                if key.startswith("nonslot/") and key != "nonslot/iter":
                    kept = optimizer._get_non_slot_variable(key.removeprefix("nonslot/"))
                    np.testing.assert_allclose(kept.numpy(), arrays[key][step], rtol=1e-6)
                    # What TensorFlow has in float32 is here in float64. With its own numbers the
                    # rest of the step can be compared to the last digits.
                    kept.assign(arrays[key][step])


def _gradients(arrays: dict[str, Any], shape: tuple[int, ...]) -> Iterator[Any]:
    dense = iter(arrays.get("grads", ()))
    sparse = 0
    for kind in arrays["kind"]:
        if kind == 0:
            yield next(dense)
        else:
            lo, hi = arrays["offsets"][sparse : sparse + 2]
            yield fo.IndexedSlices(arrays["values"][lo:hi], arrays["indices"][lo:hi], shape)
            sparse += 1


def test_slot_names_are_tensorflows() -> None:
    for record in RECORDS:
        if not record.golden:
            continue  # not one of TensorFlow's
        with np.load(GOLDEN / f"{record.golden[0]}.npz") as data:
            meta = json.loads(str(data["meta"]))
        if "slot_variable_names" not in meta:
            continue  # composed of TensorFlow's operations, not one of its classes
        if record.cls.__name__ != f"{meta['optimizer']}Optimizer":
            continue  # another class, whose numbers ours has too
        with fo.Graph().as_default():
            var = fo.Variable(np.ones(2), name="var")
            optimizer = record.make()
            optimizer.apply_gradients([(np.ones(2), var)])
            names = {
                slot: optimizer.get_slot(var, slot).name for slot in optimizer.get_slot_names()
            }
        assert names == meta["slot_variable_names"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_adam_over_two_variables_of_which_some_are_absent(dtype: str) -> None:
    with np.load(GOLDEN / "adam_two_vars.npz") as data:
        meta = json.loads(str(data["meta"]))
        arrays = {key.partition("/")[2]: data[key] for key in data.files if key.startswith(dtype)}
    tolerance = TOLERANCE[dtype]
    optimizer = fo.AdamOptimizer(**hyperparameters(meta, dtype))
    a = fo.Variable(arrays["var_a"][0], name="a")
    b = fo.Variable(arrays["var_b"][0], name="b")
    for step, (has_a, has_b) in enumerate(arrays["present"]):
        slices = fo.IndexedSlices(arrays["values_b"][step], arrays["indices_b"][step], b.shape)
        optimizer.apply_gradients(
            [(arrays["grads_a"][step] if has_a else None, a), (slices if has_b else None, b)]
        )
        np.testing.assert_allclose(a.numpy(), arrays["var_a"][step + 1], **tolerance)
        np.testing.assert_allclose(b.numpy(), arrays["var_b"][step + 1], **tolerance)
        powers = [optimizer._get_non_slot_variable(f"beta{k}_power").numpy().item() for k in (1, 2)]
        np.testing.assert_allclose(powers, arrays["beta_powers"][step], rtol=1e-6)
        for k in (1, 2):
            kept = optimizer._get_non_slot_variable(f"beta{k}_power")
            kept.assign(arrays["beta_powers"][step][k - 1])
    for slot in ("m", "v"):
        for var, name in ((a, "a"), (b, "b")):
            kept = optimizer.get_slot(var, slot).numpy()
            np.testing.assert_allclose(kept, arrays[f"slot_{name}/{slot}"], **tolerance)
