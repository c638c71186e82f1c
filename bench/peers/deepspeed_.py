"""DeepSpeed's CPUAdam and CPUAdagrad; compiled for this machine on first use (needs ninja)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam

from bench import data
from bench.contestant import Builders, Contestant
from bench.workloads import Dense, Workload

RATE = 1e-3
BUILD_SECONDS = 300.0


def start(threads: int) -> None:
    torch.set_num_threads(threads)
    # A build that was killed leaves a lock for which the next one would wait for ever.
    for lock in Path(os.environ["TORCH_EXTENSIONS_DIR"]).glob("*/lock"):
        if time.time() - lock.stat().st_mtime > BUILD_SECONDS:
            lock.unlink()


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case Dense(rule="adam" | "adamw" | "adagrad"):
            return {"DeepSpeed": lambda: _dense(work)}
    return {}


def _dense(work: Dense) -> Contestant:
    parameters = []
    for k in range(work.count):
        parameter = torch.nn.Parameter(torch.from_numpy(data.numbers((work.size,))))
        parameter.grad = torch.from_numpy(data.numbers((work.size,), k + 1))
        parameters.append(parameter)
    if work.rule == "adagrad":
        return Contestant(DeepSpeedCPUAdagrad(parameters, lr=RATE).step)
    return Contestant(DeepSpeedCPUAdam(parameters, lr=RATE, adamw_mode=work.rule == "adamw").step)
