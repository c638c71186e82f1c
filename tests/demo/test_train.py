"""The model and its loop."""

from __future__ import annotations

import numpy as np
import pytest

import fastopt as fo
from fastopt.datasets import CategoricalColumn, Label, NumericColumn, Table
from fastopt.demo.features import Examples, Layout, TableEncoder, split
from fastopt.demo.model import WideAndDeep
from fastopt.demo.train import Epoch, Work, train


class Silent:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, float]] = []

    def update(self, done: int, loss: float) -> None:
        self.told.append((done, loss))


@pytest.fixture(scope="module")
def data() -> tuple[Layout, Examples, Examples]:
    """Rows whose label is the exclusive or of two columns, so that a linear model doesn't do."""
    rng = np.random.default_rng(0)
    n = 1500
    a, b = rng.integers(0, 4, n, dtype=np.int32), rng.integers(0, 4, n, dtype=np.int32)
    labels = ((a % 2) ^ (b % 2)).astype(np.float32)
    names = tuple("wxyz")
    table = Table(
        Label("label", labels, ("0", "1")),
        (
            CategoricalColumn("a", a, names),
            NumericColumn("noise", rng.standard_normal(n)),
            CategoricalColumn("b", b, names),
        ),
    )
    training, held_out = split(n)
    encoder = TableEncoder(table, training, 50)
    examples = encoder.encode(table)
    return encoder.layout, examples.take(training), examples.take(held_out)


def fit(
    data: tuple[Layout, Examples, Examples], seed: int = 0, epochs: int = 3
) -> tuple[WideAndDeep, list[Epoch], dict[str, Work], Silent]:
    layout, training, held_out = data
    model = WideAndDeep(layout, embedding_dim=4, hidden=(8,), seed=seed)
    work: dict[str, Work] = {}
    silent = Silent()
    result = train(
        model,
        training,
        held_out,
        epochs=epochs,
        batch_size=64,
        seed=seed,
        progress=silent,
        work=work,
    )
    return model, list(result), work, silent


def bits(model: WideAndDeep) -> list[bytes]:
    variables = [model.wide, model.table, *(v for layer in model.layers for v in layer)]
    return [variable.numpy().tobytes() for variable in variables]


def test_learns_from_pairs(data) -> None:
    _, epochs, _, _ = fit(data, epochs=6)
    assert epochs[-1].test_auc > 0.99
    assert epochs[-1].test_log_loss < epochs[0].test_log_loss


def test_bit_identical_for_every_run_and_number_of_threads(data) -> None:
    results = []
    for threads in (1, 2, 2):
        with fo.num_threads(threads):
            model, epochs, _, silent = fit(data)
        results.append((bits(model), silent.told, [epoch.train_loss for epoch in epochs]))
    assert results[0] == results[1] == results[2]
    assert bits(fit(data, seed=1)[0]) != results[0][0]


def test_work_and_progress(data) -> None:
    model, _, work, silent = fit(data, epochs=2)
    assert [done for done, _ in silent.told] == 2 * [*range(64, 1000, 64), 1000]
    assert int(model.step) == 32
    assert list(work["Ftrl"].variables) == [model.wide.name]
    assert work["Ftrl"].dense_parameters == 0
    assert work["Adagrad"].steps == work["Ftrl"].steps == 32
    network = (3 * 4 + 1) * 8 + 8 + 8 + 1
    assert work["Adagrad"].dense_parameters == 32 * network
    # every batch of 64 has all four names of both columns, and some of 16 quantiles
    assert 32 * 8 < work["Adagrad"].sparse_rows <= 32 * (8 + 16)


def test_gradients_are_sparse_where_they_can_be(data) -> None:
    layout, training, _ = data
    model = WideAndDeep(layout, seed=0)
    batch = training.take(np.arange(5))
    pairs = model.adagrad.compute_gradients(
        lambda: np.sum(model.logits(batch)), var_list=[model.wide, model.table, *model.layers[0]]
    )
    kinds = [type(gradient) for gradient, _ in pairs]
    assert kinds == [fo.IndexedSlices, fo.IndexedSlices, np.ndarray, np.ndarray]


def test_rows_that_no_example_has_stay_as_they_were(data) -> None:
    layout, training, _ = data
    model = WideAndDeep(layout, seed=0)
    before = model.table.numpy()
    batch = training.take(np.arange(10))
    model.train_step(batch)
    touched = np.unique(batch.ids)
    untouched = np.setdiff1d(np.arange(layout.table_rows), touched)
    np.testing.assert_array_equal(model.table.numpy()[untouched], before[untouched])
    assert (model.table.numpy()[touched] != before[touched]).any(axis=1).all()
    assert set(np.flatnonzero(model.wide.value)) <= set(batch.wide.ids)


def test_predict(data) -> None:
    """Probabilities, whatever the batches; extreme logits give 0 and 1 without a warning."""
    layout, training, _ = data
    model = WideAndDeep(layout, seed=0)
    whole = model.predict(training)
    parts = model.predict(training, batch_size=7)
    # float32 logits of order 1 whose sums BLAS may order differently
    np.testing.assert_allclose(whole, parts, rtol=1e-5)
    biases = model.layers[-1][1]
    for logit, probability in ((2000.0, 1.0), (-2000.0, 0.0)):
        biases.assign([logit])
        np.testing.assert_array_equal(model.predict(training), np.full(len(training), probability))
