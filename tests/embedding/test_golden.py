"""Look-ups against numbers that TensorFlow 2.21 computed."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastopt.autodiff import gradients
from fastopt.embedding import (
    RaggedIds,
    embedding_lookup,
    embedding_lookup_sparse,
    safe_embedding_lookup_sparse,
)
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "embedding.npz")
DTYPES = ["float32", "float64"]
COMBINERS = ["sum", "mean", "sqrtn"]
# A bag sums at most three products and the divisor is rounded too: a few units of the last place.
TOLERANCE = {"float32": {"rtol": 2e-5, "atol": 2e-6}, "float64": {"rtol": 1e-11, "atol": 1e-13}}


def table_rows(n_rows, parts, strategy):
    """Return the row numbers of the whole table that each part holds."""
    if strategy == "mod":
        return [np.arange(p, n_rows, parts) for p in range(parts)]
    return np.array_split(np.arange(n_rows), parts)


def sharded(table, parts, strategy):
    """Return the parts of a table as variables, and where their rows are in the whole."""
    rows = table_rows(table.shape[0], parts, strategy)
    return [Variable(table[r], name="part") for r in rows], rows


def whole(parts, rows, shape, dtype):
    """Put gradients of parts together to that of the whole table."""
    dense = np.zeros(shape, dtype)
    for gradient, r in zip(parts, rows, strict=True):
        dense[r] += gradient.to_dense()
    return dense


def bags_of(prefix, n_bags):
    rows = GOLDEN[f"{prefix}/rows"]
    return RaggedIds(GOLDEN[f"{prefix}/ids"], np.searchsorted(rows, np.arange(n_bags + 1)))


@pytest.mark.parametrize(("parts", "strategy"), [(1, "mod"), (3, "mod"), (5, "div")])
@pytest.mark.parametrize("max_norm", [None, 1.5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_pooled(dtype, combiner, weighted, max_norm, parts, strategy):
    key = f"{dtype}/lookup/{combiner}_w{int(weighted)}_mn{max_norm}_p{parts}{strategy}"
    table = GOLDEN[f"{dtype}/table"]
    tables, rows = sharded(table, parts, strategy)
    out = embedding_lookup_sparse(
        tables,
        bags_of(dtype, 4),
        GOLDEN[f"{dtype}/weights"] if weighted else None,
        strategy,
        combiner=combiner,
        max_norm=max_norm,
    )
    np.testing.assert_allclose(np.asarray(out), GOLDEN[f"{key}/out"], **TOLERANCE[dtype])
    assert out.dtype == dtype

    got = gradients(out, tables, grad_ys=GOLDEN[f"{dtype}/upstream"])
    dense = whole(got, rows, table.shape, dtype)
    np.testing.assert_allclose(dense, GOLDEN[f"{key}/dense_grad"], **TOLERANCE[dtype])
    if parts == 1:
        kinds = json.loads(str(GOLDEN["meta"]))["cases"]["gradient_type"]
        assert type(got[0]).__name__ == kinds[f"{combiner}_w{int(weighted)}_mn{max_norm}"]
        np.testing.assert_array_equal(got[0].indices, GOLDEN[f"{key}/grad_indices"])
        np.testing.assert_allclose(got[0].values, GOLDEN[f"{key}/grad_values"], **TOLERANCE[dtype])


@pytest.mark.parametrize(("parts", "strategy"), [(1, "mod"), (3, "mod"), (5, "div")])
@pytest.mark.parametrize("max_norm", [None, 1.5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_plain(dtype, max_norm, parts, strategy):
    key = f"{dtype}/plain/mn{max_norm}_p{parts}{strategy}"
    tables, _ = sharded(GOLDEN[f"{dtype}/table"], parts, strategy)
    out = embedding_lookup(tables, GOLDEN[f"{dtype}/plain/ids"], strategy, max_norm=max_norm)
    np.testing.assert_allclose(np.asarray(out), GOLDEN[f"{key}/out"], **TOLERANCE[dtype])

    got = gradients(out, tables, grad_ys=GOLDEN[f"{dtype}/plain/upstream"])
    assert all(isinstance(g, IndexedSlices) for g in got)
    if parts == 1:
        np.testing.assert_array_equal(got[0].indices, GOLDEN[f"{key}/grad_indices"])
        np.testing.assert_allclose(got[0].values, GOLDEN[f"{key}/grad_values"], **TOLERANCE[dtype])
    elif max_norm is None:
        for p, gradient in enumerate(got):
            expected = GOLDEN[f"{key}/part{p}_dense_grad"]
            np.testing.assert_allclose(gradient.to_dense(), expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("default_id", [None, 6])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_safe(dtype, combiner, weighted, default_id):
    key = f"{dtype}/safe/{combiner}_w{int(weighted)}_default{default_id}"
    out = safe_embedding_lookup_sparse(
        Variable(GOLDEN[f"{dtype}/table"]),
        bags_of(f"{dtype}/safe", 5),
        GOLDEN[f"{dtype}/safe/weights"] if weighted else None,
        combiner,
        default_id,
    )
    np.testing.assert_allclose(np.asarray(out), GOLDEN[f"{key}/out"], **TOLERANCE[dtype])
