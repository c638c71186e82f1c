"""The one door for gradients: sparse matrices of SciPy and sparse and dense tensors of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fastopt.conversion import as_gradient
from fastopt.indexed_slices import IndexedSlices
from tests import strategies

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
FORMATS = ["csr", "csc", "coo", "bsr", "dia", "dok", "lil"]
KINDS = [getattr(sp, f"{f}_{kind}") for f in FORMATS for kind in ("matrix", "array")]

# Rows 0 and 2 have entries, row 1 none.
DENSE = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]])


def entries_of(matrix: Any) -> dict[str, tuple[bytes, str]]:
    """The arrays of a sparse object, byte for byte."""
    names = ("row", "col", "data", "indices", "indptr", "offsets")
    arrays = {name: getattr(matrix, name) for name in names if hasattr(matrix, name)}
    return {
        name: (a.tobytes(), a.dtype.str) for name, a in arrays.items() if isinstance(a, np.ndarray)
    }


@st.composite
def coo_entries(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """Entries of a matrix: unsorted, repeated, some of them zero, possibly none."""
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 5)))
    size = draw(st.integers(0, 12))
    cells = st.lists(
        st.tuples(st.integers(0, shape[0] - 1), st.integers(0, shape[1] - 1), st.integers(-4, 4)),
        min_size=size,
        max_size=size,
    )
    table = np.array(draw(cells), np.float64).reshape(size, 3)
    index = draw(st.sampled_from(strategies.INDEX_DTYPES))
    return table[:, 0].astype(index), table[:, 1].astype(index), table[:, 2], shape


class TestScipyFormats:
    @pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
    @pytest.mark.parametrize("like", [F32, F64])
    def test_touched_rows(self, kind: Any, like: np.dtype) -> None:
        m = kind(DENSE)
        before = entries_of(m)
        g = as_gradient(m, like=like, shape=(3, 3))
        assert isinstance(g, IndexedSlices)
        assert g.dtype == like
        assert g.dense_shape == (3, 3)
        np.testing.assert_array_equal(g.to_dense(), DENSE)
        assert entries_of(m) == before
        if kind.__name__ not in ("dia_matrix", "dia_array"):  # a diagonal stores entries of row 1
            assert g.indices.tolist() == [0, 2]

    @pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
    def test_empty(self, kind: Any) -> None:
        g = as_gradient(kind((5, 3)), shape=(5, 3))
        assert len(g) == 0
        assert g.values.shape == (0, 3)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, np.uint16])
    def test_dtypes(self, dtype: type) -> None:
        g = as_gradient(sp.csr_array(DENSE.astype(dtype)), like=F32)
        assert g.dtype == F32
        np.testing.assert_array_equal(g.to_dense(), DENSE)

    @pytest.mark.parametrize("dtype", [bool, complex])
    def test_no_real_numbers(self, dtype: type) -> None:
        with pytest.raises(TypeError, match="must hold real numbers, got dtype"):
            as_gradient(sp.csr_array(DENSE.astype(dtype)), like=F32)

    def test_integers_are_never_rounded(self) -> None:
        with pytest.raises(TypeError, match="cannot hold exactly"):
            as_gradient(sp.csr_array(np.array([[2**24 + 1]])), like=F32)

    def test_another_shape(self) -> None:
        with pytest.raises(
            ValueError, match=r"dense_shape \(3, 3\), its variable has shape \(4, 3\)"
        ):
            as_gradient(sp.csr_array(DENSE), shape=(4, 3))

    def test_only_touched_rows_are_made_dense(self) -> None:
        m = sp.coo_array(([1.0], ([123_456_789], [1])), shape=(2_000_000_000, 4))
        g = as_gradient(m, shape=(2_000_000_000, 4))
        assert g.values.tolist() == [[0, 1, 0, 0]]
        assert g.indices.tolist() == [123_456_789]

    @pytest.mark.skipif(
        tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 15),
        reason="SciPy 1.15 brought sparse arrays of more than two dimensions",
    )
    def test_three_dimensions(self) -> None:
        dense = np.zeros((3, 2, 2))
        dense[1, 0, 1], dense[1, 1, 0], dense[2, 1, 1] = 1, 2, 3
        g = as_gradient(sp.coo_array(dense), shape=(3, 2, 2))
        assert g.indices.tolist() == [1, 2]
        np.testing.assert_array_equal(g.to_dense(), dense)


class TestScipyEntries:
    def test_repeated_entries_add_up(self) -> None:
        """lyst/lightfm#117: duplicates in a COO gradient crashed or counted once."""
        m = sp.coo_array(([1.0, 5, 2, 4], ([2, 0, 2, 2], [1, 0, 1, 0])), shape=(3, 2))
        g = as_gradient(m)
        assert g.indices.tolist() == [0, 2]
        assert g.values.tolist() == [[5, 0], [4, 3]]

    @pytest.mark.parametrize(("data", "total"), [([1, 1e8, -1e8], 0), ([1e8, -1e8, 1], 1)])
    @pytest.mark.parametrize("form", ["coo", "csr"])
    def test_repeated_entries_add_up_in_their_order(
        self, data: list[float], total: float, form: str
    ) -> None:
        values = np.array(data, np.float32)
        if form == "coo":
            m = sp.coo_array((values, ([1, 1, 1], [1, 1, 1])), shape=(3, 2))
        else:
            m = sp.csr_array((values, [1, 1, 1], [0, 0, 3, 3]), shape=(3, 2))
        assert as_gradient(m).values.tolist() == [[0, total]]

    def test_stored_zero_touches_its_row(self) -> None:
        """neuro-galaxy/torch_brain#49: a stored zero was treated as not touched."""
        m = sp.csr_array(([0.0], [1], [0, 0, 0, 1]), shape=(3, 2))
        g = as_gradient(m)
        assert g.indices.tolist() == [2]
        assert g.values.tolist() == [[0, 0]]

    @pytest.mark.parametrize("form", [f for f in FORMATS if f != "dok"])
    def test_stored_zeros_survive_in_every_format(self, form: str) -> None:
        if form == "dia":
            m = sp.dia_array((np.array([[1.0, 0.0, 2.0]]), [0]), shape=(3, 3))
        else:
            m = sp.coo_array(([1.0, 0.0, 2.0], ([0, 1, 2], [0, 1, 2])), shape=(3, 3)).asformat(form)
        assert as_gradient(m).indices.tolist() == [0, 1, 2]

    @pytest.mark.parametrize("offset", [-2, -1, 0, 1, 4])
    def test_diagonals_reach_over_the_edge(self, offset: int) -> None:
        m = sp.dia_array((np.arange(1.0, 8.0)[None], [offset]), shape=(3, 5))
        np.testing.assert_array_equal(as_gradient(m).to_dense(), m.toarray())

    def test_mixed_index_dtypes(self) -> None:
        """scipy/scipy#20182: indptr int64 and indices int32 raised deep inside."""
        m = sp.csr_array(DENSE)
        m.indptr = m.indptr.astype(np.int64)
        m.indices = m.indices.astype(np.int32)
        g = as_gradient(m)
        assert (m.indptr.dtype, m.indices.dtype) == (np.int64, np.int32)
        np.testing.assert_array_equal(g.to_dense(), DENSE)

    @given(coo_entries(), st.sampled_from(["coo", "csr", "csc"]))
    def test_equals_dense_and_leaves_the_matrix_alone(
        self, entries: tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]], form: str
    ) -> None:
        """scipy/scipy#6603: a conversion sorted and summed the caller's matrix in place."""
        row, col, data, shape = entries
        if form == "coo":
            m = sp.coo_array((data, (row, col)), shape=shape)
            touched = set(row.tolist())
        else:  # unsorted within each line, with repeats
            line = row if form == "csr" else col
            order = np.argsort(line, kind="stable")
            n = shape[0] if form == "csr" else shape[1]
            indptr = np.searchsorted(line[order], np.arange(n + 1))
            other = (col if form == "csr" else row)[order]
            m = getattr(sp, f"{form}_array")((data[order], other, indptr), shape=shape)
            touched = set(row.tolist())
        before = entries_of(m)
        g = as_gradient(m, shape=shape)
        assert entries_of(m) == before
        assert g.indices.tolist() == sorted(touched)
        expected = np.zeros(shape)
        np.add.at(expected, (row, col), data)
        np.testing.assert_array_equal(g.to_dense(), expected)

    def test_one_dimension(self) -> None:
        m = sp.coo_array(([1.0, 2.0, 3.0], ([4, 0, 4],)), shape=(5,))
        g = as_gradient(m, shape=(5,))
        assert g.indices.tolist() == [4, 0, 4]
        assert g.to_dense().tolist() == [2, 0, 0, 0, 4]

    @pytest.mark.skipif(
        tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 14), reason="no 1-D CSR before 1.14"
    )
    def test_one_dimensional_csr(self) -> None:
        m = sp.csr_array(np.array([0.0, 1.0, 0.0, 2.0]))
        g = as_gradient(m, shape=(4,))
        assert g.indices.tolist() == [1, 3]
        assert g.to_dense().tolist() == [0, 1, 0, 2]
        m.indptr = np.array([0, 9])
        with pytest.raises(ValueError, match="indptr must rise from 0 over 2 offsets to at most 2"):
            as_gradient(m)


