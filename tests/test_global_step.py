"""The step counter."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from fastopt.autodiff.tensor import Tensor
from fastopt.global_step import (
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)
from fastopt.graph import Graph, GraphKeys, add_to_collection, trainable_variables
from fastopt.variable import Variable


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as g:
        yield g


def test_create() -> None:
    step = create_global_step()
    assert (step.name, step.dtype, step.shape, step.trainable) == (
        "global_step",
        np.int64,
        (),
        False,
    )
    assert global_step(step) == 0
    assert trainable_variables() == []
    assert get_global_step() is step


def test_the_graph_keeps_it_alive() -> None:
    create_global_step().assign(5)
    gc.collect()
    step = get_global_step()
    assert step is not None
    assert global_step(step) == 5


def test_create_twice() -> None:
    create_global_step()
    with pytest.raises(ValueError, match='"global_step" already exists'):
        create_global_step()


def test_get_or_create() -> None:
    assert get_global_step() is None
    step = get_or_create_global_step()
    assert get_or_create_global_step() is step


def test_of_another_graph(graph: Graph) -> None:
    other = Graph()
    step = create_global_step(other)
    assert step.graph is other
    assert get_global_step() is None
    assert get_global_step(other) is step
    assert get_or_create_global_step(other) is step


def test_found_by_name() -> None:
    mine = Variable(np.int32(3), trainable=False, name="global_step")
    assert get_global_step() is mine
    with pytest.raises(ValueError, match="already exists"):
        create_global_step()


def test_found_in_the_collection_first() -> None:
    named = Variable(np.int64(3), trainable=False, name="global_step")
    collected = Variable(np.int64(4), trainable=False, name="other")
    add_to_collection(GraphKeys.GLOBAL_STEP, collected)
    assert get_global_step() is collected
    assert named.name == "global_step"


def test_several() -> None:
    for _ in range(2):
        add_to_collection(GraphKeys.GLOBAL_STEP, Variable(np.int64(0)))
    with pytest.raises(ValueError, match="2 global steps"):
        get_global_step()


@pytest.mark.parametrize(
    ("value", "text"), [(1.5, "integer type: float32"), ([1, 2], r"not a scalar: .* \(2,\)")]
)
def test_of_another_kind(value: object, text: str) -> None:
    found = Variable(value, name="global_step")
    with pytest.raises(TypeError, match=text):
        get_or_create_global_step()
    with pytest.raises(TypeError, match=text):
        global_step(found)


@pytest.mark.parametrize("value", [3, np.int64(3), "3", None])
def test_no_variable(value: object) -> None:
    with pytest.raises(TypeError, match='"global_step" must be a Variable, got'):
        assert_global_step(value)


def test_a_tensor_can_be_one() -> None:
    assert global_step(Tensor(np.int64(7))) == 7
