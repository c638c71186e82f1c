"""One library in a process of its own, driven turn by turn over a pipe.

Run by `bench.driver` as ``python worker.py PEER THREADS``; reads commands, one JSON object a line,
from standard input and answers each on the standard output that it was started with. What the
library prints goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO


def _claim_stdout() -> TextIO:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


# A virtual processor that has been idle takes its time to be quick again, and most while much
# is done on the other one alone: the second thread of a training helps in full only after a quarter
# of a second, which a training doesn't notice that has no pauses.
WARM_SECONDS = 0.06
WARM_SECONDS_OF_TRAINING = 0.3


class Worker:
    """The contestants of one library, by name."""

    def __init__(self, key: str, threads: int) -> None:
        from bench import peers

        self._threads = threads
        self._module = peers.load(key)
        start = getattr(self._module, "start", None)
        if start is not None:
            start(threads)
        self._builders: Any = {}
        self._clocks: dict[str, Any] = {}

    def open(self, work: dict[str, Any]) -> dict[str, Any]:
        from bench.workloads import from_json

        self._builders = self._module.builders(from_json(work), self._threads)
        return {"names": list(self._builders)}

    def prepare(self, name: str) -> dict[str, Any]:
        from bench.clock import Clock

        contestant, warm = self._builders[name](), 0.0
        if self._threads > 1:
            warm = WARM_SECONDS_OF_TRAINING if contestant.steps_to_loss else WARM_SECONDS
        clock = Clock(contestant, warm=warm)
        answer = clock.warm_up()
        self._clocks[name] = clock
        return answer

    def turn(self, name: str, seconds: float) -> dict[str, Any]:
        return {"times": self._clocks[name].turn(seconds)}

    def memory(self, name: str) -> dict[str, Any]:
        """Do a step and tell how much memory it took on top, and how much the process holds."""
        from bench.clock import memory_mb, reset_peak

        clock = self._clocks[name]
        gc.collect()
        reset_peak()
        before = memory_mb("VmRSS")
        clock.turn(0.0)
        peak = memory_mb("VmHWM")
        extra = None if before is None or peak is None else max(0.0, peak - before)
        return {"peak_extra_mb": extra, "resident_mb": before}

    def close(self, all: bool) -> dict[str, Any]:
        """Forget the prepared contestants, or the whole workload."""
        self._clocks.clear()
        if all:
            self._builders = {}
        gc.collect()
        return {}


def main(key: str, threads: int) -> None:
    """Answer commands until the input ends."""
    answers = _claim_stdout()

    def answer(record: dict[str, Any]) -> None:
        answers.write(json.dumps(record) + "\n")
        answers.flush()

    from bench.contestant import Unsupported

    try:
        worker = Worker(key, threads)
    except BaseException as error:  # whatever a library does on import, it is absent then
        answer({"error": f"{type(error).__name__}: {error}"})
        return
    answer({})
    for line in sys.stdin:
        command = json.loads(line)
        method = command.pop("do")
        try:
            answer(getattr(worker, method)(**command))
        except Unsupported as error:
            answer({"unsupported": str(error)})
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    root = str(Path(__file__).resolve().parents[1])
    # Behind the installed packages, unless the driver itself runs fastopt from the checkout.
    sys.path.insert(0 if os.environ.get("BENCH_CHECKOUT") else len(sys.path), root)
    main(sys.argv[1], int(sys.argv[2]))
