"""FBGEMM's table-batched embeddings on the CPU: backward and update are one call."""

from __future__ import annotations

import itertools
from typing import Any

import fbgemm_gpu  # noqa: F401 - registers its operators
import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    EmbeddingLocation,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from bench import data, models
from bench.contestant import Builders, Contestant
from bench.peers.pytorch import adagrad, network
from bench.workloads import Clicks, Lookup, Sparse, Workload

RATE = 1e-3
RULES = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}


def start(threads: int) -> None:
    torch.set_num_threads(threads)


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case Sparse() if work.rule in RULES and work.width % 4 == 0:
            return {"FBGEMM": lambda: _sparse(work)}
        case Lookup(task="gather" | "pooled" | "pooled_update"):
            return {"FBGEMM": lambda: _lookup(work)}
        case Clicks():
            return {
                "FBGEMM Adagrad": lambda: _clicks(work, "adagrad"),
                "FBGEMM row-wise Adagrad": lambda: _clicks(work, "rowwise_adagrad"),
            }
    return {}


def _embeddings(rows: int, width: int, rule: str, rate: float = RATE, count: int = 1) -> Any:
    return SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, width, EmbeddingLocation.HOST, ComputeDevice.CPU)] * count,
        optimizer=RULES[rule],
        learning_rate=rate,
        pooling_mode=PoolingMode.SUM,
    )


def _sparse(work: Sparse) -> Contestant:
    """Backward with the update; the forward pass that it needs isn't timed."""
    embeddings = _embeddings(work.rows, work.width, work.rule)
    ids = torch.from_numpy(data.ids(work.ids, work.rows, work.lookups))
    offsets = torch.arange(work.lookups + 1)
    gradient = torch.from_numpy(data.numbers((work.lookups, work.width)))
    state: dict[str, torch.Tensor] = {}

    def forward() -> None:
        state["out"] = embeddings(ids, offsets)

    return Contestant(lambda: state["out"].backward(gradient), before=forward)


def _lookup(work: Lookup) -> Contestant:
    updates = work.task == "pooled_update"
    embeddings = _embeddings(work.rows, work.width, "adagrad" if updates else "sgd")
    ids = torch.from_numpy(data.ids(work.ids, work.rows, work.lookups))
    offsets = torch.arange(0, work.lookups + 1, work.bag)
    weights = torch.from_numpy(data.numbers((work.lookups,), 3)) if work.bag > 1 else None

    def look_up() -> None:
        with torch.no_grad():
            embeddings(ids, offsets, per_sample_weights=weights)

    if not updates:
        return Contestant(look_up)
    above = torch.from_numpy(data.numbers((work.lookups // work.bag, work.width), 4))
    return Contestant(lambda: embeddings(ids, offsets, per_sample_weights=weights).backward(above))


def _clicks(work: Clicks, rule: str) -> Contestant:
    task = models.ClickTask(work)
    embeddings = _embeddings(work.rows, work.width, rule, models.LEARNING_RATE, work.columns)
    first = torch.from_numpy(task.tables()).reshape(work.columns, work.rows, work.width)
    for weights, values in zip(embeddings.split_embedding_weights(), first, strict=True):
        weights.copy_(values)
    for state in embeddings.split_optimizer_states():
        state[0].fill_(models.INITIAL_ACCUMULATOR)
    net = network(task.layers())
    theirs = adagrad(net.parameters(), fused=True)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    offsets = torch.arange(work.columns * work.batch + 1)
    batches = []
    for k in range(models.BATCHES + 1):
        ids, dense, labels = task.batch(k)
        columns = torch.from_numpy(np.ascontiguousarray(ids.T).reshape(-1))
        batches.append((columns, torch.from_numpy(dense), torch.from_numpy(labels)))

    def logits(columns: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        return net(torch.cat([embeddings(columns, offsets), dense], 1))

    turn = itertools.cycle(batches[: models.BATCHES])

    def step() -> None:
        columns, dense, labels = next(turn)
        theirs.zero_grad()
        cross_entropy(logits(columns, dense), labels).backward()
        theirs.step()

    def loss() -> float:
        columns, dense, labels = batches[-1]
        with torch.no_grad():
            return models.log_loss(labels.numpy(), logits(columns, dense).numpy())

    return Contestant(step, loss=loss, steps_to_loss=models.BATCHES)
