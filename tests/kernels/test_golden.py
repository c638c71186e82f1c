"""TensorFlow's own numbers, at the level of plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastopt._kernels._plan import Plan
from fastopt._kernels.rules import RULES
from tests.kernels.support import Key, Slices, kernel_of, scalars_of

GOLDEN = Path(__file__).parents[1] / "golden"
PREFIXES = ("gradient_descent", "momentum", "adagrad", "adam", "lazy_adam", "ftrl")


def runs() -> list[tuple[str, str]]:
    """List file and dtype of all that is recorded."""
    paths = sorted(path for prefix in PREFIXES for path in GOLDEN.glob(f"{prefix}__*.npz"))
    found = []
    for path in paths:
        with np.load(path) as data:
            dtypes = {name.split("/")[0] for name in data.files}
        found += [(path.name, dtype) for dtype in sorted(dtypes & {"float32", "float64"})]
    return found


RULE_OF = {
    "GradientDescent": "gradient_descent",
    "Momentum": "momentum",
    "Adagrad": "adagrad",
    "Adam": "adam",
    "LazyAdam": "adam",
    "Ftrl": "ftrl",
}
SHORT = {
    "l1_regularization_strength": "l1",
    "l2_regularization_strength": "l2",
    "l2_shrinkage_regularization_strength": "shrinkage",
}
# What an independent NumPy program meets on every array of these files (eight steps or fewer; in
# float32 TensorFlow uses a reciprocal square root of its own rounding).
TOLERANCE = {
    "float32": {"rtol": 2e-5, "atol": 2e-6},
    "float64": {"rtol": 1e-11, "atol": 0.0},
}


def hyperparameters(meta: dict[str, Any]) -> dict[str, Any]:
    """As TensorFlow used them: most were rounded to float32 on their way."""
    detour = meta.get("hyperparameter_dtype") != "variable dtype"
    hyper = {
        SHORT.get(name, name): float(np.float32(value)) if detour and value is not True else value
        for name, value in meta["hyperparameters"].items()
        if name != "initial_accumulator_value"
    }
    if detour and "beta" in hyper:  # added to l2 in float32
        lr, beta, l2 = (np.float32(hyper.get(name, 0)) for name in ("learning_rate", "beta", "l2"))
        hyper.update(l2=float(l2 + beta / (2 * lr)), beta=0.0)
    return hyper


@pytest.mark.parametrize(("name", "dtype"), runs())
def test_every_step_of_every_case(name: str, dtype: str) -> None:
    data = np.load(GOLDEN / name)
    meta = json.loads(str(data["meta"]))
    rule = RULE_OF[meta["optimizer"]]
    hyper = hyperparameters(meta)
    cases = {key.split("/")[1] for key in data.files if key.startswith(dtype)}
    for case in sorted(cases):
        run_case(
            data,
            f"{dtype}/{case}",
            rule,
            hyper,
            TOLERANCE[dtype],
            lazy=meta["optimizer"] == "LazyAdam",
        )


def run_case(
    data: Any, at: str, rule: str, hyper: dict[str, Any], tolerance: dict[str, float], lazy: bool
) -> None:
    expected = data[f"{at}/var"]
    kernel = kernel_of(rule, hyper)
    w = expected[0].copy()
    slots = tuple(data[f"{at}/slot/{name}"][0].copy() for name in RULES[kernel].slots)
    key = Key()
    untouched = "update" if rule == "adam" and not lazy else "skip"
    plan = Plan(kernel, [key], [w], [slots], Slices, untouched)
    dense = sparse = 0
    hyper = dict(hyper)
    for t, kind in enumerate(data[f"{at}/kind"]):
        gradient: Any
        if kind == 0:
            gradient = data[f"{at}/grads"][dense]
            dense += 1
        else:
            lo, hi = data[f"{at}/offsets"][sparse : sparse + 2]
            gradient = Slices(data[f"{at}/values"][lo:hi], data[f"{at}/indices"][lo:hi])
            sparse += 1
        if rule == "adam":
            for power in ("beta1_power", "beta2_power"):
                hyper[power] = float(data[f"{at}/nonslot/{power}"][t])
        assert plan.bind([(gradient, key)])
        plan.run(scalars_of(rule, hyper))
        plan.release()
        np.testing.assert_allclose(w, expected[t + 1], err_msg=f"{at} step {t}", **tolerance)
        for slot, slot_name in zip(slots, RULES[kernel].slots, strict=True):
            np.testing.assert_allclose(
                slot,
                data[f"{at}/slot/{slot_name}"][t + 1],
                err_msg=f"{at} {slot_name} {t}",
                **tolerance,
            )
