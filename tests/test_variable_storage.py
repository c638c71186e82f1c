"""`Variable`: what it begins with, and whose memory it trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from fastopt.autodiff.tensor import Tensor
from fastopt.graph import Graph
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable
from tests import strategies

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as g:
        yield g


def is_storage(a: np.ndarray) -> bool:
    flags = a.flags
    return flags.c_contiguous and flags.aligned and flags.writeable and a.dtype.isnative


class TestInitialValue:
    @pytest.mark.parametrize(
        "dtype",
        [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint64, np.bool_],
    )
    def test_arrays_keep_their_dtype(self, dtype: type) -> None:
        v = Variable(np.ones((2, 3), dtype))
        assert v.dtype == dtype
        assert v.shape == (2, 3)
        assert v.ndim == 2
        assert v.size == 6
        assert len(v) == 2

    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            (1.5, F32),
            ([1.5, 2], F32),
            ([[1.5], [2.5]], F32),
            ((0.5,), F32),
            ([], F32),
            (3, np.int64),
            ([1, 2], np.int64),
            (True, np.bool_),
            ([np.float64(1.5)], F64),
            ([np.zeros(2), np.ones(2)], F64),
            (np.float64(1.5), F64),
            (np.int32(3), np.int32),
        ],
    )
    def test_python_numbers(self, value: Any, dtype: Any) -> None:
        """As in TensorFlow Python floats are float32; what has a dtype keeps it."""
        assert Variable(value).dtype == dtype

    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            ([1, 2], F32),
            ([1.5], F64),
            (np.ones(2), F32),
            (np.ones(2, ">f8"), F64),
            (True, F32),
            (3, np.dtype(np.int32)),
        ],
    )
    def test_dtype_given(self, value: Any, dtype: np.dtype) -> None:
        v = Variable(value, dtype=dtype)
        assert v.dtype == dtype
        np.testing.assert_array_equal(v.numpy(), np.asarray(value, dtype))

    def test_python_floats_are_rounded_once(self) -> None:
        assert float(Variable(0.1, dtype=np.float64)) == 0.1

    @pytest.mark.parametrize(
        ("value", "dtype", "text"),
        [
            (1.5, np.int32, "which is not cast to int32"),
            ([2**24 + 1], np.float32, "cannot hold exactly"),
            ([2**40], np.int32, "cannot hold exactly"),
            ([-1], np.uint8, "cannot hold exactly"),
            (1.0, complex, "dtype must be float16, float32, float64"),
            (1.0, np.longdouble, "dtype must be float16, float32, float64"),
            (1.0, "U3", "dtype must be float16, float32, float64"),
            (1.0, "no such", "no such"),
        ],
    )
    def test_dtype_that_does_not_hold_it(self, value: Any, dtype: Any, text: str) -> None:
        with pytest.raises(TypeError, match=text):
            Variable(value, dtype=dtype)

    @pytest.mark.parametrize(
        "value",
        [1j, "text", None, object(), {}, [None], [[1.0], [1.0, 2.0]], np.array(["2020"], "M8[Y]")],
        ids=lambda v: type(v).__name__,
    )
    def test_no_numbers(self, value: Any) -> None:
        with pytest.raises(TypeError, match="^initial_value of variable 'w' "):
            Variable(value, name="w")

    def test_masked_entries(self) -> None:
        with pytest.raises(TypeError, match="masked entries"):
            Variable(np.ma.array([1.0, 2.0], mask=[True, False]))
        assert Variable(np.ma.array([1.0, 2.0])).numpy().tolist() == [1, 2]

    @pytest.mark.parametrize(
        "value",
        [
            scipy.sparse.csr_matrix(np.eye(2)),
            scipy.sparse.coo_array(np.eye(2)),
            IndexedSlices([[1.0]], [0], (2, 1)),
        ],
        ids=lambda v: type(v).__name__,
    )
    @pytest.mark.parametrize("shared", [False, True])
    def test_sparse(self, value: Any, shared: bool) -> None:
        """pytorch/pytorch#29816: a sparse parameter failed cryptically two calls later."""
        with pytest.raises(TypeError, match="is sparse .*variables are dense, gradients may be"):
            Variable(value, copy=not shared)

    def test_callable(self) -> None:
        calls = []
        v = Variable(lambda: calls.append(1) or [1.0, 2.0])
        assert v.numpy().tolist() == [1, 2]
        assert calls == [1]

    @pytest.mark.parametrize("other", [Variable(np.ones(2)), Tensor(np.ones(2))])
    def test_value_of_another(self, other: Any) -> None:
        v = Variable(other)
        assert v.dtype == F64
        v.assign([2, 2])
        assert np.asarray(other).tolist() == [1, 1]

    @given(st.data(), strategies.arrays())
    def test_every_layout_is_copied_into_storage(self, data: st.DataObject, a: np.ndarray) -> None:
        view = data.draw(strategies.any_layout(a))
        v = Variable(view)
        assert is_storage(v._storage)
        assert not np.shares_memory(v._storage, view)
        assert v.dtype == a.dtype
        np.testing.assert_array_equal(v.numpy(), a)

    @pytest.mark.parametrize("size", [0, 1, 4095, 4096, 100_000])
    def test_sizes(self, size: int) -> None:
        v = Variable(np.arange(size, dtype=np.float32))
        assert is_storage(v._storage)
        np.testing.assert_array_equal(v.value, np.arange(size))

    def test_other_arguments(self) -> None:
        with pytest.raises(TypeError, match="trainable must be True or False, got 'yes'"):
            Variable(1.0, trainable="yes")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="constraint must be callable or None, got 3"):
            Variable(1.0, constraint=3)  # type: ignore[arg-type]
        assert Variable(1.0, constraint=np.abs).constraint is np.abs
        assert Variable(1.0).constraint is None

    def test_bfloat16(self) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        v = Variable([1.5, 2], dtype=ml_dtypes.bfloat16)
        assert v.dtype == ml_dtypes.bfloat16
        assert v.assign([3, 4.0]).numpy().astype(float).tolist() == [3, 4]


