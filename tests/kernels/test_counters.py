"""What a step counts: changes of variables, and powers of betas."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from fastopt._kernels._counters import (
    Powers,
    StepRecord,
    Versioned,
    can_count,
    count,
    raise_versions,
)


class Thing(Versioned):
    pass


def test_versions_count_each_mention() -> None:
    one, other = Thing(), Thing()
    raise_versions([(None, one), (3, other), ("again", one)])
    assert (one._version, other._version) == (2, 1)
    raise_versions([])
    assert (one._version, other._version) == (2, 1)


@pytest.mark.parametrize("entry", [None, (1,), [1, Thing()], (1, 2), (1, Thing(), 3)])
def test_versions_of_what_has_none(entry: Any) -> None:
    one = Thing()
    with pytest.raises(TypeError):
        raise_versions([(None, one), entry])
    assert one._version == 1


@pytest.mark.parametrize("code", "bBhHiIlLqQfdg")
def test_counters_count(code: str) -> None:
    counter = np.array(41, code)
    assert can_count(counter)
    after = count(counter)
    assert after == counter == 42
    assert type(after) is type(counter.item())


def test_a_counter_ends_where_the_next_number_is_another() -> None:
    for last in (np.array(127, np.int8), np.array(2**63 - 1), np.array(2.0**53), np.array(np.nan)):
        before = last.tobytes()
        assert not can_count(last)
        with pytest.raises(OverflowError, match=f"is the last number that {last.dtype} counts"):
            count(last)
        assert last.tobytes() == before
    assert can_count(np.array(-(2**63)))


def test_unsigned_counters_go_on_where_signed_ones_end() -> None:
    counter = np.array(2**63 - 1, np.uint64)
    assert can_count(counter)
    assert count(counter) == counter == 2**63


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4])
def test_powers_are_the_arrays(n: int) -> None:
    rng = np.random.default_rng(n)
    names = tuple("abcd"[:n])
    values = {name: float(rng.random()) for name in names} | {"other": 1.0}
    arrays = tuple(np.array(rng.random()) for _ in names)
    powers = Powers(names, arrays)
    assert powers.read() == tuple(array.item() for array in arrays)
    expected = tuple(array.item() * values[name] for name, array in zip(names, arrays, strict=True))
    powers.advance(values)
    assert powers.read() == expected == tuple(array.item() for array in arrays)
    for array in arrays:
        array[()] = 0.25  # as when a checkpoint is restored
    assert powers.read() == (0.25,) * n


def test_powers_change_together_or_not_at_all() -> None:
    arrays = np.array(0.5), np.array(0.25)
    powers = Powers(("a", "b"), arrays)
    for values in ({"a": 0.5}, {"a": 0.5, "b": "none"}):
        with pytest.raises((KeyError, TypeError)):
            powers.advance(values)  # type: ignore[arg-type]
    assert powers.read() == (0.5, 0.25)


@pytest.mark.parametrize(
    "array",
    [
        np.float64(0.5),
        np.array([0.5]),
        np.array(0.5, np.float32),
        np.array(0.5, np.dtype(np.float64).newbyteorder()),
        0.5,
        None,
    ],
)
def test_powers_in_something_else(array: Any) -> None:
    with pytest.raises(ValueError, match="the power of 'b'"):
        Powers(("a", "b"), (np.array(0.5), array))


def test_powers_that_may_not_be_written() -> None:
    array = np.array(0.5)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="the power of 'a'"):
        Powers(("a",), (array,))


def test_more_names_than_powers() -> None:
    with pytest.raises(ValueError, match="2 names, 1 powers"):
        Powers(("a", "b"), (np.array(0.5),))
    with pytest.raises(ValueError, match="5 names"):
        Powers(tuple("abcde"), tuple(np.array(0.5) for _ in range(5)))


def test_every_step_counts_with_threads() -> None:
    power = np.array(1.0)
    powers = Powers(("a",), (power,))

    def work() -> None:
        for _ in range(2000):
            powers.advance({"a": 0.999})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = 1.0
    for _ in range(8000):
        expected *= 0.999
    assert power.item() == expected


def test_records() -> None:
    record = StepRecord("train", "Rule")
    assert (record.name, record.type, record._variables) == ("train", "Rule", ())
    assert (record.sparse_rows, record.dense_parameters, record.step) == (0, 0, None)
    record = StepRecord("train", "Rule", (None,), 2, step=3)
    assert (record._variables, record.sparse_rows, record.step) == ((None,), 2, 3)
