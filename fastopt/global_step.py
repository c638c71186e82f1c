"""The step counter: a variable that `apply_gradients` raises by one at each step."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt._arrays import shown
from fastopt.autodiff.tensor import Differentiable
from fastopt.graph import Graph, GraphKeys, get_default_graph
from fastopt.variable import Variable


def create_global_step(graph: Graph | None = None) -> Variable:
    """Create the step counter of a graph: int64, 0, not trainable.

    Parameters
    ----------
    graph : Graph, optional
        By default the default graph. The graph keeps the counter alive.

    Returns
    -------
    Variable

    Raises
    ------
    ValueError
        If the graph has one.

    Examples
    --------
    >>> import fastopt as fo
    >>> with fo.Graph().as_default():
    ...     step = fo.create_global_step()
    ...     fo.get_global_step() is step
    True
    """
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError(
            '"global_step" already exists in the graph; use get_or_create_global_step()'
        )
    with graph.as_default():
        step = Variable(np.int64(0), trainable=False, name=GraphKeys.GLOBAL_STEP)
    graph.add_to_collection(GraphKeys.GLOBAL_STEP, step)
    return step


def get_global_step(graph: Graph | None = None) -> Variable | None:
    """Return the step counter of a graph.

    Parameters
    ----------
    graph : Graph, optional
        By default the default graph.

    Returns
    -------
    Variable or None
        The only member of the collection `GraphKeys.GLOBAL_STEP`; if that is empty, the variable
        named ``global_step``; None if there is neither.

    Raises
    ------
    TypeError
        If what is found is not an integer scalar variable.
    ValueError
        If the collection has several members.

    Examples
    --------
    >>> import fastopt as fo
    >>> with fo.Graph().as_default():
    ...     fo.get_global_step() is None
    True
    """
    graph = graph or get_default_graph()
    found = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(found) > 1:
        raise ValueError(f"the graph has {len(found)} global steps, there must be one: {found}")
    if not found:
        variables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
        found = [v for v in variables if v.name == GraphKeys.GLOBAL_STEP]
        if not found:
            return None
    assert_global_step(found[0])
    step: Variable = found[0]
    return step


def get_or_create_global_step(graph: Graph | None = None) -> Variable:
    """Return the step counter of a graph, and create it if there is none.

    Parameters
    ----------
    graph : Graph, optional
        By default the default graph.

    Returns
    -------
    Variable

    Raises
    ------
    TypeError
        If the graph has one that is not an integer scalar.

    Examples
    --------
    >>> import fastopt as fo
    >>> with fo.Graph().as_default():
    ...     fo.get_or_create_global_step() is fo.get_or_create_global_step()
    True
    """
    graph = graph or get_default_graph()
    step = get_global_step(graph)
    return create_global_step(graph) if step is None else step


def assert_global_step(global_step: Any) -> None:
    """Check that `global_step` can count steps.

    Raises
    ------
    TypeError
        If it is not a `Variable` or `Tensor`, not of an integer dtype, or not a scalar.
    """
    if not isinstance(global_step, Differentiable):
        raise TypeError(f'"global_step" must be a Variable, got {shown(global_step)}')
    if global_step.dtype.kind not in "iu":
        raise TypeError(f'"global_step" does not have integer type: {global_step.dtype}')
    if global_step.shape != ():
        raise TypeError(f'"global_step" is not a scalar: it has shape {global_step.shape}')


def global_step(global_step: Any) -> int:
    """Return the value of a step counter as a Python integer.

    Raises
    ------
    TypeError
        If it is not an integer scalar.

    Examples
    --------
    >>> import fastopt as fo
    >>> from fastopt.global_step import global_step
    >>> global_step(fo.Variable(7, trainable=False))
    7
    """
    assert_global_step(global_step)
    return int(global_step)
