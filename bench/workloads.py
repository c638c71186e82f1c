"""What is measured, as data: a workload is a frozen record that every process can read.

A workload says what work one step is, never how a library does it. It travels to the workers as
JSON, and every worker makes the same arrays of it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

SPARSE_STATES = {  # arrays of the table's width that a rule reads and writes, weights included
    "sgd": 1,
    "momentum": 2,
    "adagrad": 2,
    "rowwise_adagrad": 1,
    "lazy_adam": 3,
    "adam": 3,
    "ftrl": 3,
}
ROW_STATES = {"rowwise_adagrad"}  # rules that have a number a row besides
DENSE_STATES = {
    "sgd": 1,
    "momentum": 2,
    "adagrad": 2,
    "rmsprop": 3,
    "adam": 3,
    "adamw": 3,
    "ftrl": 3,
}
MB = 1e6


@dataclasses.dataclass(frozen=True)
class Workload:
    """One line of the table."""

    kind: ClassVar[str]

    name: str

    @property
    def megabytes(self) -> float:
        """About the memory that one contestant needs."""
        raise NotImplementedError

    @property
    def examples(self) -> int | None:
        """How many examples a step learns, where speed is told in examples a second."""
        return None

    def describe(self) -> str:
        """Return what a reader of the table should know beside the name."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Dense(Workload):
    """A rule on `count` variables of `size` elements each, gradients given."""

    kind = "dense"

    rule: str
    size: int
    count: int = 1

    @property
    def megabytes(self) -> float:
        return 4 * self.size * self.count * (DENSE_STATES[self.rule] + 1) / MB

    def describe(self) -> str:
        many = f"{self.count} variables of " if self.count > 1 else ""
        return f"{self.rule}, {many}{self.size:,} parameters"


@dataclasses.dataclass(frozen=True)
class Sparse(Workload):
    """From raw slices (repeated, unsorted int64 ids) to the updated table."""

    kind = "sparse"

    rule: str
    rows: int
    width: int
    lookups: int
    ids: str

    @property
    def seeds(self) -> range:
        """One for each of the batches of ids that the steps take in turn.

        Under Adam, a row that comes back in every step would never have missed one; LazyAdam, with
        which it is compared, has the same batches.
        """
        return range(1, 9) if self.rule in ("adam", "lazy_adam") else range(1, 2)

    @property
    def megabytes(self) -> float:
        table = self.rows * self.width * SPARSE_STATES[self.rule]
        return (4 * table + 4 * self.lookups * (self.width + 2 * len(self.seeds))) / MB

    def describe(self) -> str:
        return (
            f"{self.rule}, table {self.rows:,} x {self.width}, {self.lookups:,} {self.ids} look-ups"
        )


@dataclasses.dataclass(frozen=True)
class Aggregation(Workload):
    """Sums and norms of gradients: what happens between the backward pass and the update."""

    kind = "aggregation"

    task: str  # add_n, coalesce, csr, clip
    size: int  # elements of a dense gradient, or rows of the table
    count: int  # gradients, or look-ups
    width: int = 1
    ids: str = "zipf"

    @property
    def megabytes(self) -> float:
        if self.task in ("add_n", "clip"):
            return 4 * self.size * (self.count + 1) / MB
        return 4 * (self.size + 2 * self.count) * self.width / MB

    def describe(self) -> str:
        if self.task == "add_n":
            return f"sum of {self.count} dense gradients of {self.size:,}"
        if self.task == "clip":
            return f"clip {self.count} dense gradients of {self.size:,} by their global norm"
        if self.task == "csr":
            return (
                f"CSR gradient, {self.count:,} rows listed of {self.size:,} x {self.width}, to the"
                " updated table (Adagrad)"
            )
        return (
            f"coalesce {self.count:,} {self.ids} slices of width {self.width},"
            f" table of {self.size:,} rows"
        )


@dataclasses.dataclass(frozen=True)
class Lookup(Workload):
    """Rows of a table by id: single (bag 1, no weights) or pooled with weights."""

    kind = "lookup"

    task: str  # gather, pooled, pooled_gradient, pooled_update
    rows: int
    width: int
    lookups: int
    ids: str
    bag: int = 1

    @property
    def megabytes(self) -> float:
        tables = 2 if self.task == "pooled_update" else 1  # Adagrad's sums of squares
        return 4 * self.width * (tables * self.rows + 2 * self.lookups) / MB

    def describe(self) -> str:
        bag = f" in weighted bags of {self.bag}" if self.bag > 1 else ""
        way = {
            "pooled_gradient": ", forward and gradient of the table",
            "pooled_update": ", forward, gradient and update of the table (Adagrad)",
        }.get(self.task, "")
        return f"{self.lookups:,} {self.ids} look-ups{bag}, table {self.rows:,} x {self.width}{way}"