class TestShared:
    def test_ndarray(self) -> None:
        memory = np.zeros((2, 3), np.float32)
        v = Variable(memory, copy=False)
        v.assign(np.ones((2, 3))).assign_add(np.ones((2, 3)))
        assert memory.tolist() == [[2] * 3] * 2
        memory[0, 0] = 7
        assert v.numpy()[0, 0] == 7

    def test_memory_map(self, tmp_path: Any) -> None:
        path = tmp_path / "table.bin"
        table = np.memmap(path, np.float32, "w+", shape=(4, 2))
        v = Variable(table, copy=False)
        v.assign(np.full((4, 2), 3))
        table.flush()
        assert np.fromfile(path, np.float32).tolist() == [3] * 8
        assert type(v._storage) is np.ndarray

    def test_buffer(self) -> None:
        memory = bytearray(8)
        Variable(memoryview(memory).cast("f"), copy=False).assign([1, 2])
        assert np.frombuffer(memory, np.float32).tolist() == [1, 2]

    def test_dlpack(self) -> None:
        class Capsule:
            def __init__(self, array: np.ndarray) -> None:
                self.array = array

            def __dlpack__(self, **kwargs: Any) -> Any:
                return self.array.__dlpack__(**kwargs)

            def __dlpack_device__(self) -> tuple[int, int]:
                return self.array.__dlpack_device__()

        memory = np.zeros(2, np.float32)
        assert not np.shares_memory(Variable(Capsule(memory))._storage, memory)
        if np.lib.NumpyVersion(np.__version__) < "2.1.0":  # reads all such memory as read-only
            with pytest.raises(ValueError, match="read-only"):
                Variable(Capsule(memory), copy=False)
        else:
            assert np.shares_memory(Variable(Capsule(memory), copy=False)._storage, memory)

    def test_torch(self) -> None:
        torch = pytest.importorskip("torch")
        t = torch.zeros(3)
        Variable(t, copy=False).assign([1, 2, 3])
        assert t.tolist() == [1, 2, 3]
        p = torch.nn.Parameter(torch.zeros(3))
        Variable(p.detach(), copy=False).assign([1, 2, 3])
        assert p.tolist() == [1, 2, 3]
        with pytest.raises(TypeError, match="requires a gradient; pass tensor.detach"):
            Variable(p, copy=False)
        with pytest.raises(ValueError, match="NumPy has no bfloat16"):
            Variable(t.bfloat16(), copy=False)
        with pytest.raises(ValueError, match="not C-contiguous"):
            Variable(torch.zeros(3, 2).T, copy=False)
        with pytest.raises(TypeError, match="variables are dense"):
            Variable(torch.eye(2).to_sparse())
        assert Variable(t.bfloat16()).dtype == F32

    def test_jax_is_read_only(self) -> None:
        jax = pytest.importorskip("jax")
        with pytest.raises(ValueError, match="read-only"):
            Variable(jax.numpy.ones(2), copy=False)
        assert Variable(jax.numpy.ones(2)).dtype == F32

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (np.broadcast_to(np.ones(3), (2, 3)), "read-only"),
            (np.ones((4, 4))[:, ::2], "not C-contiguous"),
            (np.asfortranarray(np.ones((4, 4))), "not C-contiguous"),
            (np.ones(3)[::-1], "not C-contiguous"),
            (np.zeros(9, np.uint8)[1:].view(np.float64), "not aligned"),
            (np.ones(3, np.dtype(np.float64).newbyteorder("S")), "byte order"),
            ([1.0, 2.0], "no memory to train in place"),
            (1.0, "no memory to train in place"),
            (np.float32(1.0), "no memory to train in place"),
            (Variable(np.ones(2)), "read-only"),
        ],
        ids=lambda v: v if isinstance(v, str) else type(v).__name__,
    )
    def test_memory_that_does_not_fit(self, value: Any, text: str) -> None:
        """cython/cython#1605, pydata/bottleneck#104: nothing is copied silently."""
        with pytest.raises(ValueError, match=f"^initial_value of variable 'w' cannot be.*{text}"):
            Variable(value, name="w", copy=False)

    def test_another_dtype(self) -> None:
        with pytest.raises(ValueError, match="has dtype float64 and not float32"):
            Variable(np.ones(2), dtype=np.float32, copy=False)
        with pytest.raises(TypeError, match="must be float16"):
            Variable(np.ones(2, np.longdouble), copy=False)
        with pytest.raises(TypeError, match="must hold real numbers or booleans, got dtype comp"):
            Variable(np.ones(2, complex), copy=False)

    def test_an_object_that_would_make_a_copy(self) -> None:
        class Copies:
            def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
                if copy is False:
                    raise ValueError("always a copy")
                return np.ones(2)

        assert Variable(Copies()).numpy().tolist() == [1, 1]
        with pytest.raises(ValueError, match="no memory to train in place"):
            Variable(Copies(), copy=False)

    def test_read_only_storage(self) -> None:
        """scikit-learn/scikit-learn PR#25172: refused before anything changes."""
        memory = np.ones(2)
        memory.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            Variable(memory, copy=False)
