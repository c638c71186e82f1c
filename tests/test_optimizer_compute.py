"""`compute_gradients`: callable and recorded losses, and the order of their checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests.optimizer_db import fresh_graph

__all__ = ["fresh_graph"]

OPT = fo.GradientDescentOptimizer(1.0)


@pytest.fixture
def v() -> Any:
    return fo.Variable(np.array([1.0, 2.0]), name="v")


@pytest.fixture
def w() -> Any:
    return fo.Variable(np.array([3.0, 4.0]), name="w")


def same(a: list[Any], b: list[Any]) -> bool:
    """Compare by identity: == of variables is elementwise."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def both_kinds(function: Any) -> list[Any]:
    """Return the same loss as a callable and as a tensor."""
    return [function, function()]


# ------------------------------------------------------------------ what comes back


def test_pairs_come_in_the_order_of_the_list(v: Any, w: Any) -> None:
    for loss in both_kinds(lambda: np.sum(v * w)):
        pairs = OPT.compute_gradients(loss, [w, v])
        assert same([x for _, x in pairs], [w, v])
        assert [g.tolist() for g, _ in pairs] == [[1, 2], [3, 4]]


def test_a_variable_listed_twice_has_two_pairs(v: Any) -> None:
    for loss in both_kinds(lambda: np.sum(v * v)):
        pairs = OPT.compute_gradients(loss, [v, v])
        assert [g.tolist() for g, _ in pairs] == [[2, 4], [2, 4]]
        assert pairs[0][0] is not pairs[1][0]


def test_no_path_means_none_and_not_zeros(v: Any, w: Any) -> None:
    for loss in both_kinds(lambda: np.sum(v * v)):
        assert OPT.compute_gradients(loss, [w, v])[0][0] is None


def test_a_loss_that_is_no_scalar_acts_as_its_sum(v: Any) -> None:
    for loss in both_kinds(lambda: v * v):
        assert OPT.compute_gradients(loss, [v])[0][0].tolist() == [2, 4]


def test_a_variable_may_be_the_loss(v: Any) -> None:
    for loss in (v, lambda: v):
        assert OPT.compute_gradients(loss, [v])[0][0].tolist() == [1, 1]


def test_the_gradient_of_a_look_up_is_slices() -> None:
    table = fo.Variable(np.ones((5, 2)), name="table")
    for gate in (fo.Optimizer.GATE_NONE, fo.Optimizer.GATE_OP, fo.Optimizer.GATE_GRAPH):
        for loss in both_kinds(lambda: np.sum(fo.embedding_lookup(table, [3, 3]))):
            gradient = OPT.compute_gradients(loss, [table], gate_gradients=gate)[0][0]
            assert isinstance(gradient, fo.IndexedSlices)
            assert gradient.indices.tolist() == [3, 3] and gradient.dense_shape == (5, 2)


def test_none_keeps_its_place_with_every_gate(v: Any, w: Any) -> None:
    for gate in (0, 1, 2):
        pairs = OPT.compute_gradients(lambda: np.sum(v), [w, v], gate_gradients=gate)
        assert pairs[0][0] is None and pairs[1][0].tolist() == [1, 1]


def test_gradients_belong_to_the_caller(v: Any) -> None:
    (g, _), (h, _) = OPT.compute_gradients(lambda: np.sum(3.0 * v), [v, v])
    g += 1.0
    assert h.tolist() == [3, 3]


# ------------------------------------------------------------------ the list of variables


def test_the_default_list_of_a_callable_is_what_it_read(v: Any, w: Any) -> None:
    fixed = fo.Variable(np.ones(2), trainable=False, name="fixed")
    made: list[Any] = []

    def loss() -> Any:
        made.append(fo.Variable(np.ones(2), name="made"))
        return np.sum(w * fixed * made[0]) + np.sum(v) + np.sum(w)

    pairs = OPT.compute_gradients(loss)
    assert same([x for _, x in pairs], [w, made[0], v])


def test_a_callable_that_reads_no_variables_gives_an_empty_list() -> None:
    assert OPT.compute_gradients(lambda: np.float32(3.0)) == []


def test_an_empty_list_of_a_callable_stays_empty(v: Any) -> None:
    called = []
    assert OPT.compute_gradients(lambda: called.append(1) or np.sum(v), []) == []
    assert called == [1]


