"""The one door for gradients: arrays, numbers, lists and slices."""

from __future__ import annotations

import array
import ctypes
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastopt.autodiff.tensor import Tensor
from fastopt.conversion import as_gradient
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable
from tests import strategies

F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)


def fit_for_kernels(a: np.ndarray) -> bool:
    flags = a.flags
    return type(a) is np.ndarray and flags.c_contiguous and flags.aligned and a.dtype.isnative


class WithArray:
    """Offers ``__array__`` and nothing else."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.value, dtype=dtype)


class WithDlpack:
    """Offers ``__dlpack__`` and nothing else."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.value.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.value.__dlpack_device__()


class Broken:
    """An object whose conversion and text fail."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise RuntimeError("no values today")

    def __repr__(self) -> str:
        raise RuntimeError("no text either")


class TestAccepted:
    def test_none_stays_none(self) -> None:
        assert as_gradient(None, like=F32, shape=(3,)) is None

    def test_an_array_that_fits_is_returned_as_it_is(self) -> None:
        g = np.ones((2, 3), np.float32)
        assert as_gradient(g, like=F32, shape=(2, 3)) is g

    @pytest.mark.parametrize(
        "value",
        [
            [[1, 2]],
            [[1.0, 2.0]],
            ((1, 2),),
            [np.array([1.0, 2.0])],
            np.array([[1, 2]]),
            np.array([[1, 2]], np.uint8),
            np.array([[1, 2]], np.float16),
            np.array([[1, 2]], np.longdouble),
            np.array([[1, 2]], ">f4"),
            np.array([[1, 2]], ">i8"),
            np.array([[1.0, 2.0]]).view(np.matrix),
            np.ma.array([[1.0, 2.0]]),
            WithArray([[1.0, 2.0]]),
            WithDlpack(np.array([[1.0, 2.0]])),
            memoryview(np.array([[1.0, 2.0]])),
            Tensor([[1.0, 2.0]]),
        ],
        ids=lambda v: type(v).__name__,
    )
    @pytest.mark.parametrize("like", [F32, F64])
    def test_array_likes(self, value: Any, like: np.dtype) -> None:
        g = as_gradient(value, like=like, shape=(1, 2))
        assert fit_for_kernels(g)
        assert g.dtype == like
        assert g.tolist() == [[1, 2]]

    @pytest.mark.parametrize(
        "value", [array.array("d", [1, 2]), bytearray(b"\x01\x02"), (ctypes.c_float * 2)(1, 2)]
    )
    def test_buffers(self, value: Any) -> None:
        assert as_gradient(value, like=F32).tolist() == [1, 2]

    @pytest.mark.parametrize(
        "value", [2, 2.0, np.float64(2), np.int8(2), np.array(2.0), Variable(2.0)]
    )
    def test_scalars(self, value: Any) -> None:
        g = as_gradient(value, like=F32, shape=())
        assert isinstance(g, np.ndarray)
        assert (g.shape, g.dtype, float(g)) == ((), F32, 2.0)

    def test_gradients_held_by_variables(self) -> None:
        """TensorFlow's own test: gradients stored in variables are taken by value."""
        g = as_gradient(Variable(np.array([1.0, 2.0])), like=F64, shape=(2,))
        assert fit_for_kernels(g)
        assert g.tolist() == [1, 2]

    def test_pandas(self) -> None:
        pandas = pytest.importorskip("pandas")
        assert as_gradient(pandas.Series([1, 2]), like=F32).tolist() == [1, 2]
        frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
        assert as_gradient(frame, like=F32, shape=(2, 2)).tolist() == [[1, 3], [2, 4]]

    @given(st.data(), strategies.arrays(), strategies.float_dtypes())
    def test_every_layout(self, data: st.DataObject, g: np.ndarray, like: np.dtype) -> None:
        view = data.draw(strategies.any_layout(g))
        before = view.tobytes()
        result = as_gradient(view, like=like, shape=g.shape)
        assert fit_for_kernels(result)
        np.testing.assert_array_equal(result, g.astype(like))
        assert view.tobytes() == before

    def test_read_only_memory_map(self, tmp_path: Any) -> None:
        """dask/distributed#1978: gradients are only read, so they may be read-only."""
        path = tmp_path / "g.bin"
        np.arange(4, dtype=np.float32).tofile(path)
        g = as_gradient(np.memmap(path, np.float32, mode="r"), like=F32)
        assert fit_for_kernels(g)
        assert g.tolist() == [0, 1, 2, 3]

    def test_without_like_floats_keep_their_dtype_and_integers_become_float64(self) -> None:
        assert as_gradient(np.ones(2, np.float16)).dtype == F16
        assert as_gradient(np.ones(2, np.int32)).dtype == F64
        assert as_gradient([1, 2]).dtype == F64

    def test_python_floats_are_rounded_once(self) -> None:
        assert as_gradient([0.1], like=F64).tolist() == [0.1]


