"""Inner products of rows: against NumPy, with wrong arguments, on every number of threads."""

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels._dots import pair_dots, row_dots


def tables(width, dtype, rows=50, others=70):
    rng = np.random.default_rng(width)
    return rng.normal(size=(rows, width)).astype(dtype), rng.normal(size=(others, width)).astype(
        dtype
    )


@pytest.mark.parametrize(
    "width", [0, 1, 3, 4, 8, 12, 15, 16, 17, 27, 31, 32, 33, 48, 100, 128, 300]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("per_row", [1, 6])
def test_against_numpy(width, dtype, per_row):
    first, second = tables(width, dtype)
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 50, 40, dtype=np.int32)
    others = rng.integers(0, 70, 40 * per_row)
    out = np.full(40 * per_row, np.nan, dtype)
    row_dots(first, ids, second, others, out)
    a = np.repeat(first[ids], per_row, axis=0).astype(np.float64)
    exact = np.sum(a * second[others], axis=1)
    # Any order of n terms is within n roundings of the sum of magnitudes.
    bound = (width + 1) * np.finfo(dtype).eps * np.sum(np.abs(a * second[others]), axis=1)
    assert np.all(np.abs(out - exact) <= bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_on_any_number_of_threads(dtype):
    first, second = tables(100, dtype)
    rng = np.random.default_rng(1)
    ids, others = rng.integers(0, 50, 4000), rng.integers(0, 70, 4000 * 6)
    seen = set()
    for threads in (1, 2, 5):
        out = np.empty(others.size, dtype)
        with fo.num_threads(threads):
            row_dots(first, ids, second, others, out)
        seen.add(out.tobytes())
    assert len(seen) == 1


def test_no_rows():
    first, second = tables(4, np.float32)
    none = np.empty(0, np.int64)
    row_dots(first, none, second, none, np.empty(0, np.float32))
    row_dots(first, np.arange(3), second, none, np.empty(0, np.float32))


@pytest.mark.parametrize(
    ("ids", "others", "message"),
    [
        ([0, 50], [0, 0], r"ids\[1\] is 50, out of range for 50 rows"),
        ([-1, 0], [0, 0], r"ids\[0\] is -1"),
        ([0, 0], [0, 70], r"others\[1\] is 70, out of range for 70 rows"),
        ([0, 0], [-(2**62), 0], r"others\[0\]"),
    ],
)
def test_rows_out_of_range(ids, others, message):
    first, second = tables(4, np.float32)
    with pytest.raises(IndexError, match=message):
        row_dots(first, np.array(ids), second, np.array(others), np.empty(2, np.float32))


def test_what_does_not_fit():
    first, second = tables(4, np.float32)
    ids, out = np.arange(4), np.empty(4, np.float32)
    cases = [
        (TypeError, (first[:, ::2], ids, second[:, ::2], ids, out)),
        (TypeError, (first.astype(np.float16), ids, second, ids, out)),
        (ValueError, (first, ids, second.astype(np.float64), ids, out)),
        (ValueError, (first, ids, tables(5, np.float32)[1], ids, out)),
        (ValueError, (first, ids.astype(np.int16), second, ids, out)),
        (ValueError, (first, ids, second, ids.reshape(2, 2), out)),
        (ValueError, (first, ids[:3], second, ids, out)),
        (ValueError, (first, ids[:0], second, ids, out)),
        (ValueError, (first, ids, second, ids, out[:3])),
        (ValueError, (first, ids, second, ids, out.astype(np.float64))),
    ]
    for error, arguments in cases:
        with pytest.raises(error):
            row_dots(*arguments)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        row_dots(first, ids, second, ids, out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0,), (1,), (40,), (20, 2), (900,)])
@pytest.mark.parametrize("further", [(), (1,), (2, 3)])
def test_pairs_are_the_products_and_copies_of_their_ids(dtype, shape, further):
    first, second = tables(100, dtype)
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 50, shape, dtype=np.int32)
    others = rng.integers(0, 70, shape + further)
    found = pair_dots(first, ids, second, others)
    if ids.size == 0:
        assert found is None
        return
    out, flat, other_flat, starts = found
    right = np.empty(others.size, dtype)
    row_dots(first, ids.ravel(), second, others.ravel(), right)
    np.testing.assert_array_equal(out, right.reshape(others.shape))
    for copy, given in ((flat, ids), (other_flat, others)):
        np.testing.assert_array_equal(copy, given.ravel())
        assert copy.dtype == given.dtype and not np.may_share_memory(copy, given)
    np.testing.assert_array_equal(starts, np.arange(ids.size + 1) * (others.size // ids.size))


def test_pairs_leave_what_is_unusual_to_others():
    first, second = tables(4, np.float32)
    ids = np.arange(4)
    assert pair_dots(first, ids, second, ids) is not None
    unusual = [
        (first[:, ::2], ids, second[:, ::2], ids),
        (first.tolist(), ids, second, ids),
        (first.astype(np.float16), ids, second.astype(np.float16), ids),
        (first, ids, second.astype(np.float64), ids),
        (first, ids, tables(5, np.float32)[1], ids),
        (first, ids, second[:, :, None], ids),
        (first, ids.astype(np.uint64), second, ids),
        (first, ids.tolist(), second, ids),
        (first, ids, second, ids[:3]),
        (first, ids, second, ids[::-1]),
        (first, ids[:, None], second, ids),
        (first, ids + 47, second, ids),
        (first, ids, second, ids - 1),
        (first[:0], ids, second, ids),
        (first, ids, second, np.zeros((4, 0), np.int64)),
        (first[0, 0, ...], ids, second, ids),
        (first, ids, np.float32(1.0), ids),
    ]
    for arguments in unusual:
        assert pair_dots(*arguments) is None
