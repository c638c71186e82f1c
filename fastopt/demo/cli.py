"""The command line of ``python -m fastopt``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

import numpy as np

import fastopt as fo
from fastopt.datasets import (
    DataError,
    NumericColumn,
    SparseRows,
    Table,
    is_libsvm,
    load_census,
    read_csv,
    read_libsvm,
)

from .features import Layout, SparseEncoder, TableEncoder, TooManyRowsError, split
from .model import WideAndDeep
from .report import EPOCH_HEADER, ProgressBar, epoch_line, work_table
from .train import Work, train

_DESCRIPTION = """\
Train a wide-and-deep model that predicts a label with two values, and show
what it learns.

Without --data it trains on the Census Income data that comes with fastopt: who
earned more than 50,000 dollars in 1994? A third of the rows, always the same,
is held out for testing. Wide weights, crossed columns among them, are trained
by FTRL on sparse gradients, embeddings and a small network by Adagrad. A fixed
seed gives the same numbers every time.
"""

_EPILOG = """\
examples:
  python -m fastopt
  python -m fastopt --data clicks.csv.gz --label clicked --categorical zip_code
  python -m fastopt --data train.svm --epochs 10 --hash-buckets 65536
"""


def _at_least(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= number <= high:
            bound = f"at least {low}" if number < low else f"at most {high}"
            raise argparse.ArgumentTypeError(f"{number} must be {bound}")
        return number

    return whole_number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fastopt",
        usage="%(prog)s [--data FILE] [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fastopt {fo.__version__}")
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data",
        metavar="FILE",
        help="a CSV or LIBSVM (svmlight) file, as it is or gzipped; which of them is seen from its"
        " content. Gaps are allowed in CSV: empty fields, ?, NA, NaN, null",
    )
    data.add_argument(
        "--label",
        metavar="COLUMN",
        help="the label's column (default: one called label, target, class, y, click, clicked or"
        " outcome, else the last or first if it has two values). The larger number, or the word"
        " later in the alphabet, is predicted",
    )
    for option, what in (
        ("--numeric", "columns that are numbers"),
        ("--categorical", "columns that are names, such as numbered ids"),
        ("--ignore", "columns to leave out, such as row numbers"),
    ):
        data.add_argument(
            option, metavar="COLUMN", nargs="+", action="extend", default=[], help=what
        )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--hash-buckets",
        metavar="N",
        type=_at_least(2),
        default=8192,
        help="rows into which the values of a categorical column, and the pairs of two crossed"
        " columns, are hashed; LIBSVM indices from N on are hashed into N too (default: 8192)",
    )
    model.add_argument(
        "--embedding-dim",
        metavar="N",
        type=_at_least(1, 4096),
        default=8,
        help="width of an embedding (default: 8)",
    )
    training = parser.add_argument_group("training")
    for option, kind, default, what in (
        ("--epochs", _at_least(1), 5, "passes over the training rows"),
        ("--batch-size", _at_least(1), 256, "rows a step"),
        ("--seed", _at_least(0), 0, "seed of the initial weights and the order of the rows"),
    ):
        training.add_argument(
            option, metavar="N", type=kind, default=default, help=f"{what} (default: {default})"
        )
    training.add_argument(
        "--threads",
        metavar="N",
        type=_at_least(1, 1024),
        help="threads of the kernels (default: the processors this process may use)",
    )
    return parser


def _load(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Table | SparseRows:
    named = {
        f"--{option}": getattr(options, option)
        for option in ("label", "numeric", "categorical", "ignore")
        if getattr(options, option)
    }
    if options.data is None:
        if named:
            parser.error(f"{', '.join(named)}: columns can be named only with --data")
        return load_census()
    if is_libsvm(options.data):
        if named:
            parser.error(
                f"{', '.join(named)}: {options.data} is a LIBSVM file, without named columns"
            )
        return read_libsvm(options.data)
    return read_csv(
        options.data,
        label=options.label,
        numeric=options.numeric,
        categorical=options.categorical,
        ignore=options.ignore,
    )


def _count(n: int, thing: str) -> str:
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def _describe(data: Table | SparseRows, source: str) -> list[str]:
    if isinstance(data, Table):
        numeric = sum(isinstance(column, NumericColumn) for column in data.columns)
        columns = f"{numeric} numeric and {len(data.columns) - numeric} categorical columns"
    else:
        low, high = (data.indices.min(), data.indices.max()) if len(data.indices) else (0, 0)
        columns = f"{len(data.indices):,} entries with indices from {low:,} to {high:,}"
    share = 100 * float(data.label.values.mean())
    return [
        f"{source}: {len(data):,} rows, {columns}",
        f"label {data.label.name}: predicting {data.label.meaning[1]} ({share:.1f} % of the rows)"
        f" against {data.label.meaning[0]}",
    ]


def _describe_model(layout: Layout, model: WideAndDeep) -> str:
    widths = [weights.shape[0] for weights, _ in model.layers] + [1]
    crosses = f" ({_count(len(layout.crosses), 'crossed pair')})" if layout.crosses else ""
    return (
        f"model: {model.table.shape[0]:,} embeddings of {model.table.shape[1]}, network"
        f" {'-'.join(map(str, widths))}, {layout.wide_rows:,} wide weights{crosses}"
    )


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    if options.threads is not None:
        fo.set_num_threads(options.threads)
    source = options.data or "Census Income data (UCI, CC BY 4.0)"
    data = _load(options, parser)
    training_rows, test_rows = split(len(data))
    if not len(test_rows):
        raise DataError(source, f"{len(data)} rows are too few to hold out a third")
    encoder = (
        TableEncoder(data, training_rows, options.hash_buckets)
        if isinstance(data, Table)
        else SparseEncoder(data, training_rows, options.hash_buckets)
    )
    examples = encoder.encode(data)  # type: ignore[arg-type]
    training, held_out = examples.take(training_rows), examples.take(test_rows)
    model = WideAndDeep(encoder.layout, options.embedding_dim, seed=options.seed)
    for line in _describe(data, source):
        _print(line)
    _print(f"training on {len(training):,} rows, testing on {len(held_out):,}")
    _print(_describe_model(encoder.layout, model))
    kernels = fo.show_config("dicts")["kernels"]
    _print(f"kernels: level {kernels['level']}, {_count(kernels['threads'], 'thread')}")
    _print("")
    _print(EPOCH_HEADER)
    work: dict[str, Work] = {}
    progress = ProgressBar(sys.stderr, len(training))
    progress.restart(f"epoch 1 of {options.epochs}")
    try:
        for epoch in train(
            model,
            training,
            held_out,
            epochs=options.epochs,
            batch_size=options.batch_size,
            seed=options.seed,
            progress=progress,
            work=work,
        ):
            progress.clear()
            _print(epoch_line(epoch))
            progress.restart(f"epoch {epoch.number + 1} of {options.epochs}")
    finally:
        progress.clear()
    _print("")
    for line in work_table(work):
        _print(line)
    kept = np.count_nonzero(model.wide.value)
    _print(f"FTRL has {kept:,} of the {model.wide.size:,} wide weights not zero")


def _print(line: str) -> None:
    """Print at once, whatever characters a file's names are made of."""
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo.

    Parameters
    ----------
    arguments : sequence of str, optional
        What stands after ``python -m fastopt``; by default the process's own.

    Returns
    -------
    int
        The exit code: 0, 1 for data that cannot be used or output that cannot be written, 130
        after Ctrl-C, 141 when whoever read the output has gone. Wrong usage leaves through
        `SystemExit` with code 2, as argparse does.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        _run(options, parser)
    except OSError as error:  # from printing: the readers turn theirs into DataError
        # Python flushes standard output once more on exit; let it go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141
        print(f"error: standard output: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (DataError, TooManyRowsError, MemoryError) as error:
        text = str(error) or "out of memory"
        print(f"error: {text.encode('ascii', 'backslashreplace').decode()}", file=sys.stderr)
        return 1
    return 0
