"""What went wrong in public in libraries that update variables, as small inputs.

Each test names where it was seen. The values follow from the rules in float64.
"""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fastopt as fo
from tests.optimizer_db import Record, every_record, every_variant, fresh_graph, state_of

__all__ = ["fresh_graph"]

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
RTOL = 2e-6  # float32


def row_gradient(value: float, dtype: Any = np.float64) -> Any:
    return fo.IndexedSlices(np.array([[value]], dtype), [0], (1, 1))


def no_rows(dtype: Any = np.float64) -> Any:
    return fo.IndexedSlices(np.zeros((0, 1), dtype), np.array([], np.int64), (1, 1))


# ------------------------------------------------------------------ indices


@every_record()
def test_a_row_beyond_the_table(record: Record) -> None:
    """tensorflow/tensorflow#98994, PR#99116: skipped on one device, an error on another."""
    table = fo.Variable(np.ones((4, 2)), name="table")
    step = fo.Variable(np.int64(0), trainable=False)
    optimizer = record.make()
    before = state_of(optimizer, table, step)
    slices = fo.IndexedSlices(np.ones((2, 2)), [1, 4])
    with pytest.raises(IndexError, match=r"variable 'table': index 4 at position 1 .* 4 rows"):
        optimizer.apply_gradients([(slices, table)], global_step=step)
    assert state_of(optimizer, table, step) == before
    with pytest.raises(IndexError, match=r"index 4 at position 1 .* 4 rows"):
        fo.IndexedSlices(np.ones((2, 2)), [1, 4], (4, 2))


@every_record()
def test_a_negative_row_is_not_the_last_one(record: Record) -> None:
    """tensorflow/tensorflow#5847, #17417, #27033, #57174, #62628: wrong ids for days."""
    table = fo.Variable(np.ones((4, 2)), name="table")
    optimizer = record.make()
    slices = fo.IndexedSlices(np.ones((1, 2)), [-1])
    with pytest.raises(IndexError, match=r"variable 'table': index -1 at position 0 .* 4 rows"):
        optimizer.apply_gradients([(slices, table)])
    assert (table.numpy() == 1).all()


@every_record()
def test_more_indices_than_rows_of_values(record: Record) -> None:
    """CVE-2021-37655, CVE-2021-37654: updates were read past the end of the buffer."""
    table = fo.Variable(np.ones((5, 3)))
    with pytest.raises(ValueError, match="2 rows .* 3 indices"):
        record.make().apply_gradients([(fo.IndexedSlices(np.ones((2, 3)), [0, 1, 2]), table)])
    assert (table.numpy() == 1).all()


