"""Where arrays start."""

from __future__ import annotations

import numpy as np
import pytest

from fastopt._kernels._memory import empty


@pytest.mark.parametrize("stagger", [0, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("shape", [(), (0,), 5, (3, 4), (1 << 20,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_place_shape_and_layout(stagger: int, shape: tuple[int, ...] | int, dtype: type) -> None:
    array = empty(shape, dtype, stagger)
    assert array.shape == (shape if isinstance(shape, tuple) else (shape,))
    assert array.dtype == dtype
    assert array.flags.c_contiguous and array.flags.aligned and array.flags.writeable
    assert array.ctypes.data % 4096 == stagger * 1088 % 4096


def test_the_last_element_belongs_to_the_array() -> None:
    arrays = [empty((1000,), np.float64, stagger) for stagger in range(8)]
    for k, array in enumerate(arrays):
        array.fill(k)
    for k, array in enumerate(arrays):
        assert (array == k).all()
