"""Training from several Python threads at once: what the second thread brings."""

from __future__ import annotations

from bench.workloads import Hogwild


def full() -> list[Hogwild]:
    return [Hogwild(f"hogwild/{batch}", batch) for batch in (4_096, 16_384)]


def quick() -> list[Hogwild]:
    return full()[:1]
