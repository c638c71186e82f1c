"""`IndexedSlices`: what it accepts, what it stands for, and its arithmetic."""

from __future__ import annotations

import copy
import pickle
import weakref

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastopt.indexed_slices import IndexedSlices
from tests import strategies

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def dense_of(slices: IndexedSlices) -> np.ndarray:
    """What slices stand for, by a loop in the order of the rows."""
    dense = np.zeros(slices.dense_shape, slices.dtype)
    for index, row in zip(slices.indices.tolist(), slices.values, strict=True):
        dense[index] += row
    return dense


@pytest.fixture
def three() -> IndexedSlices:
    values = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    return IndexedSlices(values, np.array([2, 0, 2], np.int32), (4, 2))


class TestConstructor:
    def test_attributes(self, three: IndexedSlices) -> None:
        assert three.dense_shape == three.shape == (4, 2)
        assert three.dtype == np.float32
        assert three.ndim == 2
        assert len(three) == 3
        assert three.indices.dtype == np.int32
        assert three.indices.tolist() == [2, 0, 2]

    def test_positional_order_is_values_first_and_dense_shape_is_optional(self) -> None:
        s = IndexedSlices([[1.0]], [5])
        assert s.values.tolist() == [[1.0]]
        assert s.indices.tolist() == [5]
        assert s.dense_shape is None
        assert s.shape is None

    def test_shares_the_values_that_fit(self) -> None:
        values = np.ones((2, 3), np.float32)
        assert np.shares_memory(IndexedSlices(values, [0, 1]).values, values)

    def test_keeps_strided_values_as_a_view(self) -> None:
        values = np.ones((3, 4))[:, ::2]
        assert np.shares_memory(IndexedSlices(values, [0, 1, 2]).values, values)

    @pytest.mark.parametrize("name", ["values", "indices", "dense_shape", "shape", "dtype"])
    def test_attributes_cannot_be_set(self, three: IndexedSlices, name: str) -> None:
        with pytest.raises(AttributeError):
            setattr(three, name, None)

    def test_is_true_even_when_empty(self) -> None:
        s = IndexedSlices(np.zeros((0, 3)), [])
        assert len(s) == 0
        assert bool(s)

    @pytest.mark.parametrize(
        "dtype",
        [np.longlong, np.int_, np.intp, np.intc, np.int8, np.int16, np.uint8, np.uint32, np.uint64],
    )
    def test_every_integer_dtype_is_taken_by_kind_and_size(self, dtype: type) -> None:
        """Quantco/tabmat#84: kernels for C `long` refused an equally wide `long long`."""
        s = IndexedSlices(np.ones((2, 1)), np.array([0, 2], dtype))
        expected = np.int32 if np.dtype(dtype) in (np.int32, np.intc) else np.int64
        assert s.indices.dtype == expected
        assert s.indices.dtype.num in (np.dtype(np.int32).num, np.dtype(np.int64).num)
        assert s.indices.tolist() == [0, 2]

    def test_swapped_bytes_are_read_right(self) -> None:
        """pydata/bottleneck#104: byte-swapped arrays were read as nonsense."""
        s = IndexedSlices(np.array([[1, 2]], ">f4"), np.array([3], ">i8"))
        assert s.values.dtype.isnative
        assert s.indices.dtype == np.int64
        assert s.values.tolist() == [[1, 2]]
        assert s.indices.tolist() == [3]

    def test_strided_indices_become_contiguous(self) -> None:
        s = IndexedSlices(np.ones(3), np.arange(6)[::2])
        assert s.indices.flags.c_contiguous
        assert s.indices.tolist() == [0, 2, 4]

    def test_misaligned_values_become_aligned(self) -> None:
        memory = np.zeros(17, np.uint8)
        values = memory[1:].view(np.float64)
        values[:] = [1, 2]
        assert not values.flags.aligned
        s = IndexedSlices(values, [0, 1])
        assert s.values.flags.aligned
        assert s.values.tolist() == [1, 2]

    def test_read_only_arrays_are_accepted(self) -> None:
        """cython/cython#1605: `buffer source array is read-only` for data that is only read."""
        values, rows = np.ones((2, 2)), np.array([0, 1])
        values.flags.writeable = rows.flags.writeable = False
        assert IndexedSlices(values, rows, (2, 2)).to_dense().tolist() == [[1, 1], [1, 1]]

    def test_a_matrix_loses_its_class(self) -> None:
        s = IndexedSlices(np.array([[1.0, 2.0]]).view(np.matrix), [0])
        assert type(s.values) is np.ndarray

    def test_bfloat16_becomes_float32(self) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        s = IndexedSlices(np.ones((1, 2), ml_dtypes.bfloat16), [0])
        assert s.dtype == np.float32