class TestMalformed:
    """Compiled code of SciPy trusts the arrays of a matrix; whoever assembles one may be wrong."""

    @staticmethod
    def assembled(kind: Any, shape: tuple[int, int], **arrays: Any) -> Any:
        m = kind(shape)
        for name, value in arrays.items():
            setattr(m, name, np.asarray(value))
        return m

    @pytest.mark.parametrize("column", [-1, 2, 2**40])
    @pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
    def test_entry_outside_the_shape(self, kind: Any, column: int) -> None:
        m = self.assembled(kind, (2, 2), data=[1.0], indices=[column], indptr=[0, 0, 1])
        with pytest.raises(
            ValueError, match=f"^g is malformed: index {column} of entry 0 is outside"
        ):
            as_gradient(m, name="g")

    @pytest.mark.parametrize("indptr", [[0, 2, 1], [1, 1, 1], [0, 0, 7], [0, 1], [0, -1, 1]])
    @pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
    def test_offsets(self, kind: Any, indptr: list[int]) -> None:
        m = self.assembled(kind, (2, 2), data=[1.0, 2.0], indices=[0, 1], indptr=indptr)
        with pytest.raises(ValueError, match="indptr must rise from 0 over 3 offsets to at most 2"):
            as_gradient(m)

    @pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
    def test_offsets_whose_difference_overflows(self, kind: Any) -> None:
        """Each step from one to the next seems to rise; the process died of it."""
        m = self.assembled(
            kind, (3, 3), data=[1.0, 2.0], indices=[0, 1], indptr=[0, 2**63 - 1, -2, 2]
        )
        with pytest.raises(ValueError, match="indptr must rise from 0 over 4 offsets to at most 2"):
            as_gradient(m)

    def test_block_offsets(self) -> None:
        m = sp.bsr_array(np.ones((4, 4)), blocksize=(2, 2))
        m.indptr = np.array([0, 2, 9])
        with pytest.raises(ValueError, match="indptr must rise"):
            as_gradient(m)

    def test_block_columns(self) -> None:
        m = sp.bsr_array(np.ones((4, 4)), blocksize=(2, 2))
        m.indices = np.array([0, 1, 0, 7])
        with pytest.raises(ValueError, match="^g is malformed: .*axis 1"):
            as_gradient(m, name="g")

    def test_too_few_numbers(self) -> None:
        m = self.assembled(sp.csr_array, (2, 2), data=[1.0], indices=[0, 1], indptr=[0, 1, 2])
        with pytest.raises(ValueError, match="is malformed: 2 indices along axis 1 and 1 entries"):
            as_gradient(m)

    @pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
    def test_blocks_for_numbers(self, kind: Any) -> None:
        m = self.assembled(kind, (2, 2), data=np.ones((2, 3)), indices=[0, 1], indptr=[0, 1, 2])
        with pytest.raises(
            ValueError, match=r"its data have shape \(2, 3\), an entry has shape \("
        ):
            as_gradient(m)

    def test_row_outside_the_shape(self) -> None:
        m = sp.coo_array(([1.0], ([0], [0])), shape=(2, 2))
        m.coords[0][0] = 5
        with pytest.raises(ValueError, match="index 5 of entry 0 is outside axis 0 of size 2"):
            as_gradient(m)