def test_the_default_list_of_a_tensor_is_all_that_the_graph_trains(v: Any, w: Any) -> None:
    fo.Variable(np.ones(2), trainable=False, name="fixed")
    pairs = OPT.compute_gradients(np.sum(w * w))
    assert same([x for _, x in pairs], [v, w])
    assert pairs[0][0] is None and pairs[1][0].tolist() == [6, 8]


def test_lists_may_be_nested(v: Any, w: Any) -> None:
    x = fo.Variable(np.ones(2), name="x")
    nests: list[Any] = [
        [v, [w, (x,)]],
        (v, {"b": x, "a": w}),
        {"1": v, "2": [w], "3": x},
        iter([v, w, x]),
        (var for var in (v, w, x)),
        {"1": v, "2": w, "3": x}.values(),
    ]
    for nest in nests:
        pairs = OPT.compute_gradients(lambda: np.sum(v * w * x), nest)
        assert same([y for _, y in pairs], [v, w, x])
    for nest in nests[:3]:
        pairs = OPT.compute_gradients(np.sum(v * w * x), nest)
        assert same([y for _, y in pairs], [v, w, x])


def test_a_lone_variable_is_a_list_of_one(v: Any, w: Any) -> None:
    for loss in both_kinds(lambda: np.sum(v * w)):
        pairs = OPT.compute_gradients(loss, v)
        assert same([x for _, x in pairs], [v])


def test_plain_tensors_and_fixed_variables_may_be_listed() -> None:
    x = fo.Tensor(1.0)
    fixed = fo.Variable(np.array(3.0), trainable=False)
    for eager in (fo.eager_mode, fo.graph_mode):
        with eager():
            pairs = OPT.compute_gradients(lambda: x * x * fixed, [x, fixed])
            assert pairs[0][1] is x and float(pairs[0][0]) == 6.0
            assert pairs[1][1] is fixed and float(pairs[1][0]) == 1.0
    assert float(OPT.compute_gradients(x * x, [x])[0][0]) == 2.0


def test_an_intermediate_tensor_may_be_listed(v: Any) -> None:
    y = v * 2.0
    pairs = OPT.compute_gradients(np.sum(y * y), [y, v])
    assert [g.tolist() for g, _ in pairs] == [[4, 8], [8, 16]]


@pytest.mark.parametrize("bad", [None, 3, "v", np.ones(2), object(), {1.0, 2.0}])
def test_what_is_neither_variable_nor_tensor_is_refused(v: Any, bad: Any) -> None:
    for loss in both_kinds(lambda: np.sum(v)):
        with pytest.raises(TypeError, match=r"var_list\[1\] must be a fastopt Variable or Tensor"):
            OPT.compute_gradients(loss, [v, bad])
        with pytest.raises(AttributeError):
            OPT.compute_gradients(loss, [v, bad])


def test_a_bad_list_is_refused_before_the_loss_is_called() -> None:
    def loss() -> Any:
        raise AssertionError("called")

    with pytest.raises(TypeError, match="var_list"):
        OPT.compute_gradients(loss, [3])
    with pytest.raises(ValueError, match="gate_gradients"):
        OPT.compute_gradients(loss, gate_gradients=7)
    with pytest.raises(ValueError, match="aggregation_method"):
        OPT.compute_gradients(loss, aggregation_method=7)


# ------------------------------------------------------------------ the callable


