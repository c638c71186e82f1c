"""Tables of 8 bits."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import fastopt as fo
from fastopt._kernels import _dispatch, _quantized

ROOT = Path(__file__).parents[2]
EPS = np.float32(2.0**-23)
TINY = np.finfo(np.float32).tiny
WIDTHS = [*range(1, 20), 31, 33, 48, 64, 100, 128, 129, 257]


def reference(table: Any) -> tuple[Any, Any, Any]:
    """Codes, scales and biases row by row, from the definition."""
    codes, scales, biases = [], [], []
    for row in np.asarray(table, np.float32):
        low, high = min(row), max(row)
        span = np.float32(high - low)
        scale = np.float32(span / np.float32(255))
        if scale < TINY:
            scale, factor = np.float32(0), np.float32(0)
        else:
            factor = np.float32(np.float32(255) / span)
        codes.append([round(float(np.float32(x - low) * factor)) for x in row])  # ties to even
        scales.append(scale)
        biases.append(low)
    return np.array(codes, np.uint8), np.array(scales), np.array(biases)


def numbers(shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def same(a: Any, b: Any) -> None:
    """Equal dtype, shape and bits."""
    assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


# ------------------------------------------------------------------ making one


@pytest.mark.parametrize("width", [1, 2, 3, 16, 70])
def test_codes_scales_and_biases(width: int) -> None:
    table = numbers((300, width))
    table[7] = -3.25  # equal elements
    table[8] *= 1e-30
    table[9] *= 1e-40  # subnormal
    table[10] *= 1e37
    codes, scales, biases = reference(table)
    quantized = fo.quantize_table(table)
    np.testing.assert_array_equal(quantized.codes, codes)
    np.testing.assert_array_equal(quantized.scales, scales)
    np.testing.assert_array_equal(quantized.biases, biases)
    made = scales[:, None] * codes.astype(np.float32) + biases[:, None]
    same(quantized.dequantize(), made)
    np.testing.assert_array_equal(made[7], table[7])


@settings(deadline=None)
@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 4), st.integers(1, 40)),
        elements=st.floats(-(2.0**120), 2.0**120, width=32),
    )
)
def test_largest_error(table: Any) -> None:
    """Half a scale, and what rounding to float32 adds to it."""
    quantized = fo.quantize_table(table)
    wide = table.astype(np.float64)
    error = np.abs(quantized.dequantize() - wide).max(axis=1)
    # x - low, the factor and their product are rounded once each: up to 255 * 1.5 EPS of a code.
    # The scale is, times up to 255, and so are the product and the sum of the way back, and low
    # and high are at most that large.
    span = np.ptp(wide, axis=1)
    rounding = 4 * EPS * span + 2 * EPS * np.abs(wide).max(axis=1)
    assert (error <= quantized.scales / 2 + rounding + 256 * TINY).all()
    same(quantized.dequantize().min(axis=1), table.min(axis=1) + np.float32(0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", ">f4"])
def test_dtypes(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    table = numbers((40, 5)).astype(dtype)
    codes, scales, _ = reference(table)
    quantized = fo.quantize_table(table)
    np.testing.assert_array_equal(quantized.codes, codes)
    np.testing.assert_array_equal(quantized.scales, scales)
    assert quantized.dtype == np.float32


def test_of_a_variable_it_is_a_copy_of_its_value_now() -> None:
    """Rows that Adam has left behind are brought up to date first."""
    table = fo.Variable(numbers((6, 3)), name="adam_table")
    opt = fo.AdamOptimizer(0.1)
    for ids in ([0, 1], [2], [3]):
        opt.apply_gradients([(fo.IndexedSlices(np.ones((len(ids), 3), np.float32), ids), table)])
    value = table.numpy()
    quantized = fo.quantize_table(table)
    table.assign(np.zeros((6, 3)))
    np.testing.assert_array_equal(quantized.codes, fo.quantize_table(value).codes)


def test_rows_are_independent_of_their_neighbours() -> None:
    """Tables are quantized in chunks of many rows."""
    table = numbers((70_000, 6))
    quantized = fo.quantize_table(table)
    for lo in (0, 18_720, 37_000, 69_990):
        same(
            quantized.dequantize()[lo : lo + 10],
            fo.quantize_table(table[lo : lo + 10]).dequantize(),
        )


@pytest.mark.parametrize("layout", ["columns", "every second", "list", "unaligned"])
def test_memory_of_any_layout(layout: str) -> None:
    table = numbers((30, 4))
    given: Any = {
        "columns": np.asfortranarray(table),
        "every second": np.repeat(table, 2, axis=0)[::2],
        "list": table.tolist(),
        "unaligned": np.frombuffer(b"x" + table.tobytes(), np.uint8)[1:].view("f4").reshape(30, 4),
    }[layout]
    same(fo.quantize_table(given).dequantize(), fo.quantize_table(table).dequantize())
    same(numbers((30, 4)), table)


def test_shapes() -> None:
    cube = numbers((5, 2, 3))
    quantized = fo.quantize_table(cube)
    assert (quantized.shape, quantized.ndim, len(quantized)) == ((5, 2, 3), 3, 5)
    assert quantized.codes.shape == (5, 2, 3)
    assert quantized.nbytes == 5 * (6 + 8)
    same(
        quantized.dequantize(), fo.quantize_table(cube.reshape(5, 6)).dequantize().reshape(5, 2, 3)
    )
    assert fo.embedding_lookup(quantized, [[4]]).shape == (1, 1, 2, 3)
    line = fo.quantize_table(np.array([1.5, -2.0]))
    same(fo.embedding_lookup(line, [1, 0]), np.array([-2.0, 1.5], np.float32))
    assert fo.quantize_table(np.zeros((0, 4))).dequantize().shape == (0, 4)
    assert fo.embedding_lookup(fo.quantize_table(np.zeros((3, 0))), [2]).shape == (1, 0)
    assert repr(quantized) == "QuantizedTable(shape=(5, 2, 3), nbytes=70)"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [3, 50_000])
def test_rows_that_are_not_finite(bad: float, row: int) -> None:
    table = numbers((60_000, 8))
    table[[row, 59_999], 2] = bad
    with fo.Graph().as_default():
        var = fo.Variable(table, name="broken")
    with pytest.raises(ValueError, match=rf"row {row} of table 'broken' is not finite.* {bad}"):
        fo.quantize_table(var)


def test_numbers_beyond_float32() -> None:
    with pytest.raises(ValueError, match="row 1 of table is not finite in float32: it has inf"):
        fo.quantize_table(np.array([[0.0, 1.0], [1e39, 0.0]]))
    with pytest.raises(
        ValueError, match=r"row 0 of table has elements too far apart .* from -3\.\d*e\+38"
    ):
        fo.quantize_table(np.array([[-3e38, 3e38]], np.float32))


@pytest.mark.parametrize("table", [np.ones((2, 2), int), [["a"]], None, np.ones((2, 2), complex)])
def test_what_is_no_table(table: Any) -> None:
    with pytest.raises(TypeError, match="table"):
        fo.quantize_table(table)
    with pytest.raises(ValueError, match="table must have an axis of rows"):
        fo.quantize_table(np.float32(1))


# ------------------------------------------------------------------ looking up


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("id_dtype", [np.int32, np.int64])
def test_rows_have_the_bits_of_the_float32_table(width: int, id_dtype: Any) -> None:
    quantized = fo.quantize_table(numbers((50, width), width))
    table = quantized.scales[:, None] * quantized.codes.astype(np.float32)
    table = table + quantized.biases[:, None]
    ids = np.random.default_rng(1).integers(0, 50, (40, 3)).astype(id_dtype)
    same(fo.embedding_lookup(quantized, ids), table[ids])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("id_dtype", [np.int32, np.int64])
def test_bags_have_the_bits_of_the_float32_table(
    combiner: str, weighted: bool, id_dtype: Any
) -> None:
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 9, 400)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = rng.integers(0, 50, offsets[-1]).astype(id_dtype)
    weights = rng.normal(size=ids.size) if weighted else None
    for width in WIDTHS:
        quantized = fo.quantize_table(numbers((50, width), width))
        found, wanted = (
            fo.embedding_lookup_sparse(
                table, fo.RaggedIds(ids, offsets), weights, combiner=combiner
            )
            for table in (quantized, quantized.dequantize())
        )
        same(found, wanted)


def test_bags_are_summed_in_order() -> None:
    quantized, weights = fo.quantize_table(numbers((20, 21))), numbers((30,), 1)
    rows = quantized.dequantize()
    expected = np.zeros((3, 21), np.float32)
    ids = np.random.default_rng(3).integers(0, 20, 30)
    for k, row in enumerate(ids):
        expected[k // 10] += weights[k] * rows[row]
    bags = fo.RaggedIds(ids, [0, 10, 20, 30])
    same(fo.embedding_lookup_sparse(quantized, bags, weights, combiner="sum"), expected)


@pytest.mark.parametrize("width", [16, 20, 48])
def test_large_results(width: int) -> None:
    """They are written around the caches where they consist of whole cache lines."""
    quantized = fo.quantize_table(numbers((300, width)))
    ids = np.random.default_rng(15).integers(0, 300, 26_000_000 // width // 4 + 5)
    with fo.num_threads(2):
        same(fo.embedding_lookup(quantized, ids), quantized.dequantize()[ids])


def test_other_doors() -> None:
    """Parts, `max_norm`, safe look-ups and inner products."""
    quantized = [fo.quantize_table(numbers((5, 3), seed)) for seed in range(2)]
    plain = [part.dequantize() for part in quantized]
    ids = [[9, 0], [], [4, 4, 3]]
    for strategy in ("mod", "div"):
        for norm in (None, 0.7):
            same(
                fo.embedding_lookup(quantized, ids[2], strategy, max_norm=norm),
                fo.embedding_lookup(plain, ids[2], strategy, max_norm=norm),
            )
            same(
                fo.embedding_lookup_sparse(quantized, ids, None, strategy, max_norm=norm),
                fo.embedding_lookup_sparse(plain, ids, None, strategy, max_norm=norm),
            )
    some = [[1, -1], [-1], [0, 4]]
    same(
        fo.safe_embedding_lookup_sparse(quantized[0], some, default_id=2),
        fo.safe_embedding_lookup_sparse(plain[0], some, default_id=2),
    )
    np.testing.assert_allclose(
        fo.embedding_dot(quantized[0], [0, 1], quantized[1], [[2, 3], [4, 0]]),
        fo.embedding_dot(plain[0], [0, 1], plain[1], [[2, 3], [4, 0]]),
        rtol=1e-6,  # three products, summed in another order
        atol=1e-6,
    )


def test_gradients_flow_past_it() -> None:
    """Into weights of bags, and into a trained table beside it."""
    quantized = fo.quantize_table(numbers((6, 4)))
    weights, table = fo.Variable(numbers((3,), 1)), fo.Variable(numbers((6, 4), 2))
    ids = [[0, 5], [2]]

    def loss(served: Any) -> Any:
        bags = fo.embedding_lookup_sparse(served, ids, weights, combiner="sum")
        return np.sum(bags * fo.embedding_lookup(table, [1, 1])) + np.sum(
            fo.embedding_dot(served, [3], table, [[0]])
        )

    found, wanted = (
        fo.gradients(loss(served), [weights, table])
        for served in (quantized, quantized.dequantize())
    )
    same(found[0], wanted[0])
    np.testing.assert_array_equal(found[1].to_dense(), wanted[1].to_dense())


@pytest.mark.parametrize("bad", [6, -1, 2**31 - 1])
@pytest.mark.parametrize("n", [4, 40_000])
def test_ids_out_of_range(bad: int, n: int) -> None:
    quantized = fo.quantize_table(numbers((6, 8)))
    ids = np.zeros(n, np.int64)
    ids[[n // 2, n - 1]] = bad
    message = f"id {bad} at position {n // 2} is out of range for params of 6 rows"
    with fo.num_threads(2):
        with pytest.raises(IndexError, match=message):
            fo.embedding_lookup(quantized, ids)
        bags = fo.RaggedIds(ids, np.arange(0, n + 1, 2))
        with pytest.raises(IndexError, match=message):
            fo.embedding_lookup_sparse(quantized, bags, None)
        # The kernel checks for itself, where it reads them.
        for offsets, n_out in ((None, n), (np.arange(0, n + 1, 2), n // 2)):
            out = np.empty((n_out, 8), np.float32)
            with pytest.raises(IndexError, match=f"index {bad} at position {n // 2} is out of"):
                _quantized.lookup(quantized.to_fused(), ids, offsets, None, None, out)


def test_kernel_refuses_what_does_not_fit() -> None:
    rows, ids, offsets = np.zeros((4, 10), np.uint8), np.zeros(3, np.int64), np.array([0, 3])
    out, ones = np.empty((1, 2), np.float32), np.ones(1, np.float32)
    for arguments, error, match in (
        ((rows.astype(np.int8), ids, offsets, None, None, out), ValueError, "rows"),
        ((rows[::2, :], ids, offsets, None, None, out), TypeError, "rows"),
        ((rows[:, :7].copy(), ids, offsets, None, None, out), ValueError, "rows"),
        ((rows, ids.astype(float), offsets, None, None, out), TypeError, "ids"),
        ((rows, ids, np.array([0, 4]), None, None, out), ValueError, "offsets of bag 0"),
        ((rows, ids, np.array([-1, 3]), None, None, out), ValueError, "offsets of bag 0"),
        ((rows, ids, offsets[:0], None, None, out), ValueError, "offsets"),
        ((rows, ids, offsets, ones, None, out), ValueError, "weights"),
        ((rows, ids, offsets, None, np.ones(2, np.float32), out), ValueError, "scales"),
        ((rows, ids, None, None, ones, np.empty((3, 2), np.float32)), ValueError, "weights and"),
        ((rows, ids, None, None, None, out), ValueError, "out"),
        ((rows, ids, offsets, None, None, out.astype(float)), ValueError, "out"),
    ):
        with pytest.raises(error, match=match):
            _quantized.lookup(*arguments)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        _quantized.lookup(rows, ids, offsets, None, None, out)


# ------------------------------------------------------------------ equal bits


def digest() -> str:
    """Digest of codes and look-ups of tables of many widths."""
    found = hashlib.sha256()
    rng = np.random.default_rng(9)
    for width in (1, 2, 3, 5, 7, 12, 16, 20, 40, 64, 150, 300):
        quantized = fo.quantize_table(rng.normal(size=(2000, width)))
        ids = rng.integers(0, 2000, 30_000)
        bags = fo.RaggedIds(ids, np.arange(0, 30_001, 10))
        weights = rng.normal(size=30_000)
        for result in (
            quantized.to_fused(),
            fo.embedding_lookup(quantized, ids),
            fo.embedding_lookup_sparse(quantized, bags, None),
            fo.embedding_lookup_sparse(quantized, bags, weights, combiner="sqrtn"),
        ):
            found.update(result.tobytes())
    return found.hexdigest()


@pytest.fixture(scope="module")
def alone() -> str:
    with fo.num_threads(1):
        return digest()


@pytest.mark.parametrize("n", [2, 3, 8])
def test_threads(n: int, alone: str) -> None:
    with fo.num_threads(n):
        assert digest() == alone


@pytest.mark.parametrize("level", _dispatch.supported_levels())
def test_levels(level: str, alone: str, tmp_path: Path) -> None:
    # The checkout comes last on the path: an installed package is what is tested.
    code = f"import sys; sys.path.append({str(ROOT)!r});"
    code += "from tests.embedding.test_quantized import digest; print(digest())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FASTOPT_SIMD": level},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == alone


# ------------------------------------------------------------------ what it is


def test_it_cannot_be_changed() -> None:
    quantized = fo.quantize_table(numbers((4, 3)))
    for array in (quantized.codes, quantized.scales, quantized.biases, quantized.to_fused()):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    for name in ("shape", "codes", "anything"):
        with pytest.raises(AttributeError):
            setattr(quantized, name, None)
    with pytest.raises(TypeError, match="made by quantize_table"):
        fo.QuantizedTable()
    assert fo.quantize_table(quantized) is quantized


def test_as_an_array() -> None:
    quantized = fo.quantize_table(numbers((4, 3)))
    same(np.asarray(quantized), quantized.dequantize())
    same(np.asarray(quantized, np.float64), quantized.dequantize().astype(np.float64))
    with pytest.raises(ValueError, match="makes a copy"):
        np.asarray(quantized, copy=False)
    same(fo.Variable(quantized).numpy(), quantized.dequantize())


def test_fused_rows() -> None:
    quantized = fo.quantize_table(numbers((4, 2, 3)))
    fused = quantized.to_fused().copy()
    assert fused.shape == (4, 14)
    same(fused[:, 6:10].copy().view(np.float32)[:, 0], np.array(quantized.scales))
    same(fused[:, 10:].copy().view(np.float32)[:, 0], np.array(quantized.biases))
    again = fo.QuantizedTable.from_fused(fused, (2, 3))
    fused[:] = 0
    for other in (again, pickle.loads(pickle.dumps(quantized)), copy.deepcopy(quantized)):
        assert other.shape == (4, 2, 3)
        same(other.dequantize(), quantized.dequantize())


def test_fused_rows_that_are_none() -> None:
    fused = fo.quantize_table(numbers((4, 3))).to_fused().copy()
    with pytest.raises(TypeError, match="fused must be of uint8, got dtype int8"):
        fo.QuantizedTable.from_fused(fused.view(np.int8))
    for bad in (fused[0], fused[:, :7]):
        with pytest.raises(ValueError, match="fused must have two axes"):
            fo.QuantizedTable.from_fused(bad)
    with pytest.raises(ValueError, match=r"row_shape \(2, 2\) does not have 3 elements"):
        fo.QuantizedTable.from_fused(fused, (2, 2))
    fused[2, 3:7] = np.frombuffer(np.float32(np.nan).tobytes(), np.uint8)
    with pytest.raises(ValueError, match="not finite, first in row 2: scale nan"):
        fo.QuantizedTable.from_fused(fused)


def test_it_is_not_trained() -> None:
    quantized, w = fo.quantize_table(numbers((4, 3))), fo.Variable(numbers((4, 3)), name="w")
    opt = fo.GradientDescentOptimizer(0.1)
    with pytest.raises(TypeError, match="QuantizedTable"):
        opt.apply_gradients([(np.ones((4, 3), np.float32), quantized)])
    with pytest.raises(TypeError, match="QuantizedTable"):
        opt.minimize(lambda: np.sum(w * w), var_list=[quantized])
    with pytest.raises(TypeError, match="QuantizedTable"):
        fo.gradients(np.sum(w * w), [quantized])
    for operate in (lambda: w * quantized, lambda: np.exp(quantized), lambda: quantized + 1):
        with pytest.raises(TypeError, match="QuantizedTable"):
            operate()


# ------------------------------------------------------------------ peers


def test_against_fbgemm_in_torch() -> None:
    """PyTorch's 8-bit rows are FBGEMM's: the same bytes, and look-ups up to their order."""
    torch = pytest.importorskip("torch")
    table = numbers((2000, 16))
    packed = torch.ops.quantized.embedding_bag_byte_prepack(torch.from_numpy(table))
    quantized = fo.quantize_table(table)
    np.testing.assert_array_equal(quantized.to_fused(), packed.numpy())
    # FBGEMM adds 1e-8 to the range of a row, which counts where that is small.
    small = torch.ops.quantized.embedding_bag_byte_prepack(torch.from_numpy(table / 100))
    codes = fo.quantize_table(table / 100).codes.astype(int)
    assert np.abs(codes - small.numpy()[:, :16]).max() <= 1
    ids, offsets = np.random.default_rng(4).integers(0, 2000, 500), np.arange(0, 501, 5)
    weights = numbers((500,), 5)
    theirs = torch.ops.quantized.embedding_bag_byte_rowwise_offsets(
        packed,
        torch.from_numpy(ids),
        torch.from_numpy(offsets),
        False,
        0,
        False,
        torch.from_numpy(weights),
        None,
        True,
    )
    bags = fo.RaggedIds(ids, offsets)
    ours = fo.embedding_lookup_sparse(quantized, bags, weights, combiner="sum")
    # Five products of numbers of at most about ten, rounded in another order.
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-5)
    rows = torch.ops.quantized.embedding_bag_byte_unpack(packed).numpy()
    np.testing.assert_allclose(quantized.dequantize(), rows, rtol=1e-6, atol=1e-6)


def test_against_fbgemm() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("fbgemm_gpu")
    table = numbers((2000, 24))
    theirs = torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(torch.from_numpy(table))
    np.testing.assert_array_equal(fo.quantize_table(table).to_fused(), theirs.numpy())