class TestErrors:
    def test_counts_differ(self) -> None:
        """CVE-2021-37655: updates were read past the end of the buffer."""
        with pytest.raises(ValueError, match="2 rows .* 3 indices"):
            IndexedSlices(np.ones((2, 3)), [0, 1, 2])

    def test_values_without_axis(self) -> None:
        """tensorflow/tensorflow#62978: a scalar crashed eight sparse rules."""
        with pytest.raises(ValueError, match="at least one axis"):
            IndexedSlices(np.float32(1), [0])

    @pytest.mark.parametrize("bad", [[True, False, True], [0.0, 2.0, 1.0], ["a", "b", "c"]])
    def test_indices_that_are_no_integers(self, bad: list) -> None:
        """scipy/scipy#11200: masks and rounded floats were taken as row numbers."""
        with pytest.raises(TypeError, match="indices must be integers, got dtype"):
            IndexedSlices(np.ones(3), bad)

    @pytest.mark.parametrize("bad", [None, {0, 1}, slice(0, 2), [[0], [1, 2]], [None, 0]])
    def test_indices_that_are_no_array(self, bad: object) -> None:
        with pytest.raises(TypeError, match="^indices must be an array of integers, got "):
            IndexedSlices(np.ones((2, 1)), bad)

    def test_masked_indices(self) -> None:
        """What stands behind a mask, -1 or 999999 as often as a row number, was taken for one."""
        with pytest.raises(TypeError, match="^masked entries of indices have no value"):
            IndexedSlices(np.ones((2, 1)), np.ma.array([0, 1], mask=[False, True]))
        assert len(IndexedSlices(np.ones((2, 1)), np.ma.array([0, 1]))) == 2

    def test_empty_mask_is_still_a_mask(self) -> None:
        with pytest.raises(TypeError, match="got dtype bool"):
            IndexedSlices(np.ones((0, 2)), np.array([], bool))

    def test_empty_float_indices_are_empty_indices(self) -> None:
        """tensorflow/tensorflow#57765: empty lists, float64 to NumPy, aborted the process."""
        s = IndexedSlices(np.zeros((0, 3)), np.array([]), (5, 3))
        assert s.indices.dtype == np.int64
        assert not s.to_dense().any()

    @pytest.mark.parametrize("bad", [[[0, 1]], 0])
    def test_indices_of_another_rank(self, bad: object) -> None:
        with pytest.raises(ValueError, match="indices must be one-dimensional"):
            IndexedSlices(np.ones((1, 2)), bad)

    @pytest.mark.parametrize(
        "bad", [np.ones(2, bool), np.ones(2, complex), ["a", "b"], [None, 1.0], [[1.0], [1.0, 2.0]]]
    )
    def test_values_that_are_no_real_numbers(self, bad: object) -> None:
        with pytest.raises(TypeError, match="values"):
            IndexedSlices(bad, [0, 1])

    def test_masked_values(self) -> None:
        with pytest.raises(TypeError, match="masked"):
            IndexedSlices(np.ma.array([1.0, 2.0], mask=[False, True]), [0, 1])
        assert len(IndexedSlices(np.ma.array([1.0, 2.0]), [0, 1])) == 2

    def test_too_wide_unsigned_index_is_named(self) -> None:
        """piskvorky/gensim#2578: an index beyond int64 overflowed inside a worker thread."""
        with pytest.raises(IndexError, match=r"indices\[1\] is 9223372036854775809"):
            IndexedSlices(np.ones((2, 1)), np.array([1, 2**63 + 1], np.uint64))

    def test_index_beyond_every_integer_dtype(self) -> None:
        with pytest.raises(TypeError, match="integers"):
            IndexedSlices(np.ones(1), [2**70])

    @pytest.mark.parametrize(("rows", "bad"), [([1, 4], 4), ([0, -1], -1), ([0, 2**40], 2**40)])
    def test_index_out_of_range_of_dense_shape(self, rows: list[int], bad: int) -> None:
        """tensorflow/tensorflow#98994: the row was skipped without a word."""
        with pytest.raises(IndexError, match=f"index {bad} at position 1 .* 4 rows"):
            IndexedSlices(np.ones((2, 2)), rows, (4, 2))

    @pytest.mark.parametrize("shape", [(4, 3), (4,), (4, 2, 1), ()])
    def test_rows_that_do_not_fit_dense_shape(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"\(2, 2\) do not fit into dense_shape"):
            IndexedSlices(np.ones((2, 2)), [0, 1], shape)

    @pytest.mark.parametrize("shape", [(-1, 2), (2**63, 2)])
    def test_impossible_dense_shape(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="dense_shape has a dimension of"):
            IndexedSlices(np.ones((2, 2)), [0, 1], shape)

    @pytest.mark.parametrize("shape", [4, (4.0, 2), (None, 2), "ab"])
    def test_dense_shape_of_no_integers(self, shape: object) -> None:
        with pytest.raises(TypeError, match="dense_shape must be a sequence of integers"):
            IndexedSlices(np.ones((2, 2)), [0, 1], shape)  # type: ignore[arg-type]

    def test_dense_shape_may_be_an_array(self) -> None:
        s = IndexedSlices(np.ones((1, 2)), [0], np.array([3, 2]))
        assert s.dense_shape == (3, 2)
        assert all(type(n) is int for n in s.dense_shape)