def test_a_callable_is_called_once_without_arguments(v: Any) -> None:
    calls = []

    def loss(*args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        return np.sum(v * v)

    OPT.compute_gradients(loss)
    assert calls == [((), {})]


def test_what_the_callable_raises_comes_through() -> None:
    def loss() -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        OPT.compute_gradients(loss)


def test_a_callable_works_in_eager_mode(v: Any) -> None:
    with fo.eager_mode():
        pairs = OPT.compute_gradients(lambda: np.sum(v * v))
    assert pairs[0][0].tolist() == [2, 4]


def test_a_constant_has_no_gradient(v: Any) -> None:
    for constant in (5, 5.0, np.float32(5), np.ones(3), [1.0, 2.0]):
        assert OPT.compute_gradients(lambda c=constant: c, [v]) == [(None, v)]
    assert OPT.compute_gradients(np.float32(5), [v]) == [(None, v)]


@pytest.mark.parametrize("value", [None, "loss", object(), 1j, np.ones(2, complex)])
def test_what_is_no_loss_is_refused(v: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="must return a Tensor or a number"):
        OPT.compute_gradients(lambda: value, [v])


def test_a_loss_of_several_parts_gets_a_hint(v: Any) -> None:
    """A list of tensors is an array of constants to NumPy: their gradient was lost."""
    for several in (lambda: (np.sum(v), 3.0), lambda: [np.sum(v), np.sum(v)]):
        with pytest.raises(TypeError, match="must return a Tensor or a number, .* add the terms"):
            OPT.compute_gradients(several, [v])


def test_a_loss_of_pytorch_is_refused(v: Any) -> None:
    torch = pytest.importorskip("torch")
    loss = torch.ones((), requires_grad=True)
    with pytest.raises(TypeError, match=r"must return a Tensor or a number, got tensor\("):
        OPT.compute_gradients(lambda: loss, [v])
    for bad in (lambda: loss, loss):
        with pytest.raises(TypeError, match=r"call loss.backward\(\), then apply_gradients"):
            OPT.compute_gradients(bad, [v])


def test_a_forgotten_return_gets_a_hint(v: Any) -> None:
    with pytest.raises(TypeError, match="is a `return` missing"):
        OPT.compute_gradients(lambda: None, [v])


# ------------------------------------------------------------------ the tensor


def test_a_tensor_is_refused_in_eager_mode_first_of_all(v: Any) -> None:
    loss = np.sum(v)
    with fo.eager_mode(), pytest.raises(RuntimeError, match="loss must be a function"):
        OPT.compute_gradients(loss, gate_gradients=99)


def test_checks_of_a_tensor_stop_at_the_first(v: Any) -> None:
    whole = np.ones(2, np.int64)
    loss = np.sum(v)
    integer = fo.Variable(whole, name="n")
    steps: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"gate_gradients": 99}, ValueError, r"GATE_NONE \(0\).*GATE_OP.*GATE_GRAPH.*got 99"),
        ({"loss": integer}, ValueError, "Invalid type int64 for 'n'.*float16.*float32.*float64"),
        ({"grad_loss": "text"}, TypeError, "grad_loss must be an array of real numbers"),
        ({"var_list": [3]}, TypeError, r"var_list\[0\]"),
        ({"var_list": []}, ValueError, "No variables to optimize"),
        ({"aggregation_method": 99}, ValueError, r"None or one of \[0, 1, 2\].*got 99"),
    ]
    # Each error hides the ones behind it.
    for at in range(len(steps)):
        arguments: dict[str, Any] = {"loss": loss}
        for given, _, _ in reversed(steps[at:]):
            arguments.update(given)
        _, error, text = steps[at]
        with pytest.raises(error, match=text):
            OPT.compute_gradients(**arguments)


@pytest.mark.parametrize("loss", [3.0, None, "text", [1.0]])
def test_a_loss_without_a_dtype_is_refused(v: Any, loss: Any) -> None:
    for error in (AttributeError, TypeError):
        with pytest.raises(error, match="loss must be a function without arguments or a Tensor"):
            OPT.compute_gradients(loss, [v])


def test_no_trainable_variables_in_the_graph() -> None:
    with pytest.raises(ValueError, match="No variables to optimize"):
        OPT.compute_gradients(fo.Tensor(1.0) * 2.0)


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize("gate", [3, -1, 0.5, "GATE_OP", None, np.ones(2), [1]])
def test_an_unknown_gate_is_refused(v: Any, gate: Any) -> None:
    for loss in both_kinds(lambda: np.sum(v)):
        with pytest.raises(ValueError, match="gate_gradients must be one of"):
            OPT.compute_gradients(loss, gate_gradients=gate)


def test_true_is_a_gate(v: Any) -> None:
    assert OPT.compute_gradients(lambda: np.sum(v), gate_gradients=True)[0][0].tolist() == [1, 1]
    assert (fo.Optimizer.GATE_NONE, fo.Optimizer.GATE_OP, fo.Optimizer.GATE_GRAPH) == (0, 1, 2)


@pytest.mark.parametrize("method", [3, -1, "ADD_N", 0.5, [0]])
def test_an_unknown_aggregation_method_is_refused(v: Any, method: Any) -> None:
    for loss in both_kinds(lambda: np.sum(v)):
        with pytest.raises(ValueError, match=r"aggregation_method must be None or one of"):
            OPT.compute_gradients(loss, [v], aggregation_method=method)


def test_every_aggregation_method_gives_the_same_sum(v: Any) -> None:
    methods = fo.AggregationMethod
    for method in (
        None,
        methods.DEFAULT,
        methods.ADD_N,
        methods.EXPERIMENTAL_TREE,
        methods.EXPERIMENTAL_ACCUMULATE_N,
        np.int64(1),
    ):
        for loss in both_kinds(lambda: np.sum(v * v + 3.0 * v - v)):
            pairs = OPT.compute_gradients(loss, [v], aggregation_method=method)
            assert pairs[0][0].tolist() == [4, 6]