class TestDtypes:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (np.ones(2, np.complex64), "complex64"),
            (1j, "complex128"),
            (np.ones(2, bool), "bool"),
            (True, "bool"),
            ("word", "<U4"),
            (b"word", "S4"),
            (np.array(["2020"], "M8[Y]"), "datetime64"),
            (np.zeros(2, [("a", float)]), "'a'"),
        ],
    )
    def test_no_real_numbers(self, value: Any, text: str) -> None:
        """tensorflow/tensorflow#113145: a mismatch aborted the process."""
        with pytest.raises(TypeError, match="gradient must hold real numbers, got dtype") as caught:
            as_gradient(value, like=F32)
        assert text in str(caught.value)
        assert "its variable has dtype float32" in str(caught.value)

    @pytest.mark.parametrize(
        "value",
        [
            object(),
            {},
            {1.0},
            [None, 1.0],
            [1.0, [2.0]],
            np.array([1.0, None]),
            Broken(),
            (x for x in [1.0]),
            len,
        ],
        ids=lambda v: type(v).__name__,
    )
    def test_no_array(self, value: Any) -> None:
        with pytest.raises(
            TypeError, match="^my gradient cannot be made an array of real numbers: "
        ):
            as_gradient(value, name="my gradient")

    def test_masked_entries(self) -> None:
        with pytest.raises(TypeError, match="masked entries"):
            as_gradient(np.ma.array([1.0, 2.0], mask=[True, False]))

    @pytest.mark.parametrize("like", [F16, F32, F64])
    @pytest.mark.parametrize("source", [F16, F32, F64, np.dtype(np.longdouble)])
    def test_real_to_real_is_cast(self, source: np.dtype, like: np.dtype) -> None:
        g = as_gradient(np.array([1.5, -2.25], source), like=like)
        assert g.dtype == like
        assert g.tolist() == [1.5, -2.25]

    @pytest.mark.parametrize(
        ("value", "like"),
        [
            (np.array([2**24 + 1]), F32),
            (np.array([2**53 + 1]), F64),
            (np.array([2**63 - 1]), F64),
            (np.array([2**64 - 1], np.uint64), F64),
            (np.array([2**63 + 1], np.uint64), F64),
            (np.array([70000]), F16),
            (np.array([2049], np.int16), F16),
            ([2**24 + 1], F32),
        ],
    )
    def test_integers_are_never_rounded(self, value: Any, like: np.dtype) -> None:
        """HIPS/autograd#482: gradients were truncated."""
        with pytest.raises(TypeError, match=f"integers of dtype u?int.* that {like} cannot hold"):
            as_gradient(value, like=like)

    @pytest.mark.parametrize(
        ("value", "like"),
        [
            (np.array([2**24, -(2**24), 0]), F32),
            (np.array([-(2**63), 2**62]), F64),
            (np.array([2**63, 0], np.uint64), F32),
            (np.array([2048, -2048], np.int16), F16),
            (np.array([255], np.uint8), F16),
            (np.array([], np.int64), F16),
        ],
    )
    def test_integers_that_fit_are_converted_exactly(
        self, value: np.ndarray, like: np.dtype
    ) -> None:
        g = as_gradient(value, like=like)
        assert g.dtype == like
        assert [int(x) for x in g] == value.tolist()

    def test_floats_are_not_cast_to_an_integer_variable(self) -> None:
        with pytest.raises(TypeError, match="has dtype float64, which is not cast to int64"):
            as_gradient([0.5], like=np.dtype(np.int64))

    def test_bfloat16(self) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        bfloat16 = np.dtype(ml_dtypes.bfloat16)
        assert as_gradient(np.ones(2, bfloat16)).dtype == F32
        assert as_gradient(np.ones(2), like=bfloat16).dtype == bfloat16
        assert as_gradient(np.array([1, 2]), like=bfloat16).tolist() == [1, 2]


class TestShape:
    @pytest.mark.parametrize(
        "value", [np.ones(4), np.ones((1, 4)), np.ones((4, 1)), 1.0, np.ones(3)]
    )
    def test_nothing_is_broadcast(self, value: Any) -> None:
        with pytest.raises(ValueError, match=r"^g has shape .*, its variable has shape \(2, 4\)$"):
            as_gradient(value, shape=(2, 4), name="g")

    def test_without_shape_none_is_checked(self) -> None:
        assert as_gradient(np.ones((1, 4))).shape == (1, 4)


