"""PyTorch: fused, foreach and single-tensor optimizers, and those for sparse gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bench import data, models
from bench.contestant import Builders, Contestant
from bench.workloads import (
    Aggregation,
    Clicks,
    Dense,
    Factorisation,
    Lookup,
    Sparse,
    Workload,
)

RATE = 1e-3
optim = torch.optim
RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p, **k: optim.SGD(p, lr=RATE, **k),
    "momentum": lambda p, **k: optim.SGD(p, lr=RATE, momentum=0.9, **k),
    "adagrad": lambda p, **k: optim.Adagrad(p, lr=RATE, initial_accumulator_value=0.1, **k),
    "rmsprop": lambda p, **k: optim.RMSprop(p, lr=RATE, **k),
    "adam": lambda p, **k: optim.Adam(p, lr=RATE, **k),
    "adamw": lambda p, **k: optim.AdamW(p, lr=RATE, **k),
}
UNFUSED = ("rmsprop",)
SPARSE: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": RULES["sgd"],
    "adagrad": RULES["adagrad"],
    "lazy_adam": lambda p: optim.SparseAdam(p, lr=RATE),
}


def start(threads: int) -> None:
    torch.set_num_threads(threads)


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case Dense() if work.rule in RULES:
            ways = {
                "PyTorch fused": {"fused": True},
                "PyTorch foreach": {"foreach": True},
                "PyTorch single": {"foreach": False},
            }
            if work.rule in UNFUSED:
                del ways["PyTorch fused"]
            return {name: lambda how=how: _dense(work, how) for name, how in ways.items()}
        case Sparse() if work.rule in SPARSE:
            found = {f"PyTorch {_title(work.rule)}": lambda: _sparse(work)}
            if work.rule == "sgd":
                found["PyTorch index_add_"] = lambda: _index_add(work)
            return found
        case Aggregation(task="add_n" | "clip" | "coalesce"):
            return {"PyTorch": lambda: _aggregation(work)}
        case Lookup():
            return {"PyTorch": lambda: _lookup(work)}
        case Clicks():
            return {
                "PyTorch, 26 EmbeddingBags": lambda: _clicks(work, merged=False),
                "PyTorch, one Embedding": lambda: _clicks(work, merged=True),
            }
        case Factorisation():
            return {"PyTorch": lambda: _factorisation(work)}
    return {}


def _title(rule: str) -> str:
    return {"sgd": "SGD", "adagrad": "Adagrad", "lazy_adam": "SparseAdam"}[rule] + " sparse"


def _dense(work: Dense, how: dict[str, bool]) -> Contestant:
    parameters = []
    for k in range(work.count):
        parameter = torch.nn.Parameter(torch.from_numpy(data.numbers((work.size,))))
        parameter.grad = torch.from_numpy(data.numbers((work.size,), k + 1))
        parameters.append(parameter)
    return Contestant(RULES[work.rule](parameters, **how).step)


def _table(work: Sparse) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.full((work.rows, work.width), 0.1))


def _sparse(work: Sparse) -> Contestant:
    table = _table(work)
    turn = itertools.cycle([torch.from_numpy(ids)[None] for ids in data.batches_of_ids(work)])
    values = torch.from_numpy(data.numbers((work.lookups, work.width)))
    theirs = SPARSE[work.rule]([table])

    def step() -> None:
        table.grad = torch.sparse_coo_tensor(
            next(turn), values, table.shape, check_invariants=False
        )
        theirs.step()

    return Contestant(step)


def _index_add(work: Sparse) -> Contestant:
    table = _table(work).detach()
    ids = torch.from_numpy(data.ids(work.ids, work.rows, work.lookups))
    values = torch.from_numpy(data.numbers((work.lookups, work.width)))
    return Contestant(lambda: table.index_add_(0, ids, values, alpha=-RATE))


def _aggregation(work: Aggregation) -> Contestant:
    if work.task == "coalesce":
        ids = torch.from_numpy(data.ids(work.ids, work.size, work.count))[None]
        values = torch.from_numpy(data.numbers((work.count, work.width)))
        shape = (work.size, work.width)
        return Contestant(
            lambda: torch.sparse_coo_tensor(ids, values, shape, check_invariants=False).coalesce()
        )
    dense = [torch.from_numpy(data.numbers((work.size,), k + 1)) for k in range(work.count)]

    def add_n() -> None:
        total = dense[0] + dense[1]
        for term in dense[2:]:
            total += term

    if work.task == "add_n":
        return Contestant(add_n)
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in dense]
    for parameter, g in zip(parameters, dense, strict=True):
        parameter.grad = g
    clip = torch.nn.utils.clip_grad_norm_
    return Contestant(lambda: clip(parameters, 1e-3, foreach=True))


def _lookup(work: Lookup) -> Contestant:
    table = torch.from_numpy(data.numbers((work.rows, work.width)))
    ids = torch.from_numpy(data.ids(work.ids, work.rows, work.lookups))
    functional = torch.nn.functional
    if work.task == "gather":
        return Contestant(lambda: functional.embedding(ids, table))
    offsets = torch.arange(0, work.lookups, work.bag)
    weights = torch.from_numpy(data.numbers((work.lookups,), 3))
    above = torch.from_numpy(data.numbers((work.lookups // work.bag, work.width), 4))
    parameter = torch.nn.Parameter(table, requires_grad=work.task != "pooled")

    def pooled() -> torch.Tensor:
        return functional.embedding_bag(
            ids, parameter, offsets, mode="sum", sparse=True, per_sample_weights=weights
        )

    def with_gradient() -> None:
        parameter.grad = None
        pooled().backward(above)

    def update() -> None:
        with_gradient()
        theirs.step()

    theirs = SPARSE["adagrad"]([parameter])
    steps = {"pooled": pooled, "pooled_gradient": with_gradient, "pooled_update": update}
    return Contestant(steps[work.task])


def network(layers: list[tuple[np.ndarray, np.ndarray]]) -> torch.nn.Sequential:
    """Return the layers as PyTorch modules, with ReLU between them."""
    modules: list[torch.nn.Module] = []
    for weight, bias in layers:
        linear = torch.nn.Linear(*weight.shape)
        linear.weight.data = torch.from_numpy(weight.T.copy())
        linear.bias.data = torch.from_numpy(bias)
        modules += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*modules[:-1])


def adagrad(parameters: Any, **how: bool) -> torch.optim.Optimizer:
    """Return Adagrad with the numbers of the end-to-end tasks."""
    return optim.Adagrad(
        parameters,
        lr=models.LEARNING_RATE,
        initial_accumulator_value=models.INITIAL_ACCUMULATOR,
        **how,
    )


def _clicks(work: Clicks, merged: bool) -> Contestant:
    task = models.ClickTask(work)
    tables = torch.from_numpy(task.tables())
    net = network(task.layers())
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    embedding: torch.nn.Module
    if merged:
        embedding = torch.nn.Embedding.from_pretrained(tables, freeze=False, sparse=True)
    else:
        embedding = torch.nn.ModuleList(
            torch.nn.EmbeddingBag.from_pretrained(part, freeze=False, mode="sum", sparse=True)
            for part in tables.reshape(work.columns, work.rows, work.width).unbind()
        )
    optimizers = [adagrad(embedding.parameters()), adagrad(net.parameters(), fused=True)]
    offsets = torch.arange(work.batch)
    batches = []
    for k in range(models.BATCHES + 1):
        ids, dense, labels = task.batch(k)
        if merged:
            columns = torch.from_numpy(ids + task.offsets)
        else:
            columns = torch.from_numpy(np.ascontiguousarray(ids.T))
        batches.append((columns, torch.from_numpy(dense), torch.from_numpy(labels)))

    def logits(columns: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        if merged:
            rows = [embedding(columns).view(work.batch, -1)]
        else:
            rows = [table(columns[f], offsets) for f, table in enumerate(embedding)]
        return net(torch.cat([*rows, dense], 1))

    turn = itertools.cycle(batches[: models.BATCHES])

    def step() -> None:
        columns, dense, labels = next(turn)
        for optimizer in optimizers:
            optimizer.zero_grad()
        cross_entropy(logits(columns, dense), labels).backward()
        for optimizer in optimizers:
            optimizer.step()

    def loss() -> float:
        columns, dense, labels = batches[-1]
        with torch.no_grad():
            return models.log_loss(labels.numpy(), logits(columns, dense).numpy())

    return Contestant(step, loss=loss, steps_to_loss=models.BATCHES)


def _factorisation(work: Factorisation) -> Contestant:
    task = models.RatingTask(work)
    users, items = (
        torch.nn.Embedding.from_pretrained(torch.from_numpy(x), freeze=False, sparse=True)
        for x in task.factors()
    )
    theirs = adagrad([users.weight, items.weight])
    batches = [tuple(map(torch.from_numpy, task.batch(k))) for k in range(models.BATCHES)]
    turn = itertools.cycle(batches)

    def step() -> None:
        u, i, ratings = next(turn)
        theirs.zero_grad()
        torch.nn.functional.mse_loss((users(u) * items(i)).sum(1), ratings).backward()
        theirs.step()

    def loss() -> float:
        return task.loss(users.weight.detach().numpy(), items.weight.detach().numpy())

    return Contestant(step, loss=loss, steps_to_loss=models.BATCHES)