class TestToDense:
    def test_rows_add_up(self, three: IndexedSlices) -> None:
        assert three.to_dense().tolist() == [[3, 4], [0, 0], [6, 8], [0, 0]]
        assert three.to_dense().dtype == np.float32

    def test_needs_dense_shape(self) -> None:
        with pytest.raises(ValueError, match="dense_shape"):
            IndexedSlices([[1.0]], [0]).to_dense()

    def test_huge_shape_is_an_error_without_allocation(self) -> None:
        """pytorch/pytorch#57416: flattened keys overflowed int64."""
        s = IndexedSlices(np.ones((1, 4)), [2**41], (2**62, 4))
        with (
            pytest.warns(UserWarning, match="dense array of 18446744073709551616 elements"),
            pytest.raises((MemoryError, ValueError)),
        ):
            s.to_dense()

    def test_large_result_is_warned_of(self) -> None:
        """TensorFlow's own test: one warning at 1e8 elements, none below."""
        with pytest.warns(UserWarning, match="dense array of 100000000 elements") as caught:
            dense = IndexedSlices(np.ones((1, 1), np.float32), [7], (10**8, 1)).to_dense()
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert dense[7, 0] == 1
        IndexedSlices(np.ones((1, 1), np.float32), [7], (10**8 - 1, 1)).to_dense()

    @given(strategies.slices(dense_shape=True))
    def test_equals_a_loop(self, s: IndexedSlices) -> None:
        np.testing.assert_array_equal(s.to_dense(), dense_of(s))

    @pytest.mark.parametrize(("values", "total"), [([1, 1e8, -1e8], 0), ([1e8, -1e8, 1], 1)])
    def test_order_of_arrival(self, values: list[float], total: float) -> None:
        """pytorch/FBGEMM PR#586: the sum of repeated ids depended on thread timing."""
        s = IndexedSlices(np.array(values, np.float32)[:, None], [2, 2, 2], (3, 1))
        assert s.to_dense()[2, 0] == total
        assert s.coalesce().values.tolist() == [[total]]

    def test_float16_is_summed_in_float32(self) -> None:
        """pytorch/pytorch#35810: a sum of finite halves overflowed half precision on its way."""
        values = np.array([[60000], [60000], [-60000]], np.float16)
        s = IndexedSlices(values, [0, 0, 0], (1, 1))
        assert s.to_dense().dtype == np.float16
        assert s.to_dense().tolist() == [[60000]]
        assert s.coalesce().values.tolist() == [[60000]]

    def test_integers_stay_integers(self) -> None:
        s = IndexedSlices(np.array([2**60, 1]), [0, 0], (2,))
        assert s.to_dense().tolist() == [2**60 + 1, 0]