@dataclasses.dataclass(frozen=True)
class Clicks(Workload):
    """The click model: embedding columns and dense columns into a small network, Adagrad."""

    kind = "clicks"

    batch: int
    columns: int = 26
    rows: int = 100_000
    width: int = 16
    dense: int = 13
    hidden: tuple[int, ...] = (64, 32)

    @property
    def megabytes(self) -> float:
        return 4 * self.columns * self.rows * self.width * 2 / MB + 100

    @property
    def examples(self) -> int:
        return self.batch

    def describe(self) -> str:
        layers = "-".join(map(str, (*self.hidden, 1)))
        return (
            f"{self.columns} tables of {self.rows:,} x {self.width}, {self.dense} dense columns,"
            f" MLP {layers}, Adagrad, batch {self.batch:,}"
        )


@dataclasses.dataclass(frozen=True)
class LinearFtrl(Workload):
    """Logistic regression on sparse rows."""

    kind = "linear"

    batch: int
    features: int = 1_000_000
    per_row: int = 39

    @property
    def megabytes(self) -> float:
        return 4 * self.features * 4 / MB + 200

    @property
    def examples(self) -> int:
        return self.batch

    def describe(self) -> str:
        return (
            f"logistic regression, {self.features:,} features, {self.per_row} a row,"
            f" batch {self.batch:,}"
        )


@dataclasses.dataclass(frozen=True)
class Factorisation(Workload):
    """Ratings as products of a user's and an item's vector, Adagrad."""

    kind = "factorisation"

    batch: int
    users: int = 100_000
    items: int = 20_000
    width: int = 32

    @property
    def megabytes(self) -> float:
        return 8 * (self.users + self.items) * self.width / MB + 50

    @property
    def examples(self) -> int:
        return self.batch

    def describe(self) -> str:
        return (
            f"matrix factorisation, {self.users:,} users, {self.items:,} items,"
            f" width {self.width}, batch {self.batch:,}"
        )


@dataclasses.dataclass(frozen=True)
class Hogwild(Workload):
    """Ratings learned by as many Python threads as there are threads, each alone in the kernels.

    A step is a number of batches, which the threads share. The tables and the optimizer are theirs
    in common, and nothing is locked.
    """

    kind = "hogwild"

    batch: int
    batches: int = 16  # a step, of all threads together

    @property
    def ratings(self) -> Factorisation:
        """What is learned."""
        return Factorisation(self.name, self.batch)

    @property
    def megabytes(self) -> float:
        return self.ratings.megabytes

    @property
    def examples(self) -> int:
        return self.batch * self.batches

    def describe(self) -> str:
        return f"{self.ratings.describe()}, by Python threads without locks"


@dataclasses.dataclass(frozen=True)
class Word2vec(Workload):
    """Skip-gram with negative sampling: one step is one pass over the corpus."""

    kind = "word2vec"

    words: int = 300_000
    vocabulary: int = 10_000
    width: int = 100
    window: int = 5
    negatives: int = 5
    batch: int = 16_384  # pairs a step, where a library has batches

    @property
    def megabytes(self) -> float:
        return 8 * self.vocabulary * self.width / MB + 200

    @property
    def examples(self) -> int:
        return self.words

    def describe(self) -> str:
        return (
            f"skip-gram, {self.words:,} words of {self.vocabulary:,}, width {self.width},"
            f" window {self.window}, {self.negatives} negatives"
        )


KINDS: dict[str, type[Workload]] = {
    cls.kind: cls
    for cls in (
        Dense,
        Sparse,
        Aggregation,
        Lookup,
        Clicks,
        LinearFtrl,
        Factorisation,
        Hogwild,
        Word2vec,
    )
}


def to_json(work: Workload) -> dict[str, Any]:
    """Return the record as what JSON can carry."""
    return {"kind": work.kind, **dataclasses.asdict(work)}


def from_json(record: dict[str, Any]) -> Workload:
    """Return the workload that `to_json` was given."""
    fields = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in record.items()
        if key != "kind"
    }
    return KINDS[record["kind"]](**fields)