@pytest.mark.parametrize("colocate", [False, True])
def test_colocation_means_nothing(v: Any, colocate: bool) -> None:
    pairs = OPT.compute_gradients(lambda: np.sum(v), colocate_gradients_with_ops=colocate)
    assert pairs[0][0].tolist() == [1, 1]


def test_the_incoming_gradient_multiplies(v: Any) -> None:
    for loss in both_kinds(lambda: v * v):
        for incoming in ([10.0, -1.0], np.array([10, -1]), fo.Tensor([10.0, -1.0])):
            pairs = OPT.compute_gradients(loss, [v], grad_loss=incoming)
            assert pairs[0][0].tolist() == [20, -4]
    for loss in both_kinds(lambda: np.sum(v * v)):
        assert OPT.compute_gradients(loss, [v], grad_loss=10)[0][0].tolist() == [20, 40]


@pytest.mark.parametrize("incoming", [[1.0], [[1.0, 1.0]], np.ones(3), 1.0])
def test_an_incoming_gradient_of_another_shape_is_refused(v: Any, incoming: Any) -> None:
    for loss in both_kinds(lambda: v * v):
        with pytest.raises(ValueError, match=r"grad_loss must have the shape of the loss"):
            OPT.compute_gradients(loss, [v], grad_loss=incoming)


@pytest.mark.parametrize("incoming", ["text", [1.0, "x"], [True, False], [1j, 1j], object()])
def test_an_incoming_gradient_that_is_no_number_is_refused(v: Any, incoming: Any) -> None:
    for loss in both_kinds(lambda: v * v):
        with pytest.raises(TypeError, match="grad_loss must be an array of real numbers"):
            OPT.compute_gradients(loss, [v], grad_loss=incoming)


# ------------------------------------------------------------------ dtypes


def test_integer_variables_have_no_gradient(v: Any) -> None:
    n = fo.Variable(np.array([1, 2]), name="n")
    for loss in both_kinds(lambda: np.sum(v * n)):
        pairs = OPT.compute_gradients(loss, [n, v])
        assert pairs[0][0] is None and pairs[1][0].tolist() == [1, 2]
    assert OPT.compute_gradients(lambda: np.sum(n * n), [n]) == [(None, n)]


def test_dtypes_stay(v: Any) -> None:
    single = fo.Variable(np.ones(2, np.float32), name="single")
    pairs = OPT.compute_gradients(lambda: np.sum(v) + np.sum(single * single), [v, single])
    assert [g.dtype for g, _ in pairs] == [np.float64, np.float32]


def test_a_class_may_allow_fewer_dtypes(v: Any) -> None:
    class Narrow(fo.Optimizer):
        def _valid_dtypes(self) -> Any:
            return (np.dtype(np.float32),)

    narrow = Narrow(False, "narrow")
    with pytest.raises(ValueError, match="Invalid type float64 for .*expected one of: float32"):
        narrow.compute_gradients(np.sum(v), [v])
    with pytest.raises(ValueError, match="Invalid type float64 for 'v'"):
        narrow.compute_gradients(lambda: np.sum(v), [v])
    with pytest.raises(ValueError, match="Invalid type float64 for 'v'"):
        narrow.apply_gradients([(np.ones(2), v)])


def test_valid_dtypes_of_the_base_class() -> None:
    names = [str(dtype) for dtype in fo.Optimizer(False, "base")._valid_dtypes()]
    assert [name for name in names if name != "bfloat16"] == ["float16", "float32", "float64"]


def test_a_complex_loss_is_refused(v: Any) -> None:
    z = fo.Tensor(np.array([1j, 2j]))
    with pytest.raises(ValueError, match="the loss must be real, .* returned dtype complex128"):
        OPT.compute_gradients(lambda: z * v, [v])
    with pytest.raises(ValueError, match="Invalid type complex128"):
        OPT.compute_gradients(z * v, [v])


def test_what_cannot_be_made_an_array_is_refused(v: Any) -> None:
    ragged = [[1.0], [2.0, 3.0]]
    with pytest.raises(TypeError, match="must return a Tensor or a number"):
        OPT.compute_gradients(lambda: ragged, [v])
    with pytest.raises(TypeError, match="grad_loss must be an array of real numbers"):
        OPT.compute_gradients(lambda: v * v, [v], grad_loss=ragged)
