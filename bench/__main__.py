"""Measures fastopt against the peers that are installed; prints one table in Markdown.

Only ratios taken within one run count, since other programs share the memory: the libraries take
turns, and the table shows medians, the range of the middle 80 %, and each time in ours.
"""

from __future__ import annotations

import argparse
import platform
import time

import numpy as np
from scenarios import SCENARIOS, Steps, torch

import fastopt as fo


def measure(steps: Steps, seconds: float) -> dict[str, np.ndarray]:
    """Time single steps, in turn, in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["fastopt"]) < 5:
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append((time.perf_counter() - start) * 1e6)
    return {name: np.array(series) for name, series in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--seconds", type=float, default=2.0, help="for a row (default: 2)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, fo.get_num_threads()])
    options = parser.parse_args()
    unknown = set(options.names) - set(SCENARIOS)
    if unknown:
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")

    config = fo.show_config("dicts")
    peers = [f"NumPy {np.__version__}", *([f"PyTorch {torch.__version__}"] if torch else [])]
    print(f"fastopt {fo.__version__} ({config['kernels']['level']}), {', '.join(peers)};")
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}\n")
    print("| scenario | threads | library | median µs | middle 80 % | times fastopt |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    for name in options.names or SCENARIOS:
        steps = SCENARIOS[name]()
        for threads in sorted(set(options.threads)):
            fo.set_num_threads(threads)
            if torch is not None:
                torch.set_num_threads(threads)
            measured = measure(steps, options.seconds)
            ours = np.median(measured["fastopt"])
            for library, series in measured.items():
                low, median, high = np.percentile(series, [10, 50, 90])
                print(
                    f"| {SCENARIOS[name].__doc__.rstrip('.')} | {threads} | {library} "
                    f"| {median:,.1f} | {low:,.1f} to {high:,.1f} | {median / ours:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
