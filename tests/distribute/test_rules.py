"""Every rule: n replicas do what one does with the n-fold batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt import distribute as fd
from fastopt.distribute import LocalReplicas
from tests.optimizer_db import STEP, Record, every_variant, state_of

ROWS, WIDTH, BATCH, STEPS = 12, 3, 8, 4


def batches() -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(7)
    return [(rng.integers(0, ROWS, BATCH), rng.normal(size=BATCH)) for _ in range(STEPS)]


def model(dtype: Any) -> tuple[fo.Variable, fo.Variable]:
    rng = np.random.default_rng(3)
    table = rng.uniform(0.2, 1.0, (ROWS, WIDTH)).astype(dtype)
    weights = rng.uniform(0.2, 1.0, WIDTH).astype(dtype)
    return fo.Variable(table, name="table"), fo.Variable(weights, name="weights")


def train(record: Record, kwargs: dict[str, Any], dtype: Any, n: int | None) -> dict[str, Any]:
    """Train a look-up and a dense layer; return variables and state, with n replicas or without."""
    with fo.Graph().as_default():
        table, weights = model(dtype)
        opt = record.cls(**kwargs)

        def step(ids: Any, y: Any) -> None:
            opt.minimize(
                lambda: np.mean((fo.embedding_lookup(table, ids) @ weights - y.astype(dtype)) ** 2)
            )

        for ids, y in batches():
            if n is None:
                step(ids, y)
            else:
                strategy = LocalReplicas(n)
                strategy.run(step, (strategy.split(ids), strategy.split(y)))
        variables = [table, weights, *opt.variables()]
        return {var.name: var.numpy() for var in variables}


@every_variant()
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_replicas_do_what_one_does_with_the_whole_batch(
    record: Record, kwargs: dict[str, Any], dtype: Any, n: int
) -> None:
    alone, together = train(record, kwargs, dtype, None), train(record, kwargs, dtype, n)
    # The sums over a batch are rounded in another order: some units in the last place a step, which
    # a division by a small root can make larger.
    tolerance = 1e4 * float(np.finfo(dtype).eps)
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value, rtol=tolerance, atol=tolerance)


@every_variant()
def test_repeated_runs_have_the_same_bits(record: Record, kwargs: dict[str, Any]) -> None:
    runs = [train(record, kwargs, np.float32, 4) for _ in range(4)]
    for other in runs[1:]:
        assert {k: v.tobytes() for k, v in other.items()} == {
            k: v.tobytes() for k, v in runs[0].items()
        }


@every_variant()
def test_the_bits_are_those_of_the_sum(record: Record, kwargs: dict[str, Any]) -> None:
    """One replica that is given the sum, dense, and the rows one after the other, sparse."""
    rng = np.random.default_rng(5)
    dense = [rng.normal(size=WIDTH) for _ in range(3)]
    slices = [
        fo.IndexedSlices(rng.normal(size=(4, WIDTH)), rng.integers(0, ROWS, 4)) for _ in range(3)
    ]
    states = []
    for replicas in (False, True):
        with fo.Graph().as_default():
            table, weights = model(np.float64)
            opt = record.cls(**kwargs)

            def apply(
                opt: Any = opt, table: fo.Variable = table, weights: fo.Variable = weights
            ) -> None:
                context = fd.get_replica_context()
                assert context is not None
                k = context.replica_id_in_sync_group
                opt.apply_gradients([(dense[k], weights), (slices[k], table)])

            for _ in range(2):
                if replicas:
                    LocalReplicas(3).run(apply)
                else:
                    whole = fo.IndexedSlices.concatenate(slices)
                    total = dense[0] + dense[1] + dense[2]
                    opt.apply_gradients([(total, weights), (whole, table)])
            states.append(state_of(opt, table, weights))
    assert states[0] == states[1]


def test_the_step_of_dual_averaging_is_read_and_not_counted() -> None:
    assert STEP.item() == 0