def test_a_row_beyond_two_to_the_31_elements(tmp_path: Path) -> None:
    """CVE-2019-16778, pytorch/FBGEMM PR#1186, PR#260: row times width in 32 bits."""
    shape = (70_000_000, 32)
    memory = np.memmap(tmp_path / "table", np.float32, "w+", shape=shape)
    table = fo.Variable(memory, copy=False)
    slices = fo.IndexedSlices(np.ones((1, 32), np.float32), np.array([69_999_999], np.int32))
    fo.GradientDescentOptimizer(1.0).apply_gradients([(slices, table)])
    assert (memory[-1] == -1).all()
    for row in (0, 1, 69_999_998, 2_891_134, 35_000_000, 2**31 // 32, 2**26 - 1):
        assert not memory[row].any()


@pytest.mark.parametrize("name", ["longlong", "int_", "intp", "intc", "int16", "uint8", "uint64"])
def test_the_name_of_a_c_type_does_not_matter(name: str) -> None:
    """Quantco/tabmat#84, PR#87; hlin117/mdlp-discretization#21; ansys/pymapdl#14."""
    results = []
    for dtype in (np.int64, getattr(np, name)):
        table = fo.Variable(np.ones((3, 2)))
        slices = fo.IndexedSlices(np.full((2, 2), 0.3), np.array([0, 2], dtype))
        fo.AdagradOptimizer(0.1).apply_gradients([(slices, table)])
        results.append(table.numpy().tobytes())
    assert results[0] == results[1]


def test_a_csr_gradient_with_mixed_index_types() -> None:
    """scipy/scipy#20182, PR#25708 (issue #21959): mixed index types raise deep inside."""
    plain = scipy.sparse.csr_matrix(np.array([[0.0, 1.0], [0.0, 0.0], [2.0, 3.0]]))
    mixed = plain.copy()
    mixed.indptr, mixed.indices = plain.indptr.astype(np.int64), plain.indices.astype(np.int32)
    results = []
    for gradient in (plain, mixed):
        table = fo.Variable(np.ones((3, 2)))
        fo.AdagradOptimizer(0.1).apply_gradients([(gradient, table)])
        results.append(table.numpy().tobytes())
    assert results[0] == results[1]
    assert (mixed.indptr.dtype, mixed.indices.dtype) == (np.int64, np.int32)


@pytest.mark.parametrize(
    ("indices", "true_value"),
    [(np.array([1, 2**63 + 1], np.uint64), 2**63 + 1), (np.array([2**40]), 2**40)],
)
def test_row_numbers_of_64_bits(indices: Any, true_value: int) -> None:
    """piskvorky/gensim#2578, #2258; scikit-learn/scikit-learn#6334, #13045."""
    table = fo.Variable(np.ones((3, 2)))

    def step() -> None:
        slices = fo.IndexedSlices(np.ones((len(indices), 2)), indices)
        fo.AdagradOptimizer(0.1).apply_gradients([(slices, table)])

    with pytest.raises(IndexError, match=str(true_value)):
        step()
    assert (table.numpy() == 1).all()


def test_a_dense_shape_that_is_no_memory() -> None:
    """pytorch/pytorch#57416; tensorflow/tensorflow#45392; pydata/sparse#429, #302."""
    table = fo.Variable(np.ones((8, 4)), name="table")
    slices = fo.IndexedSlices(np.ones((1, 4)), [2**41], (2**62, 4))
    with pytest.raises(ValueError, match=rf"'table' .*\({2**62}, 4\).* \(8, 4\)"):
        fo.AdagradOptimizer(0.1).apply_gradients([(slices, table)])
    assert (table.numpy() == 1).all()


@pytest.mark.parametrize("indices", [[True, False, True], [0.0, 2.0]])
def test_masks_and_floats_are_no_row_numbers(indices: Any) -> None:
    """scipy/scipy#11200; HIPS/autograd#71: taken as row numbers, or broken far away."""
    with pytest.raises(TypeError, match="must be integers"):
        fo.IndexedSlices(np.ones((len(indices), 2)), indices)


# ------------------------------------------------------------------ shapes


@every_record()
def test_rows_of_another_rank(record: Record) -> None:
    """tensorflow/tensorflow#106494, #94131, PR#113100, PR#121730: the process aborted."""
    table = fo.Variable(np.ones((6, 6)), name="table")
    optimizer = record.make()
    with pytest.raises(ValueError, match=r"'table' .*\(3,\).* \(6, 6\)"):
        optimizer.apply_gradients([(fo.IndexedSlices(np.ones(3), [0, 1, 2]), table)])
    assert (table.numpy() == 1).all() and optimizer.variables() == []


@every_record()
def test_values_without_an_axis(record: Record) -> None:
    """tensorflow/tensorflow#62978: segmentation fault of eight sparse rules."""
    table = fo.Variable(np.ones((2, 2)))
    with pytest.raises(ValueError, match="at least one axis"):
        record.make().apply_gradients([(fo.IndexedSlices(np.float32(1), [0]), table)])


def test_a_gradient_of_a_scalar_is_a_scalar() -> None:
    """raskr/rust-autograd#38: the gradient had shape (2,), the optimizer panicked."""
    v, c = fo.Variable(np.array(3.0)), np.ones(2)
    sgd = fo.GradientDescentOptimizer(0.5)
    gradient, _ = sgd.compute_gradients(lambda: np.sum(c * v))[0]
    assert gradient.shape == () and gradient == 2.0
    sgd.minimize(lambda: np.sum(c * v))
    assert v.numpy() == 2.0


# ------------------------------------------------------------------ empty input


@every_dtype
def test_an_empty_gradient_of_adam(dtype: Any) -> None:
    """pytorch/pytorch#82486, PR#86459: an exception on the empty gradient."""
    for make, expected in ((fo.AdamOptimizer, 0.99832994), (fo.LazyAdamOptimizer, 0.9990000)):
        w = fo.Variable(np.array([[1.0]], dtype))
        step = fo.Variable(np.int64(0), trainable=False)
        adam = make(0.001)
        adam.apply_gradients([(row_gradient(1, dtype), w)], global_step=step)
        np.testing.assert_allclose(w.numpy(), 0.9990000, rtol=RTOL)
        adam.apply_gradients([(no_rows(dtype), w)], global_step=step)
        np.testing.assert_allclose(w.numpy(), expected, rtol=RTOL)
        lazy = make is fo.LazyAdamOptimizer
        m, v = adam.get_slot(w, "m").numpy(), adam.get_slot(w, "v").numpy()
        np.testing.assert_allclose(m, 0.1 if lazy else 0.09, rtol=RTOL)
        np.testing.assert_allclose(v, 0.001 if lazy else 0.000999, rtol=RTOL)
        assert step.numpy() == 2


@pytest.mark.parametrize("indices", [np.array([], np.int64), np.array([])])
def test_empty_lists_of_rows(indices: Any) -> None:
    """tensorflow/tensorflow#57765; CVE-2022-41898: empty lists aborted the process."""
    table = fo.Variable(np.ones((5, 3)))
    step = fo.Variable(np.int64(0), trainable=False)
    adagrad = fo.AdagradOptimizer(0.1)
    adagrad.apply_gradients([(fo.IndexedSlices(np.ones((0, 3)), indices), table)], step)
    assert (table.numpy() == 1).all() and step.numpy() == 1
    assert (adagrad.get_slot(table, "accumulator").numpy() == 0.1).all()


# ------------------------------------------------------------------ duplicates, stored zeros


@pytest.mark.parametrize("kind", [scipy.sparse.coo_matrix, scipy.sparse.coo_array])
def test_duplicates_in_coo_add_up(kind: Any) -> None:
    """lyst/lightfm#117, PR#119; scipy/scipy#5807: they crashed, or counted once."""
    gradient = kind(([1.0, 5.0, 2.0, 4.0], ([2, 0, 2, 2], [1, 0, 1, 0])), shape=(3, 2))
    w = fo.Variable(np.zeros((3, 2)))
    done = fo.GradientDescentOptimizer(1.0).apply_gradients([(gradient, w)])
    assert w.numpy().tolist() == [[-5, 0], [0, 0], [-4, -3]]
    assert done.sparse_rows == 2


def test_the_callers_matrix_is_as_it_was() -> None:
    """scipy/scipy#6603, #6429; lyst/lightfm#272: sorted and summed in place."""
    coo = scipy.sparse.coo_matrix(
        ([1.0, 5.0, 2.0, 4.0], ([2, 0, 2, 2], [1, 0, 1, 0])), shape=(3, 2)
    )
    csr = scipy.sparse.csr_matrix(
        (np.array([3.0, 1.0, 2.0]), np.array([1, 0, 1]), np.array([0, 3, 3, 3])), shape=(3, 2)
    )
    parts = [coo.row, coo.col, coo.data, csr.indices, csr.indptr, csr.data]
    before = [part.copy() for part in parts]
    for gradient in (coo, csr):
        w = fo.Variable(np.zeros((3, 2)))
        fo.AdagradOptimizer(1.0).apply_gradients([(gradient, w)])
    after = [coo.row, coo.col, coo.data, csr.indices, csr.indptr, csr.data]
    for old, part, new in zip(before, parts, after, strict=True):
        assert part is new or np.shares_memory(part, new)
        assert old.tobytes() == new.tobytes() and old.dtype == new.dtype


def test_a_stored_zero_touches_its_row() -> None:
    """neuro-galaxy/torch_brain#49; scipy/scipy#5807, #3343: it was taken as not touched."""
    w = fo.Variable(np.zeros((3, 2)))
    momentum = fo.MomentumOptimizer(1.0, 0.9)
    momentum._create_slots([w])
    momentum.get_slot(w, "momentum").assign([[1.0, 1.0]] * 3)
    gradient = scipy.sparse.csr_matrix(([1.0, 0.0], [0, 0], [0, 1, 1, 2]), shape=(3, 2))
    momentum.apply_gradients([(gradient, w)])
    slot = momentum.get_slot(w, "momentum").numpy()
    assert slot.tolist() == [[1.9, 0.9], [1.0, 1.0], [0.9, 0.9]]
    assert w.numpy().tolist() == [[-1.9, -0.9], [0.0, 0.0], [-0.9, -0.9]]


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_duplicates_are_taken_in_order_of_arrival(threads: int) -> None:
    """pytorch/FBGEMM PR#586: sums of repeated ids depended on the timing of threads."""
    for values, expected in (([1, 1e8, -1e8], 0.0), ([1e8, -1e8, 1], -1.0)):
        for _ in range(3):
            w = fo.Variable(np.zeros((4, 1), np.float32))
            gradient = fo.IndexedSlices(np.array(values, np.float32).reshape(3, 1), [2, 2, 2])
            with fo.num_threads(threads):
                fo.GradientDescentOptimizer(1.0).apply_gradients([(gradient, w)])
            assert w.numpy().ravel().tolist() == [0, 0, expected, 0]


# ------------------------------------------------------------------ moments of absent rows


def path_of(optimizer: Any, start: float, gradients: list[float | None], dtype: Any) -> list[Any]:
    w = fo.Variable(np.array([[start]], dtype))
    path = []
    for gradient in gradients:
        slices = no_rows(dtype) if gradient is None else row_gradient(gradient, dtype)
        optimizer.apply_gradients([(slices, w)])
        path.append(w.numpy().item())
    return path


@every_dtype
def test_a_row_moves_on_without_a_gradient_in_adam_alone(dtype: Any) -> None:
    """pytorch/pytorch#18404; tensorflow/tensorflow#6460; apache/mxnet#9177."""
    gradients = [2.0, None, None, None]
    adam = path_of(fo.AdamOptimizer(0.01), 1.0, gradients, dtype)
    lazy = path_of(fo.LazyAdamOptimizer(0.01), 1.0, gradients, dtype)
    np.testing.assert_allclose(adam, [0.9900000, 0.9832994, 0.9781199, 0.9738771], rtol=RTOL)
    np.testing.assert_allclose(lazy, [0.9900000] * 4, rtol=RTOL)


@every_dtype
def test_the_lazy_correction_counts_all_calls(dtype: Any) -> None:
    """tensorflow/tensorflow#23668, #27456: the lazy rule was mistaken for Adam."""
    gradients = [1.0, None, 1.0]
    adam = path_of(fo.AdamOptimizer(0.1), 0.0, gradients, dtype)
    lazy = path_of(fo.LazyAdamOptimizer(0.1), 0.0, gradients, dtype)
    np.testing.assert_allclose(adam, [-0.1000000, -0.1670058, -0.2488061], rtol=RTOL)
    np.testing.assert_allclose(lazy, [-0.1000000, -0.1000000, -0.1858462], rtol=RTOL)


@every_dtype
@pytest.mark.parametrize("read_between", [True, False])
def test_reading_a_row_changes_nothing(dtype: Any, read_between: bool) -> None:
    """pytorch/FBGEMM PR#5908: decay counted from the step written in this update."""
    w = fo.Variable(np.array([[1.0]], dtype))
    adam = fo.AdamOptimizer(0.01)
    path = []
    for gradient in (2.0, None, None, None, 1.0, None, 3.0):
        slices = no_rows(dtype) if gradient is None else row_gradient(gradient, dtype)
        adam.apply_gradients([(slices, w)])
        if read_between:
            path.append(w.numpy().item())
    if read_between:
        np.testing.assert_allclose([path[3], path[4]], [0.9738771, 0.9682274], rtol=RTOL)
    np.testing.assert_allclose(w.numpy(), 0.9567573, rtol=RTOL)
    np.testing.assert_allclose(adam.get_slot(w, "m").numpy(), 0.4872882, rtol=RTOL)
    np.testing.assert_allclose(adam.get_slot(w, "v").numpy(), 0.01397406, rtol=RTOL)


def test_dense_and_sparse_in_one_lazy_call() -> None:
    """pytorch/pytorch#101370; huggingface/transformers#30276; OpenNMT/OpenNMT-py#1015."""
    dense, table = fo.Variable(np.ones(2)), fo.Variable(np.ones((3, 1)))
    twin = fo.Variable(np.ones(2))
    lazy, adam = fo.LazyAdamOptimizer(0.1), fo.AdamOptimizer(0.1)
    for gradient in ([1.0, -2.0], [0.0, 0.5]):
        slices = fo.IndexedSlices(np.ones((1, 1)), [1])
        lazy.apply_gradients([(np.array(gradient), dense), (slices, table)])
        adam.apply_gradients([(np.array(gradient), twin)])
    assert dense.numpy().tobytes() == twin.numpy().tobytes()
    assert table.numpy()[[0, 2]].tolist() == [[1], [1]] and table.numpy()[1] < 0.9


# ------------------------------------------------------------------ FTRL


@every_dtype
def test_l2_counts_once(dtype: Any) -> None:
    """aksnzhy/xlearn#223: in the gradient, and again in the closed form."""
    w = fo.Variable(np.zeros(1, dtype))
    ftrl = fo.FtrlOptimizer(0.5, l2_regularization_strength=0.25)
    ftrl.apply_gradients([(np.ones(1, dtype), w)])
    np.testing.assert_allclose(ftrl.get_slot(w, "accum").numpy(), 1.1, rtol=RTOL)
    np.testing.assert_allclose(ftrl.get_slot(w, "linear").numpy(), 1.0, rtol=RTOL)
    np.testing.assert_allclose(w.numpy(), -0.3849681, rtol=RTOL)


@every_dtype
def test_shrinkage_stays_out_of_the_accumulator(dtype: Any) -> None:
    """tensorflow/tensorflow#18317, PR#38020."""
    w = fo.Variable(np.ones(1, dtype))
    ftrl = fo.FtrlOptimizer(3.0, l2_shrinkage_regularization_strength=0.5)
    ftrl.apply_gradients([(np.full(1, 0.1, dtype), w)])
    np.testing.assert_allclose(ftrl.get_slot(w, "accum").numpy(), 0.11, rtol=RTOL)
    np.testing.assert_allclose(ftrl.get_slot(w, "linear").numpy(), 1.0948551, rtol=RTOL)
    np.testing.assert_allclose(w.numpy(), -9.9033370, rtol=RTOL)


@every_dtype
def test_a_dense_zero_makes_a_weight_zero_and_an_absent_row_does_not(dtype: Any) -> None:
    """tensorflow/tensorflow#50118: a surprise, but the rule; the docstring says so."""
    start, gradient = [-2, -1, 0, 1, 2], [0, 0, 0, 1, 1]
    w, table = (fo.Variable(np.array(start, dtype).reshape(s)) for s in ((5,), (5, 1)))
    dense, sparse = fo.FtrlOptimizer(0.1), fo.FtrlOptimizer(0.1)
    dense.apply_gradients([(np.array(gradient, dtype), w)])
    rows = fo.IndexedSlices(np.ones((2, 1), dtype), [3, 4])
    sparse.apply_gradients([(rows, table)])
    np.testing.assert_allclose(w.numpy(), [0, 0, 0, 0.6031424, 1.3016311], rtol=RTOL)
    accumulators = [0.1, 0.1, 0.1, 1.1, 1.1]
    np.testing.assert_allclose(dense.get_slot(w, "accum").numpy(), accumulators, rtol=RTOL)
    np.testing.assert_allclose(table.numpy().ravel(), [-2, -1, 0, 0.6031424, 1.3016311], rtol=RTOL)
    assert "a dense gradient of zero makes it 0" in str(fo.FtrlOptimizer.__doc__).replace(
        "\n   ", ""
    )


@pytest.mark.parametrize("kind", ["number", "callable", "variable"])
def test_ftrl_needs_a_rate(kind: str) -> None:
    """VowpalWabbit/vowpal_wabbit PR#458: NaN predictions after the first example."""
    w = fo.Variable(np.ones(3), name="w")
    step = fo.Variable(np.int64(0), trainable=False)
    if kind == "number":
        with pytest.raises(ValueError, match="learning_rate must be .* > 0, got 0"):
            fo.FtrlOptimizer(0)
        return
    rate: Any = fo.Variable(0.0, trainable=False) if kind == "variable" else lambda: 0.0
    ftrl = fo.FtrlOptimizer(rate)
    before = state_of(ftrl, w, step)
    with pytest.raises(ValueError, match=r"learning_rate(\(\))? must be .* > 0, got"):
        ftrl.apply_gradients([(np.ones(3), w)], global_step=step)
    assert state_of(ftrl, w, step) == before


def test_ftrl_needs_a_power_that_is_not_positive() -> None:
    """VowpalWabbit/vowpal_wabbit PR#458."""
    with pytest.raises(ValueError, match="learning_rate_power must be .* <= 0, got 0.5"):
        fo.FtrlOptimizer(0.1, learning_rate_power=0.5)


# ------------------------------------------------------------------ numerics


@every_dtype
def test_adagrad_does_not_start_from_zero(dtype: Any) -> None:
    """lisa-lab/pylearn2#1496, #1499; davharris/mistnet#94: 0/0 on the first step."""
    with pytest.raises(ValueError, match="initial_accumulator_value must be .* > 0, got 0"):
        fo.AdagradOptimizer(0.1, initial_accumulator_value=0)
    w = fo.Variable(np.ones(3, dtype))
    adagrad = fo.AdagradOptimizer(0.1, initial_accumulator_value=1e-60)
    if dtype is np.float32:  # where 1e-60 is 0
        with pytest.raises(ValueError, match="1e-60 .* float32"):
            adagrad.apply_gradients([(np.zeros(3, dtype), w)])
    else:
        adagrad.apply_gradients([(np.zeros(3, dtype), w)])
    assert (w.numpy() == 1).all()


@every_dtype
def test_where_epsilon_stands(dtype: Any) -> None:
    """tensorflow/tensorflow#9047, #35102; pytorch/pytorch#2060, #41477; mlcommons PR#622."""
    w = fo.Variable(np.zeros(1, dtype))
    adam = fo.AdamOptimizer(0.01, epsilon=1e-3)
    adam.apply_gradients([(np.full(1, 0.01, dtype), w)])
    np.testing.assert_allclose(w.numpy(), -0.002402531, rtol=RTOL)
    # The docstring names the form, and the way to the other: epsilon * sqrt(1 - beta2**t).
    assert "sqrt(1 - beta2**t)`` with a callable" in str(fo.AdamOptimizer.__doc__)
    other = fo.Variable(np.zeros(1, dtype))
    corrected = fo.AdamOptimizer(0.01, epsilon=lambda: 1e-3 * np.sqrt(1 - 0.999))
    corrected.apply_gradients([(np.full(1, 0.01, dtype), other)])
    np.testing.assert_allclose(other.numpy(), -0.009090909, rtol=RTOL)


@every_dtype
def test_a_step_after_a_thousand_million(dtype: Any) -> None:
    """chainer/chainer#2388: a power that vanishes raised an OverflowError."""
    w = fo.Variable(np.zeros(1, dtype))
    adam = fo.AdamOptimizer(0.001)
    adam._create_slots([w])
    for k, beta in ((1, 0.9), (2, 0.999)):
        power = adam._get_non_slot_variable(f"beta{k}_power")
        with np.errstate(under="ignore"):
            power.assign(np.float64(beta) ** 1_000_000_000)
    adam.get_slot(w, "m").assign(np.ones(1))
    adam.get_slot(w, "v").assign(np.ones(1))
    adam.apply_gradients([(np.ones(1, dtype), w)])
    np.testing.assert_allclose(w.numpy(), -0.001 * 1 / (1 + 1e-8), rtol=RTOL)


def test_the_mode_of_floating_point_is_as_it_was() -> None:
    """gevent/gevent#1891; althonos/pyhmmer#71; numpy/numpy#20895; OpenNMT/CTranslate2#1018."""
    rng = np.random.default_rng(0)
    v = fo.Variable(rng.normal(size=300_000).astype(np.float32))
    with fo.num_threads(2):
        fo.AdamOptimizer().apply_gradients([(v.numpy(), v)])
    seen: list[bool] = []

    def look() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            smallest = np.finfo(np.float32).smallest_subnormal
            quarter = np.array([0.25]) * 2.0**-1022
            seen.append(bool(smallest > 0 and quarter[0] > 0))

    look()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [True, True]


# ------------------------------------------------------------------ dtypes and memory


@every_record()
def test_dtypes_that_differ(record: Record) -> None:
    """tensorflow/tensorflow#113145, #69278, PR#113276: the process aborted."""
    v = fo.Variable(np.ones(3, np.float32), name="v")
    optimizer = record.make()
    with pytest.raises(TypeError, match="complex64.*float32"):
        optimizer.apply_gradients([(np.ones(3, np.complex64), v)])
    optimizer.apply_gradients([(np.ones(3, np.float64), v)])  # cast, as documented
    assert v.dtype == np.float32
    half = fo.Variable(np.ones(3, np.float16), name="half")
    optimizer.apply_gradients([(np.ones(3, np.float64), half)])
    assert half.dtype == np.float16 and np.isfinite(half.numpy()).all()


def test_integers_are_not_truncated() -> None:
    """HIPS/autograd#482, #71; numpy/numpy PR#15246: gradients truncated, or obscure errors."""
    n = fo.Variable(np.array([1, 2]), name="n")
    sgd = fo.GradientDescentOptimizer(0.5)
    with pytest.raises(ValueError, match="Integers have no gradient: 'n'"):
        sgd.minimize(lambda: np.sum(n * 1.5), var_list=[n])
    with pytest.raises(ValueError, match="Invalid type int64"):
        sgd.compute_gradients(n * n, [n])
    with pytest.raises(ValueError, match="Invalid type int64 for 'n'"):
        sgd.apply_gradients([(np.ones(2), n)])
    assert n.numpy().tolist() == [1, 2]
    v = fo.Variable(np.ones(2, np.float32), name="v")
    sgd.apply_gradients([(np.array([1, 3]), v)])
    assert v.numpy().tolist() == [0.5, -0.5]
    with pytest.raises(TypeError, match="cannot hold exactly"):
        sgd.apply_gradients([(np.array([1, 2**24 + 1]), v)])


def test_memory_that_is_read_only(tmp_path: Path) -> None:
    """cython/cython#1605; dask/distributed#1978; PyWavelets/pywt#839."""
    np.ones((2, 3)).tofile(tmp_path / "values")
    np.array([0, 2]).tofile(tmp_path / "indices")
    values = np.memmap(tmp_path / "values", np.float64, "r", shape=(2, 3))
    indices = np.memmap(tmp_path / "indices", np.int64, "r", shape=(2,))
    table = fo.Variable(np.zeros((3, 3)))
    fo.GradientDescentOptimizer(1.0).apply_gradients([(fo.IndexedSlices(values, indices), table)])
    fo.GradientDescentOptimizer(1.0).apply_gradients([(values, fo.Variable(np.zeros((2, 3))))])
    assert table.numpy().sum() == -6
    frozen = np.zeros((3, 3))
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fo.Variable(frozen, copy=False)


def test_swapped_bytes() -> None:
    """cython/cython#6160; pydata/bottleneck#104; silx-kit/silx#1146: nonsense, or an error."""
    results = []
    for values, indices in (
        (np.array([[1, 2]], "<f4"), np.array([0], "<i8")),
        (np.array([[1, 2]], ">f4"), np.array([0], ">i8")),
    ):
        table = fo.Variable(np.zeros((2, 2), np.float32))
        adagrad = fo.AdagradOptimizer(0.1)
        adagrad.apply_gradients([(fo.IndexedSlices(values, indices), table)])
        adagrad.apply_gradients([(np.concatenate([values, values]), table)])
        results.append(table.numpy().tobytes())
    assert results[0] == results[1]


@every_record()
def test_the_callers_gradients_are_as_they_were(record: Record) -> None:
    """pytorch/pytorch PR#34904: the step changed the caller's gradient."""
    storage = np.array([2.0, 4.0])
    w = fo.Variable(storage, copy=False)
    fo.GradientDescentOptimizer(0.25).apply_gradients([(storage, w)])
    assert storage.tolist() == [1.5, 3.0]
    dense = np.array([0.5, -0.5])
    values, indices = np.array([[1.0], [2.0], [3.0]]), np.array([1, 0, 1])
    before = dense.tobytes(), values.tobytes(), indices.tobytes()
    optimizer = record.make()
    v, table = fo.Variable(np.ones(2)), fo.Variable(np.ones((2, 1)))
    for _ in range(2):
        optimizer.apply_gradients([(dense, v), (fo.IndexedSlices(values, indices), table)])
    assert (dense.tobytes(), values.tobytes(), indices.tobytes()) == before


# ------------------------------------------------------------------ the front end


def test_an_exhausted_iterator() -> None:
    """tensorflow/tensorflow#8961; MarvinTeichmann/KittiSeg#34: a list that looks full."""
    v = fo.Variable(np.ones(2))
    sgd = fo.GradientDescentOptimizer(1.0)
    pairs = zip([np.ones(2)], [v], strict=True)
    list(pairs)
    with pytest.raises(ValueError, match=r"No variables provided.*pass a list instead"):
        sgd.apply_gradients(pairs)
    with pytest.raises(ValueError, match=r"No variables provided"):
        sgd.apply_gradients([])
    sgd.apply_gradients((np.ones(2), v) for v in [v])
    assert (v.numpy() == 0).all()


def test_a_loss_that_depends_on_nothing_listed() -> None:
    """tensorflow/tensorflow#1511, #1841, #43258: a list of variables, but no reason."""
    a, b, c = (fo.Variable(np.ones(2), name=name) for name in "abc")
    sgd = fo.GradientDescentOptimizer(0.5)
    with pytest.raises(
        ValueError, match=r"No gradients provided for any variable: \['a', 'b'\].*depend on them"
    ):
        sgd.minimize(lambda: np.sum(c * c), var_list=[a, b])
    sgd.minimize(lambda: np.sum(a * a), var_list=[a, b])
    assert (a.numpy() == 0).all() and (b.numpy() == 1).all()


def test_a_copy_of_an_optimizer_with_a_callable() -> None:
    """online-ml/river PR#1920: a copy held a wrapped rate and failed at its first step."""
    rates = [0.5]
    v = fo.Variable(np.array([1.0, -1.0]))
    optimizer = fo.MomentumOptimizer(lambda: rates[0], 0.9)
    optimizer.apply_gradients([(np.ones(2), v)])
    twin, u = copy.deepcopy((optimizer, v))
    numbers = fo.AdagradOptimizer(0.1)
    numbers.apply_gradients([(np.ones(2), v)])
    u.assign(v.value)
    restored, r = pickle.loads(pickle.dumps((numbers, v)))
    for one, other, x, y in ((optimizer, twin, v, u), (numbers, restored, v, r)):
        y.assign(x.value)
        for gradient in ([0.5, 2.0], [-1.0, 0.25]):
            one.apply_gradients([(gradient, x)])
            other.apply_gradients([(gradient, y)])
        assert x.numpy().tobytes() == y.numpy().tobytes()
    assert twin.get_slot(u, "momentum") is not optimizer.get_slot(v, "momentum")


# ------------------------------------------------------------------ threads


@every_variant()
def test_threads_and_runs_change_no_bit(record: Record, kwargs: dict[str, Any]) -> None:
    """piskvorky/gensim#546, #641; stanfordnlp/GloVe#207; facebookresearch/fastText#116."""
    rng = np.random.default_rng(1)
    batches = [
        (rng.normal(size=(10_000, 16)).astype(np.float32) / 64, rng.zipf(1.2, 10_000) % 5000)
        for _ in range(3)
    ]
    results = set()
    for threads in (1, 2, 8):
        for _ in range(3):
            with fo.num_threads(threads):
                table = fo.Variable(np.ones((5000, 16), np.float32))
                optimizer = record.cls(**kwargs)
                for k in range(100):
                    values, ids = batches[k % 3]
                    optimizer.apply_gradients([(fo.IndexedSlices(values, ids), table)])
            results.add(table.numpy().tobytes())
    assert len(results) == 1
