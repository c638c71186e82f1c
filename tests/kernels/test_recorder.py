"""The compiled part of the recorder: what `tests/autodiff` doesn't see of it."""

import numpy as np
import pytest

from fastopt._kernels import _recorder
from fastopt._kernels._recorder import Form, Node, is_inexact, reachable, undo
from fastopt.autodiff import Tensor
from fastopt.autodiff.primitives import Primitive


def test_a_form_counts_its_elements():
    form = Form((2, 3, 4), np.dtype(np.float32))
    assert (form.ndim, form.size) == (3, 24)
    assert Form((), np.dtype(np.float32)).size == 1


def test_a_tensor_class_must_hold_what_calls_return():
    with pytest.raises(TypeError, match="no Cell"):
        _recorder.install(dict, object, print)
    assert type(Tensor(1.0) * 2) is Tensor


def test_only_dtypes_are_asked_whether_gradients_flow():
    assert is_inexact(np.dtype(np.float16))
    assert is_inexact(np.dtype(complex))
    assert not is_inexact(np.dtype(int))
    assert not is_inexact(np.dtype([("float", float)]))
    with pytest.raises(TypeError, match="must be a numpy.dtype, got str"):
        is_inexact("f")


def test_ids_rise():
    x = Tensor(1.0) * 2.0
    y = x * 2.0
    assert y._node.id > x._node.id
    assert [node.id for node in reachable([y._node], set())] == [x._node.id, y._node.id]


def test_as_many_gradients_as_arguments():
    operation = Primitive(np.multiply)
    operation.pull = lambda node, argnums, g: [g]
    form = np.dtype(float)
    node = Node(operation, (0, 1), (None, None), (), {}, None, (), form, ())
    with pytest.raises(ValueError, match="1 gradients for 2 arguments"):
        undo((node, (0, 1), (1, 2)), {id(node): (np.ones(()), True)}, *[None] * 5)
