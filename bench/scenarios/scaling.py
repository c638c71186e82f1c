"""How time grows: with rows of the table, look-ups and width. Threads are columns of every row.

Points are those of a Zipf batch of 65,536 on a table of 1e6 x 16, one thing changed. Where rows
grow the width is 4, so that 1e8 of them, with the slots of Adam, fit a common machine.
"""

from __future__ import annotations

from bench.workloads import Sparse

ROWS = {"1e5": 100_000, "1e6": 1_000_000, "1e7": 10_000_000, "1e8": 100_000_000}
LOOKUPS = {"1e3": 1_000, "1e4": 10_000, "1e5": 100_000, "1e6": 1_000_000}
WIDTHS = (1, 4, 16, 64, 256)


def full() -> list[Sparse]:
    return [
        *[
            Sparse(f"scaling/rows/{rule}/{label}", rule, rows, 4, 65_536, "zipf")
            for rule in ("adagrad", "lazy_adam", "adam")
            for label, rows in ROWS.items()
        ],
        *[
            Sparse(f"scaling/lookups/adagrad/{label}", "adagrad", 1_000_000, 16, n, "zipf")
            for label, n in LOOKUPS.items()
        ],
        *[
            Sparse(f"scaling/width/adagrad/{w}", "adagrad", 1_000_000, w, 65_536, "zipf")
            for w in WIDTHS
        ],
    ]


def quick() -> list[Sparse]:
    return [work for work in full() if work.name == "scaling/rows/adagrad/1e5"]
