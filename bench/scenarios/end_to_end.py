"""Whole training steps: look-up, loss, gradients by autodiff, update."""

from __future__ import annotations

from bench.workloads import Clicks, Factorisation, LinearFtrl, Word2vec, Workload

BATCHES = (2_048, 8_192)


def full() -> list[Workload]:
    return [
        *[Clicks(f"end_to_end/clicks/{batch}", batch) for batch in BATCHES],
        *[LinearFtrl(f"end_to_end/linear/{batch}", batch) for batch in BATCHES],
        Factorisation("end_to_end/factorisation/4096", 4_096),
        Word2vec("end_to_end/word2vec"),
    ]


def quick() -> list[Workload]:
    wanted = ("end_to_end/clicks/2048", "end_to_end/linear/2048")
    return [work for work in full() if work.name in wanted]
