"""Names and collections of variables."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from fastopt import graph as graph_module
from fastopt.graph import (
    Graph,
    GraphKeys,
    add_to_collection,
    get_collection,
    get_default_graph,
    global_variables,
    reset_default_graph,
    trainable_variables,
)
from fastopt.variable import Variable


@pytest.fixture
def graph() -> Iterator[Graph]:
    with Graph().as_default() as g:
        yield g


class TestNames:
    def test_suffixes_count_up(self, graph: Graph) -> None:
        names = [Variable(0.0, name="w").name for _ in range(3)]
        assert names == ["w", "w_1", "w_2"]

    def test_default_name(self, graph: Graph) -> None:
        assert [Variable(0.0).name, Variable(0.0).name] == ["Variable", "Variable_1"]

    def test_suffix_that_is_taken_is_passed_over(self, graph: Graph) -> None:
        assert [graph.unique_name(n) for n in ("w_1", "w", "w", "w_1", "w")] == [
            "w_1",
            "w",
            "w_2",
            "w_1_1",
            "w_3",
        ]

    def test_name_stays_taken_when_the_variable_is_gone(self, graph: Graph) -> None:
        w = Variable(0.0, name="w")
        del w
        gc.collect()
        assert Variable(0.0, name="w").name == "w_1"

    def test_every_graph_has_its_own(self, graph: Graph) -> None:
        Variable(0.0, name="w")
        with Graph().as_default():
            assert Variable(0.0, name="w").name == "w"

    def test_failed_variable_takes_no_name(self, graph: Graph) -> None:
        with pytest.raises(TypeError):
            Variable("text", name="w")
        assert Variable(0.0, name="w").name == "w"

    def test_released_name_is_free_again(self, graph: Graph) -> None:
        for name in ("w", "w_1", "w_2"):
            assert graph.unique_name("w") == name
        graph._release_name("w_2")
        assert graph.unique_name("w") == "w_2"

    def test_no_names(self, graph: Graph) -> None:
        with pytest.raises(ValueError, match="must not be empty"):
            Variable(0.0, name="")
        with pytest.raises(TypeError, match="name must be a string, got 3"):
            Variable(0.0, name=3)  # type: ignore[arg-type]


class TestCollections:
    def test_variables_in_order_of_creation(self, graph: Graph) -> None:
        a = Variable(0.0, name="b")
        b = Variable(0.0, name="a", trainable=False)
        c = Variable(0.0, name="c")
        everything, trained = global_variables(), trainable_variables()
        assert [v is w for v, w in zip(everything, [a, b, c], strict=True)] == [True] * 3
        assert [v is w for v, w in zip(trained, [a, c], strict=True)] == [True] * 2
        assert get_collection(GraphKeys.TRAINABLE_VARIABLES)[1] is c

    def test_a_dropped_variable_is_gone_at_once(self, graph: Graph) -> None:
        kept, dropped = Variable(0.0), Variable(0.0)
        del dropped
        assert len(global_variables()) == len(trainable_variables()) == 1
        assert trainable_variables()[0] is kept

    def test_an_address_used_again_is_another_variable(self, graph: Graph) -> None:
        for k in range(100):
            v = Variable(float(k))
            assert [float(w) for w in global_variables()] == [k]
            del v

    def test_a_variable_is_in_a_collection_once(self, graph: Graph) -> None:
        a, b = Variable(0.0), Variable(0.0)
        for v in (a, b, a):
            add_to_collection("mine", v)
        mine = get_collection("mine")
        assert len(mine) == 2
        assert mine[0] is a
        assert mine[1] is b

    def test_own_collections_hold_variables_weakly_and_the_rest_strongly(
        self, graph: Graph
    ) -> None:
        add_to_collection("mine", Variable(0.0))
        add_to_collection("mine", [1])
        add_to_collection("mine", [1])
        assert get_collection("mine") == [[1], [1]]

    def test_unknown_collection_is_empty(self, graph: Graph) -> None:
        assert get_collection("nobody's") == []

    def test_result_is_a_copy(self, graph: Graph) -> None:
        add_to_collection("mine", 1)
        get_collection("mine").append(2)
        assert get_collection("mine") == [1]

    def test_scope_is_a_pattern_for_names(self, graph: Graph) -> None:
        vs = [Variable(0.0, name=n) for n in ("layer1/w", "layer2/w", "layer1/b")]
        add_to_collection("mine", 1)
        assert [v.name for v in trainable_variables("layer1/")] == ["layer1/w", "layer1/b"]
        assert [v.name for v in global_variables("layer./w")] == ["layer1/w", "layer2/w"]
        assert get_collection("mine", "a") == []
        assert len(vs) == 3

    def test_train_op_holds_the_latest_of_a_name(self, graph: Graph) -> None:
        first, other, second = (SimpleNamespace(name=n) for n in ("Adam", "SGD", "Adam"))
        for op in (first, other, second):
            add_to_collection(GraphKeys.TRAIN_OP, op)
        assert get_collection(GraphKeys.TRAIN_OP) == [second, other]
        add_to_collection(GraphKeys.TRAIN_OP, 3)
        add_to_collection(GraphKeys.TRAIN_OP, 3)
        assert get_collection(GraphKeys.TRAIN_OP)[2:] == [3, 3]

    def test_fast_way_to_set_a_train_op_is_the_same(self, graph: Graph) -> None:
        first, second = SimpleNamespace(name="Adam"), SimpleNamespace(name="Adam")
        graph._set_train_op(first)
        assert get_collection(GraphKeys.TRAIN_OP)[0] is first
        graph._set_train_op(second)
        assert get_collection(GraphKeys.TRAIN_OP)[0] is second
        assert len(get_collection(GraphKeys.TRAIN_OP)) == 1

    def test_collection_name_must_be_a_string(self, graph: Graph) -> None:
        with pytest.raises(TypeError, match="name must be a string, got None"):
            add_to_collection(None, 1)  # type: ignore[arg-type]

    def test_standard_names_are_tensorflows(self) -> None:
        assert GraphKeys.GLOBAL_VARIABLES == "variables"
        assert GraphKeys.TRAINABLE_VARIABLES == "trainable_variables"
        assert GraphKeys.MOVING_AVERAGE_VARIABLES == "moving_average_variables"
        assert GraphKeys.TRAIN_OP == "train_op"
        assert GraphKeys.GLOBAL_STEP == "global_step"


class TestDefaultGraph:
    def test_variables_know_their_graph(self, graph: Graph) -> None:
        assert Variable(0.0).graph is graph
        assert get_default_graph() is graph

    def test_nesting(self, graph: Graph) -> None:
        with Graph().as_default() as inner:
            assert get_default_graph() is inner
        assert get_default_graph() is graph

    def test_left_by_an_exception(self, graph: Graph) -> None:
        with pytest.raises(KeyError), Graph().as_default():
            raise KeyError
        assert get_default_graph() is graph

    def test_reset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(graph_module, "_default", Graph())
        v = Variable(1.0, name="w")
        old = get_default_graph()
        reset_default_graph()
        assert get_default_graph() is not old
        assert global_variables() == []
        assert Variable(0.0, name="w").name == "w"
        assert v.graph is old
        assert old.get_collection(GraphKeys.GLOBAL_VARIABLES)[0] is v

    def test_reset_of_another_graph(self, graph: Graph) -> None:
        with pytest.raises(RuntimeError, match="as_default"):
            reset_default_graph()

    def test_a_new_thread_sees_the_graph_of_the_process(self, graph: Graph) -> None:
        seen: list[Graph] = []
        thread = threading.Thread(target=lambda: seen.append(get_default_graph()))
        thread.start()
        thread.join()
        assert seen == [graph_module._default]

    def test_a_copy_is_the_same_place(self, graph: Graph) -> None:
        assert copy.deepcopy(graph) is graph
        assert pickle.loads(pickle.dumps(graph)) is graph

    def test_repr(self, graph: Graph) -> None:
        v = Variable(0.0)
        assert repr(graph) == "<Graph of 1 variables>"
        assert v.name == "Variable"


def test_many_threads_make_variables_with_unique_names() -> None:
    graph = Graph()
    kept: list[list[Variable]] = [[] for _ in range(8)]
    barrier = threading.Barrier(8)

    def work(mine: list[Variable]) -> None:
        with graph.as_default():
            barrier.wait()
            for k in range(200):
                v = Variable(np.zeros(1), name="w")
                if k % 2:
                    mine.append(v)
                assert any(u is v for u in graph.get_collection(GraphKeys.GLOBAL_VARIABLES))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in kept]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    names = [v.name for mine in kept for v in mine]
    assert len(set(names)) == len(names) == 800
    assert graph.unique_name("w") == "w_1600"
    assert len(graph.get_collection(GraphKeys.GLOBAL_VARIABLES)) == 800
