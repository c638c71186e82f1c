"""Automatic differentiation of NumPy code."""

from fastopt.autodiff import numpy_vjps
from fastopt.autodiff.aggregation import AggregationMethod
from fastopt.autodiff.backward import backward, backward_in_order, gradients
from fastopt.autodiff.custom import custom_gradient, stop_gradient
from fastopt.autodiff.primitives import defvjp, defvjp_argnums, primitive
from fastopt.autodiff.recording import (
    Recording,
    eager_mode,
    enable_eager_execution,
    executing_eagerly,
    graph_mode,
)
from fastopt.autodiff.tensor import Differentiable, Tensor

__all__ = [
    "AggregationMethod",
    "Differentiable",
    "Recording",
    "Tensor",
    "backward",
    "backward_in_order",
    "custom_gradient",
    "defvjp",
    "defvjp_argnums",
    "eager_mode",
    "enable_eager_execution",
    "executing_eagerly",
    "gradients",
    "graph_mode",
    "numpy_vjps",
    "primitive",
    "stop_gradient",
]