class TestTorch:
    @pytest.fixture
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    def test_dense(self, torch: Any) -> None:
        t = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        g = as_gradient(t, like=F32, shape=(2, 2))
        assert g.tolist() == [[1, 2], [3, 4]]
        assert np.shares_memory(g, t.numpy())
        assert as_gradient(t.T, like=F64).tolist() == [[1, 3], [2, 4]]

    def test_dtypes(self, torch: Any) -> None:
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.uint8):
            assert as_gradient(torch.ones(2, dtype=dtype), like=F32).tolist() == [1, 1]
        for dtype in (torch.bool, torch.complex64):
            with pytest.raises(TypeError, match="must hold real numbers"):
                as_gradient(torch.ones(2, dtype=dtype), like=F32)

    def test_negated_view(self, torch: Any) -> None:
        t = torch.tensor([1 + 2j]).conj().imag
        assert t.is_neg()
        assert as_gradient(t).tolist() == [-2]

    def test_requires_grad(self, torch: Any) -> None:
        dense = torch.ones(2, 2, requires_grad=True)
        for t in (dense, dense.to_sparse(), torch.nn.Parameter(torch.ones(2))):
            with pytest.raises(
                TypeError, match="^g is a tensor that requires a gradient; .*detach"
            ):
                as_gradient(t, name="g")

    def test_other_device(self, torch: Any) -> None:
        with pytest.raises(TypeError, match="device meta"):
            as_gradient(torch.ones(2, device="meta"))

    @pytest.mark.parametrize("coalesced", [False, True])
    def test_coo_with_dense_rows(self, torch: Any, coalesced: bool) -> None:
        values = torch.tensor([[1.0, 2], [3, 4], [5, 6]])
        t = torch.sparse_coo_tensor([[2, 0, 2]], values, (4, 2), check_invariants=True)
        g = as_gradient(t.coalesce() if coalesced else t, like=F32, shape=(4, 2))
        assert g.indices.tolist() == ([0, 2] if coalesced else [2, 0, 2])
        np.testing.assert_array_equal(g.to_dense(), t.to_dense().numpy())
        assert t.is_coalesced() is False

    def test_gradient_of_an_embedding(self, torch: Any) -> None:
        table = torch.nn.Embedding(5, 3, sparse=True)
        table(torch.tensor([4, 1, 4])).sum().backward()
        g = as_gradient(table.weight.grad, like=F32, shape=(5, 3))
        assert g.to_dense().tolist() == [[0] * 3, [1] * 3, [0] * 3, [0] * 3, [2] * 3]

    def test_coo_of_entries(self, torch: Any) -> None:
        t = torch.sparse_coo_tensor(
            [[2, 0, 2, 2], [1, 0, 1, 0]], [1.0, 5, 2, 4], (3, 2), check_invariants=True
        )
        g = as_gradient(t)
        assert g.indices.tolist() == [0, 2]
        assert g.values.tolist() == [[5, 0], [4, 3]]

    def test_coo_of_blocks(self, torch: Any) -> None:
        values = torch.arange(6.0).reshape(3, 2)
        t = torch.sparse_coo_tensor(
            [[1, 1, 1], [0, 2, 0]], values, (2, 3, 2), check_invariants=True
        )
        g = as_gradient(t)
        assert g.indices.tolist() == [1]
        np.testing.assert_array_equal(g.to_dense(), t.to_dense().numpy())

    def test_coo_of_repeated_entries_in_order(self, torch: Any) -> None:
        t = torch.sparse_coo_tensor(
            [[0, 0, 0], [1, 1, 1]], [1e8, -1e8, 1.0], (1, 2), check_invariants=True
        )
        assert as_gradient(t).values.tolist() == [[0, 1]]

    def test_coo_of_bfloat16(self, torch: Any) -> None:
        t = torch.sparse_coo_tensor(
            [[1]], torch.ones(1, 2, dtype=torch.bfloat16), (3, 2), check_invariants=True
        )
        assert as_gradient(t).dtype == F32

    @pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
    @pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
    def test_compressed(self, torch: Any, layout: str) -> None:
        dense = torch.tensor([[0.0, 0, 1, 2], [0, 0, 3, 4], [0, 0, 0, 0], [0, 0, 0, 0]])
        convert = getattr(dense, f"to_sparse_{layout}")
        t = convert((2, 2)) if layout.startswith("bs") else convert()
        g = as_gradient(t, like=F32, shape=(4, 4))
        assert g.indices.tolist() == [0, 1]
        np.testing.assert_array_equal(g.to_dense(), dense.numpy())

    def test_wrong_entries(self, torch: Any) -> None:
        t = torch.sparse_coo_tensor([[7]], [[1.0, 2.0]], (4, 2), check_invariants=False)
        with pytest.raises(ValueError, match="index 7 of entry 0 is outside axis 0 of size 4"):
            as_gradient(t)

    @pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
    @pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
    def test_malformed_compressed(self, torch: Any, layout: str) -> None:
        """PyTorch converts by offsets and indices that it trusts: the process died here."""
        make = getattr(torch, f"sparse_{layout}_tensor")
        values = torch.ones((2, 2, 2)) if layout.startswith("bs") else torch.ones(2)
        for offsets, indices in (
            ([0, 1, 99], [0, 1]),
            ([0, 1, 2], [0, 10**9]),
            ([0, 1, 2], [0, -1]),
        ):
            size = (4, 4) if layout.startswith("bs") else (2, 2)
            t = make(offsets, indices, values, size, check_invariants=False)
            with pytest.raises(ValueError, match="^g is malformed: "):
                as_gradient(t, name="g")

    @pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
    @pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
    def test_what_is_no_array(self, torch: Any) -> None:
        with pytest.raises(TypeError, match="^g is a nested tensor"):
            as_gradient(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), name="g")
        with pytest.raises(TypeError, match="^g is a tensor of torch.float8_e4m3fn, which NumPy"):
            as_gradient(torch.ones(2).to(torch.float8_e4m3fn), name="g")

    def test_no_sparse_dimension(self, torch: Any) -> None:
        t = torch.sparse_coo_tensor(
            torch.zeros((0, 1), dtype=torch.long), torch.ones(1), (), check_invariants=True
        )
        with pytest.raises(TypeError, match="without sparse dimensions"):
            as_gradient(t)

    def test_another_layout(self, torch: Any) -> None:
        t = torch.ones(2).to_mkldnn() if torch.backends.mkldnn.is_available() else None
        if t is None:
            pytest.skip("this PyTorch has no other layout")
        with pytest.raises(TypeError, match="layout"):
            as_gradient(t)