class TestCoalesce:
    def test_order_of_first_appearance(self, three: IndexedSlices) -> None:
        c = three.coalesce()
        assert c.indices.tolist() == [2, 0]
        assert c.values.tolist() == [[6, 8], [3, 4]]
        assert c.dense_shape == (4, 2)

    def test_sorted(self, three: IndexedSlices) -> None:
        c = three.coalesce(sort=True)
        assert c.indices.tolist() == [0, 2]
        assert c.values.tolist() == [[3, 4], [6, 8]]

    @given(strategies.slices(), st.booleans())
    def test_stands_for_the_same(self, s: IndexedSlices, sort: bool) -> None:
        c = s.coalesce(sort)
        expected = list(dict.fromkeys(s.indices.tolist()))
        assert c.indices.tolist() == (sorted(expected) if sort else expected)
        assert c.indices.dtype == s.indices.dtype
        assert c.dtype == s.dtype
        assert c.dense_shape == s.dense_shape
        rows = int(s.indices.max()) + 1 if len(s) else 1
        shape = (rows, *s.values.shape[1:])
        np.testing.assert_array_equal(
            IndexedSlices(c.values, c.indices, shape).to_dense(),
            dense_of(IndexedSlices(s.values, s.indices, shape)),
        )

    @pytest.mark.parametrize("dtype", [np.float16, np.int64])
    @pytest.mark.parametrize("sort", [False, True])
    def test_dtypes_without_kernel(self, dtype: type, sort: bool) -> None:
        s = IndexedSlices(np.array([[1], [2], [4], [8]], dtype), [7, 2, 7, 0])
        c = s.coalesce(sort)
        assert c.indices.tolist() == ([0, 2, 7] if sort else [7, 2, 0])
        assert c.values.ravel().tolist() == ([8, 2, 5] if sort else [5, 2, 8])
        assert c.dtype == dtype

    def test_strided_values(self) -> None:
        s = IndexedSlices(np.arange(12.0).reshape(3, 4)[:, ::2], [1, 0, 1])
        assert s.coalesce().values.tolist() == [[8, 12], [4, 6]]

    def test_negative_index(self) -> None:
        with pytest.raises(IndexError, match="index -1 at position 0"):
            IndexedSlices(np.ones((1, 2)), [-1]).coalesce()

    def test_far_index(self) -> None:
        """pytorch/pytorch#57416: row numbers beyond 32 bits."""
        s = IndexedSlices(np.ones((2, 4)), [2**41, 2**41], (2**62, 4))
        assert s.coalesce().indices.tolist() == [2**41]
        assert s.coalesce().values.tolist() == [[2, 2, 2, 2]]

    def test_the_original_is_unchanged(self, three: IndexedSlices) -> None:
        before = three.values.copy(), three.indices.copy()
        three.coalesce(sort=True)
        np.testing.assert_array_equal(three.values, before[0])
        np.testing.assert_array_equal(three.indices, before[1])


class TestGrouping:
    def test_is_remembered(self, three: IndexedSlices) -> None:
        grouping = three.grouping(4)
        assert grouping.n_unique == 2
        assert three.grouping(4) is grouping

    def test_is_shared_by_scaled_slices(self, three: IndexedSlices) -> None:
        grouping = three.grouping(4)
        assert (2 * three).grouping(4) is grouping
        assert three.astype(np.float64).grouping(4) is grouping

    def test_belongs_to_a_number_of_rows(self, three: IndexedSlices) -> None:
        three.grouping(4)
        three.grouping(10)
        with pytest.raises(IndexError, match="index 2 at position 0 is out of range for 2 rows"):
            three.grouping(2)

    def test_range_check_names_its_owner(self, three: IndexedSlices) -> None:
        with pytest.raises(IndexError, match="^gradient of 'w': index 2 at position 0"):
            three.check_range(1, "gradient of 'w'")

    def test_indices_changed_by_their_owner_are_checked_anew(self) -> None:
        rows = np.array([0, 1])
        s = IndexedSlices(np.ones((2, 1)), rows, (3, 1))
        rows[1] = 99
        with pytest.raises(IndexError, match="index 99 at position 1"):
            s.check_range(3)
        with pytest.raises(IndexError, match="index 99 at position 1"):
            s.to_dense()


