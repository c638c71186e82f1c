"""Look-ups against PyTorch: values and gradients of table and weights."""

import numpy as np
import pytest

from fastopt.autodiff import gradients
from fastopt.embedding import RaggedIds, embedding_lookup, embedding_lookup_sparse
from fastopt.variable import Variable

torch = pytest.importorskip("torch")
F = torch.nn.functional

DTYPES = [np.float32, np.float64]


def close(ours, theirs, dtype):
    # Sums of up to eight numbers of order one, in perhaps another order.
    tolerance = 16 * np.finfo(dtype).eps
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lookup(dtype):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(9, 4)).astype(dtype)
    ids = rng.integers(0, 9, size=(5, 3))
    upstream = rng.normal(size=(5, 3, 4)).astype(dtype)
    x = Variable(table)
    out = embedding_lookup(x, ids)
    (g,) = gradients(out, [x], grad_ys=upstream)
    t = torch.tensor(table, requires_grad=True)
    rows = F.embedding(torch.tensor(ids), t)
    rows.backward(torch.tensor(upstream))
    close(np.asarray(out), rows, dtype)
    close(g.to_dense(), t.grad, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("combiner", "weighted"), [("sum", False), ("sum", True), ("mean", False)])
def test_bags(combiner, weighted, dtype):
    rng = np.random.default_rng(1)
    table = rng.normal(size=(9, 4)).astype(dtype)
    offsets = np.array([0, 3, 3, 4, 12, 12])
    ids = rng.integers(0, 9, size=12)
    weights = rng.normal(size=12).astype(dtype) if weighted else None
    upstream = rng.normal(size=(5, 4)).astype(dtype)
    x = Variable(table)
    w = None if weights is None else Variable(weights)
    out = embedding_lookup_sparse(x, RaggedIds(ids, offsets), w, combiner=combiner)
    got = gradients(out, [x] if w is None else [x, w], grad_ys=upstream)
    t = torch.tensor(table, requires_grad=True)
    v = None if weights is None else torch.tensor(weights, requires_grad=True)
    bags = F.embedding_bag(
        torch.tensor(ids),
        t,
        torch.tensor(offsets),
        mode=combiner,
        per_sample_weights=v,
        include_last_offset=True,
    )
    bags.backward(torch.tensor(upstream))
    close(np.asarray(out), bags, dtype)
    close(got[0].to_dense(), t.grad, dtype)
    if v is not None:
        close(got[1], v.grad, dtype)
