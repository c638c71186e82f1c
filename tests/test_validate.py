"""Constraints on hyperparameters."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._validate import Flag, Real, Text, UnsupportedTypeError, accept_all, as_float

REALS = [
    Real(),
    Real(gt=0),
    Real(ge=0, lt=1),
    Real(le=0),
    Real(gt=0, fixed=True),
    Real(ge=0, optional=True),
]


@pytest.mark.parametrize(
    "constraint", [*REALS, Flag(), Text()], ids=lambda c: f"{type(c).__name__} {c}"
)
def test_bad_values_are_refused(constraint: Any) -> None:
    bad = list(constraint.bad_values())
    assert bad
    for value, error in bad:
        with pytest.raises(error, match=r"^Owner: name must be ") as caught:
            constraint.accept("Owner", "name", value)
        assert str(constraint) in str(caught.value)
        assert type(value).__name__ in str(caught.value)


@pytest.mark.parametrize("constraint", REALS, ids=str)
def test_bad_values_at_a_step_are_refused(constraint: Real) -> None:
    if constraint.fixed:
        return
    for value, error in constraint.bad_values():
        with pytest.raises(error, match=r"Owner: name\(\) must be "):
            constraint.read("Owner", "name", lambda value=value: value)


def test_the_words_for_bounds() -> None:
    assert str(Real()) == "a finite real number"
    assert str(Real(ge=0, lt=1)) == "a finite real number >= 0 and < 1"
    assert str(Real(gt=0, optional=True)) == "a finite real number > 0 or None"


@pytest.mark.parametrize(
    "value",
    [
        0.5,
        Fraction(1, 2),
        np.float16(0.5),
        np.float32(0.5),
        np.float64(0.5),
        np.longdouble(0.5),
    ],
)
def test_a_plain_number_is_kept_as_a_float(value: Any) -> None:
    kept = Real().accept("Owner", "name", value)
    assert type(kept) is float and kept == 0.5
    assert Real().read("Owner", "name", kept) == 0.5


def test_integers_are_numbers() -> None:
    assert Real().accept("Owner", "name", 3) == 3.0
    assert Real().accept("Owner", "name", np.uint8(3)) == 3.0


def test_none_stands_for_zero_where_it_is_allowed() -> None:
    assert Real(optional=True).accept("Owner", "name", None) == 0.0


def test_what_holds_a_number_is_read_at_every_step() -> None:
    array = np.array(0.25)
    var = fo.Variable(np.float32(0.5), trainable=False)
    values = iter([1, np.float32(2), np.array(3.0), fo.Variable(4.0)])
    real = Real()
    kept = [real.accept("Owner", "name", value) for value in (array, var, lambda: next(values))]
    assert kept[0] is array and kept[1] is var
    assert real.read("Owner", "name", array) == 0.25
    array[()] = 0.75
    assert real.read("Owner", "name", array) == 0.75
    var.assign(1.5)
    assert real.read("Owner", "name", var) == 1.5
    assert [real.read("Owner", "name", kept[2]) for _ in range(4)] == [1, 2, 3, 4]


def test_a_callable_is_not_called_by_the_constructor() -> None:
    def rate() -> float:
        raise AssertionError("called")

    assert Real(gt=0).accept("Owner", "name", rate) is rate


def test_what_a_callable_raises_comes_through() -> None:
    def rate() -> float:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        Real().read("Owner", "name", rate)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (10**400, math.inf),
        (np.array([1.0]), (1,)),
        (np.zeros((0, 2)), (0, 2)),
        (Decimal("0.5"), None),
        ([0.5], None),
        (np.array(True), None),
        (np.array(1j), None),
        (np.array(None), None),
        (np.zeros((), [("field", float)]), None),
        (np.datetime64("2020-01-01"), None),
        (float, None),
    ],
)
def test_reading_one_number(value: Any, expected: Any) -> None:
    assert as_float(value) == expected


def test_a_number_of_ml_dtypes_is_read() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert as_float(np.array(0.5, ml_dtypes.bfloat16)) == 0.5


def test_a_number_of_pytorch_is_read() -> None:
    torch = pytest.importorskip("torch")
    assert as_float(torch.tensor(0.5)) == 0.5
    assert as_float(torch.tensor(0.5, requires_grad=True)) == 0.5
    assert as_float(torch.tensor([0.5])) == (1,)


def test_an_array_that_cannot_be_read_is_no_number() -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise RuntimeError("no")

    assert as_float(Broken()) is None


def test_flags_and_texts() -> None:
    assert Flag().accept("Owner", "name", np.True_) is True
    assert Flag().read("Owner", "name", False) is False
    assert Text().accept("Owner", "name", "") is None
    assert Text().accept("Owner", "name", "mine") == "mine"


def test_a_table_is_checked_in_its_order() -> None:
    table = {"a": Real(gt=0), "b": Real(gt=0)}
    assert accept_all("Owner", table, {"b": 2, "a": 1}) == {"a": 1.0, "b": 2.0}
    with pytest.raises(ValueError, match="Owner: a must be"):
        accept_all("Owner", table, {"b": -1, "a": -1})


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(TypeError, match=r"x\.\.\. \(str\)$") as caught:
        Real().accept("Owner", "name", "x" * 10_000)
    assert len(str(caught.value)) < 300


def test_the_error_for_a_wrong_type_is_also_what_tensorflow_raises() -> None:
    assert issubclass(UnsupportedTypeError, TypeError)
    assert issubclass(UnsupportedTypeError, AttributeError)