class TestArithmetic:
    @pytest.mark.parametrize(
        "two", [2, 2.0, np.float64(2), np.float32(2), np.array(2.0), np.int8(2)]
    )
    def test_scaling_keeps_dtype(self, three: IndexedSlices, two: object) -> None:
        for scaled in (three * two, two * three):
            assert scaled.values.tolist() == [[2, 4], [6, 8], [10, 12]]
            assert scaled.dtype == np.float32
            assert scaled.indices is three.indices
            assert scaled.dense_shape == three.dense_shape
        assert (three / two).values.tolist() == [[0.5, 1], [1.5, 2], [2.5, 3]]
        assert (three / two).dtype == np.float32

    def test_division_of_integers_is_true(self) -> None:
        assert (IndexedSlices([1, 3], [0, 1]) / 2).values.tolist() == [0.5, 1.5]

    def test_signs(self, three: IndexedSlices) -> None:
        assert (-three).values.tolist() == [[-1, -2], [-3, -4], [-5, -6]]
        assert +three is three

    @pytest.mark.parametrize("other", [True, "2", None, np.ones(2), np.array(True), 1j, [2]])
    def test_what_does_not_scale(self, three: IndexedSlices, other: object) -> None:
        for operation in (lambda: three * other, lambda: other * three, lambda: three / other):
            with pytest.raises(TypeError):
                operation()

    def test_sum_is_concatenation(self, three: IndexedSlices) -> None:
        s = three + 2 * three
        assert s.indices.tolist() == [2, 0, 2, 2, 0, 2]
        np.testing.assert_array_equal(s.to_dense(), 3 * three.to_dense())
        np.testing.assert_array_equal((three - 2 * three).to_dense(), -three.to_dense())

    @pytest.mark.parametrize("other", [1, np.ones((4, 2))])
    def test_sum_with_something_dense(self, three: IndexedSlices, other: object) -> None:
        for operation in (lambda: three + other, lambda: other + three, lambda: three - other):
            with pytest.raises(TypeError):
                operation()

    @given(st.data(), strategies.float_dtypes(), strategies.shapes())
    def test_concatenation_is_addition(
        self, data: st.DataObject, dtype: np.dtype, shape: tuple[int, ...]
    ) -> None:
        one = strategies.slices(shape, dtype, strategies.whole_numbers, dense_shape=True)
        terms = data.draw(st.lists(one, min_size=1, max_size=4))
        total = IndexedSlices.concatenate(terms)
        assert len(total) == sum(map(len, terms))
        np.testing.assert_array_equal(total.to_dense(), sum(t.to_dense() for t in terms))

    def test_concatenation_widens_indices_only_if_they_mix(self, three: IndexedSlices) -> None:
        wide = IndexedSlices(np.ones((1, 2), np.float32), np.array([1], np.int64))
        assert (three + three).indices.dtype == np.int32
        assert (three + wide).indices.dtype == np.int64
        assert (wide + three).dense_shape == (4, 2)

    def test_concatenation_of_one_is_itself(self, three: IndexedSlices) -> None:
        assert IndexedSlices.concatenate([three]) is three

    def test_concatenation_errors(self, three: IndexedSlices) -> None:
        with pytest.raises(ValueError, match="at least one"):
            IndexedSlices.concatenate([])
        with pytest.raises(TypeError, match=r"slices\[1\] must be an IndexedSlices, got"):
            IndexedSlices.concatenate([three, np.ones(2)])  # type: ignore[list-item]
        with pytest.raises(ValueError, match=r"slices\[1\] has rows of shape \(3,\)"):
            IndexedSlices.concatenate([three, IndexedSlices(np.ones((1, 3)), [0])])
        with pytest.raises(ValueError, match=r"slices\[1\] has dense_shape \(5, 2\), not \(4, 2\)"):
            IndexedSlices.concatenate([three, IndexedSlices(np.ones((1, 2)), [0], (5, 2))])

    def test_astype(self, three: IndexedSlices) -> None:
        assert three.astype(np.float32) is three
        assert three.astype(np.float16).dtype == np.float16
        with pytest.raises(TypeError, match="Cannot cast"):
            three.astype(np.int32)
        assert three.astype(np.int32, casting="unsafe").values.tolist() == [[1, 2], [3, 4], [5, 6]]


