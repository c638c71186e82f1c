"""TensorFlow's numbers for float16 variables.

TensorFlow rounds every operation to float16; here the arithmetic is float32 and only the weights
are rounded. So the two agree to what float16 loses in a step, times the steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests.optimizer_db import RECORDS, Record, fresh_graph
from tests.optimizers.test_golden import GOLDEN, hyperparameters

__all__ = ["fresh_graph"]


def cases() -> Iterator[Any]:
    for record in RECORDS:
        for name in record.golden:
            with np.load(GOLDEN / f"{name}.npz") as data:
                for case in ("dense_vec", "sparse_mat", "sparse_col"):
                    if f"float16/{case}/var" in data.files:
                        yield pytest.param(record, name, case, id=f"{name}-{case}")


def gradients(arrays: dict[str, Any], shape: tuple[int, ...]) -> Iterator[Any]:
    dense, sparse = iter(arrays["grads"]) if "grads" in arrays else iter(()), 0
    for kind in arrays["kind"]:
        if kind == 0:
            yield next(dense)
        else:
            lo, hi = arrays["offsets"][sparse : sparse + 2]
            yield fo.IndexedSlices(arrays["values"][lo:hi], arrays["indices"][lo:hi], shape)
            sparse += 1


@pytest.mark.parametrize(("record", "name", "case"), list(cases()))
def test_golden(record: Record, name: str, case: str) -> None:
    prefix = f"float16/{case}/"
    with np.load(GOLDEN / f"{name}.npz") as data:
        meta = json.loads(str(data["meta"]))
        arrays = {k.removeprefix(prefix): data[k] for k in data.files if k.startswith(prefix)}
    optimizer = record.cls(
        **hyperparameters(meta, "float16"), **record.golden_arguments.get(name, {})
    )
    var = fo.Variable(arrays["var"][0], name="var")
    assert var.dtype == np.float16
    for step, gradient in enumerate(gradients(arrays, var.shape), 1):
        optimizer.apply_gradients([(gradient, var)])
        got, expected = var.numpy().astype(float), arrays["var"][step].astype(float)
        assert np.isfinite(got).all()
        known = np.isfinite(expected)  # Adam's epsilon is 0 in float16: 0 / 0 there
        np.testing.assert_allclose(
            got[known], expected[known], rtol=1e-2, atol=4e-3, err_msg=f"step {step}"
        )