class TestSlices:
    def test_slices_that_fit_are_returned_as_they_are(self) -> None:
        s = IndexedSlices(np.ones((2, 3), np.float32), [4, 0])
        assert as_gradient(s, like=F32, shape=(5, 3)) is s

    @given(st.data(), strategies.slices(), strategies.float_dtypes())
    def test_are_made_fit(self, data: st.DataObject, s: IndexedSlices, like: np.dtype) -> None:
        view = data.draw(strategies.any_layout(s.values))
        given_slices = IndexedSlices(view, s.indices, s.dense_shape)
        g = as_gradient(given_slices, like=like)
        assert isinstance(g, IndexedSlices)
        assert fit_for_kernels(g.values)
        assert g.dtype == like
        assert g.dense_shape == s.dense_shape
        np.testing.assert_array_equal(g.values, s.values.astype(like))
        np.testing.assert_array_equal(g.indices, s.indices)

    def test_integer_values_are_converted_exactly(self) -> None:
        assert as_gradient(IndexedSlices([[1, 2]], [0]), like=F32).dtype == F32
        with pytest.raises(TypeError, match="cannot hold exactly"):
            as_gradient(IndexedSlices([[2**24 + 1]], [0]), like=F32)

    def test_another_dense_shape(self) -> None:
        """pytorch/pytorch#57416: shapes near 2**62 overflowed."""
        s = IndexedSlices(np.ones((1, 4)), [2**41], (2**62, 4))
        with pytest.raises(ValueError, match=r"dense_shape \(4611686018427387904, 4\).*\(8, 4\)"):
            as_gradient(s, shape=(8, 4))

    @pytest.mark.parametrize(
        ("values", "shape"), [((3,), (6, 6)), ((3, 5), (6, 6)), ((3, 6, 1), (6, 6)), ((3,), ())]
    )
    def test_values_of_another_shape(self, values: tuple[int, ...], shape: tuple[int, ...]) -> None:
        """tensorflow/tensorflow#106494: eleven kernels aborted the process on another rank."""
        s = IndexedSlices(np.ones(values), [0, 1, 2])
        with pytest.raises(ValueError, match="not rows of its variable") as caught:
            as_gradient(s, shape=shape)
        assert str(values) in str(caught.value)
        assert str(shape) in str(caught.value)

    @pytest.mark.parametrize(("rows", "bad"), [([1, 4], 4), ([1, -1], -1), ([0, 2**40], 2**40)])
    def test_index_out_of_range(self, rows: list[int], bad: int) -> None:
        """tensorflow/tensorflow#98994: a bad row was skipped without a word."""
        s = IndexedSlices(np.ones((2, 2)), rows)
        with pytest.raises(IndexError, match=f"^g: index {bad} at position 1 .* for 4 rows"):
            as_gradient(s, shape=(4, 2), name="g")

    def test_what_was_grouped_stays_grouped(self) -> None:
        s = IndexedSlices(np.ones((2, 2)), [1, 1])
        grouping = s.grouping(3)
        assert as_gradient(s, like=F32, shape=(3, 2)).grouping(3) is grouping


class TestImports:
    def test_no_foreign_library_is_imported(self) -> None:
        code = (
            "import sys, numpy as np\n"
            "from fastopt.conversion import as_gradient\n"
            "from fastopt.variable import Variable\n"
            "Variable([1.0]); as_gradient([1.0]); as_gradient(np.ones(2))\n"
            "print([m for m in ('torch', 'jax', 'scipy.sparse', 'pandas') if m in sys.modules])"
        )
        out = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        assert out.stdout.strip() == "[]"


class TestJax:
    @pytest.fixture
    def jnp(self) -> Any:
        return pytest.importorskip("jax").numpy

    def test_array(self, jnp: Any) -> None:
        g = as_gradient(jnp.array([[1.0, 2.0]]), like=F64, shape=(1, 2))
        assert fit_for_kernels(g)
        assert g.tolist() == [[1, 2]]

    def test_bfloat16(self, jnp: Any) -> None:
        assert as_gradient(jnp.ones(2, jnp.bfloat16), like=F32).tolist() == [1, 1]

    def test_traced_value(self, jnp: Any) -> None:
        import jax

        with pytest.raises(TypeError, match="cannot be made an array"):
            jax.jit(lambda x: as_gradient(x))(jnp.ones(2))