class TestScipy:
    @pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
    def test_from_scipy(self, kind: type) -> None:
        m = kind(np.array([[0.0, 0], [0, 3], [1, 2]]))
        s = IndexedSlices.from_scipy(m)
        assert s.indices.tolist() == [1, 2]
        assert s.values.tolist() == [[0, 3], [1, 2]]
        assert s.dense_shape == (3, 2)

    @pytest.mark.parametrize("other", [np.ones((2, 2)), None, [[1.0]]])
    def test_from_something_else(self, other: object) -> None:
        with pytest.raises(TypeError, match="needs a scipy.sparse matrix, got"):
            IndexedSlices.from_scipy(other)

    @given(strategies.slices(dense_shape=True).filter(lambda s: s.ndim <= 2))
    def test_there_and_back(self, s: IndexedSlices) -> None:
        m = s.to_scipy()
        assert m.shape == s.dense_shape
        assert m.dtype == s.dtype
        np.testing.assert_array_equal(m.toarray(), s.to_dense())
        back = IndexedSlices.from_scipy(m)
        assert back.indices.tolist() == sorted(set(s.indices.tolist()))

    def test_csr_for_matrices(self, three: IndexedSlices) -> None:
        m = three.to_scipy()
        assert m.format == "csr"
        m.check_format(full_check=True)
        assert m.has_canonical_format

    def test_to_scipy_errors(self) -> None:
        with pytest.raises(ValueError, match="needs a dense_shape"):
            IndexedSlices([[1.0]], [0]).to_scipy()
        with pytest.raises(ValueError, match="scipy.sparse has no arrays of dense_shape"):
            IndexedSlices(np.ones((1, 2, 2)), [0], (3, 2, 2)).to_scipy()
        with pytest.raises(TypeError, match="float16"):
            IndexedSlices(np.ones((1, 2), np.float16), [0], (3, 2)).to_scipy()


class TestObject:
    def test_repr_is_readable(self, three: IndexedSlices) -> None:
        text = repr(three)
        assert "indices=[2, 0, 2], dense_shape=(4, 2), dtype=float32" in text
        assert "[1., 2.]" in text

    def test_repr_of_many_rows_is_short(self) -> None:
        s = IndexedSlices(np.ones((10_000, 100)), np.arange(10_000))
        assert len(repr(s)) < 600

    def test_never_becomes_an_array_silently(self, three: IndexedSlices) -> None:
        with pytest.raises(TypeError, match="to_dense"):
            np.asarray(three)
        with pytest.raises(TypeError):
            np.add(three, np.ones((4, 2)))

    @pytest.mark.parametrize(
        "make", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
    )
    def test_copies(self, three: IndexedSlices, make: object) -> None:
        three.grouping(4)
        other = make(three)  # type: ignore[operator]
        np.testing.assert_array_equal(other.values, three.values)
        np.testing.assert_array_equal(other.indices, three.indices)
        assert other.indices.dtype == three.indices.dtype
        assert other.dense_shape == three.dense_shape

    def test_can_be_referred_to_weakly(self, three: IndexedSlices) -> None:
        assert weakref.ref(three)() is three

    @given(st.data())
    def test_layout_of_values_does_not_matter(self, data: st.DataObject) -> None:
        values = data.draw(hnp.arrays(F64, (3, 2), elements=strategies.numbers(F64)))
        view = data.draw(strategies.any_layout(values))
        rows = data.draw(strategies.any_layout(np.array([2, 0, 2])))
        before = view.tobytes(), rows.tobytes()
        s = IndexedSlices(view, rows, (3, 2))
        np.testing.assert_array_equal(
            s.to_dense(), IndexedSlices(values, [2, 0, 2], (3, 2)).to_dense()
        )
        s.coalesce()
        assert (view.tobytes(), rows.tobytes()) == before
