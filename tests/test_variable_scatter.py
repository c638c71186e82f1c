"""`Variable.scatter_add`, `scatter_sub` and `scatter_update`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt.variable import Variable
from tests.optimizer_db import fresh_graph

__all__ = ["fresh_graph"]


class TestScatter:
    """Rows written by number."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8])
    @pytest.mark.parametrize("kind", [np.int32, np.int64])
    def test_as_numpy(self, dtype: Any, kind: Any) -> None:
        rng = np.random.default_rng(0)
        start = rng.integers(0, 100, size=(7, 3)).astype(dtype)
        values = rng.integers(0, 5, size=(5, 3)).astype(dtype)
        ids = np.array([6, 0, 6, 3, 0], kind)
        slices = fo.IndexedSlices(values, ids, (7, 3))
        for method, ufunc in (("scatter_add", np.add), ("scatter_sub", np.subtract)):
            v, expected = Variable(start), start.copy()
            ufunc.at(expected, ids, values)
            assert getattr(v, method)(slices) is v
            assert v.numpy().tobytes() == expected.tobytes()
        v, expected = Variable(start), start.copy()
        expected[ids] = values
        assert v.scatter_update(slices) is v
        assert v.numpy().tobytes() == expected.tobytes()

    def test_shapes(self) -> None:
        v = Variable(np.zeros(4))
        assert v.scatter_add(fo.IndexedSlices([1.0, 2.0], [3, 3])).numpy().tolist() == [0, 0, 0, 3]
        cube = Variable(np.zeros((2, 2, 2)))
        cube.scatter_sub(fo.IndexedSlices(np.ones((1, 2, 2)), [1]))
        assert cube.numpy().sum() == -4
        v.scatter_update(fo.IndexedSlices(np.zeros(0), np.zeros(0, int)))
        assert v.numpy()[3] == 3

    def test_float16_sums_in_float32(self) -> None:
        v = Variable(np.zeros((2, 1), np.float16))
        rows = np.full((2049, 1), 1.0, np.float32)
        v.scatter_add(fo.IndexedSlices(rows, np.ones(2049, int)))
        assert v.numpy()[1, 0] == 2048  # 2049 to nearest, ties to even; one by one it sticks
        v.scatter_add(fo.IndexedSlices([[60000.0], [-60000.0], [2.0]], [0, 0, 0]))
        assert v.numpy()[0, 0] == 2

    def test_its_own_rows(self) -> None:
        v = Variable(np.arange(6.0).reshape(3, 2))
        v.scatter_add(fo.IndexedSlices(v.value, [2, 1, 0]))
        assert v.numpy().tolist() == [[4, 6], [4, 6], [4, 6]]

    @pytest.mark.parametrize("method", ["scatter_add", "scatter_sub", "scatter_update"])
    def test_what_does_not_fit_changes_nothing(self, method: str) -> None:
        v = Variable(np.zeros((3, 2)), name="v")
        call = getattr(v, method)
        good = np.ones((2, 2))
        for value, error, text in (
            (np.ones((3, 2)), TypeError, f"sparse_delta of {method} on variable 'v' must be an In"),
            (fo.IndexedSlices(good, [0, 3]), IndexError, "index 3 at position 1"),
            (fo.IndexedSlices(good, [0, -1]), IndexError, "index -1"),
            (fo.IndexedSlices(np.ones((2, 3)), [0, 1]), ValueError, r"\(2, 3\)"),
            (fo.IndexedSlices(good, [0, 1], (4, 2)), ValueError, "dense_shape"),
        ):
            with pytest.raises(error, match=text):
                call(value)
        assert (v.numpy() == 0).all()
        with pytest.raises(TypeError, match="not cast"):
            getattr(Variable(np.zeros((3, 2), int)), method)(fo.IndexedSlices(good, [0, 1]))

    def test_booleans_are_not_added(self) -> None:
        v = Variable(np.zeros(2, bool))
        with pytest.raises(TypeError, match="booleans"):
            v.scatter_add(fo.IndexedSlices([1.0], [0]))

    def test_a_tensor_notices(self) -> None:
        v = Variable(np.zeros((3, 2)))
        before = v._version
        v.scatter_update(fo.IndexedSlices(np.ones((1, 2)), [1]))
        assert v._version > before
