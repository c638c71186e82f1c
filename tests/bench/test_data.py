"""The arrays that every library gets."""

import numpy as np
import pytest

from bench import data


@pytest.mark.parametrize("shape", [(1,), (5,), (3, 7), ((1 << 20) + 3,)])
def test_numbers_begin_at_a_cache_line(shape: tuple[int, ...]) -> None:
    made = data.numbers(shape, seed=2)
    assert made.shape == shape
    assert made.dtype == np.float32
    assert made.ctypes.data % 64 == 0
    assert np.isfinite(made).all()


def test_a_block_of_numbers_is_repeated() -> None:
    made = data.numbers((2 << 20,))
    np.testing.assert_array_equal(made[: 1 << 20], made[1 << 20 :])
    assert made[: 1 << 20].std() == pytest.approx(0.01, rel=0.01)
