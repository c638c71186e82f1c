"""Layers, activations, losses and regularization on Variables, Tensors and plain arrays.

Every function is one recorded operation with its own derivative. Given plain arrays it returns
plain arrays; float32 stays float32. Names and argument names are TensorFlow's.
"""

from fastopt.nn.activations import (
    elu,
    gelu,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
    swish,
    tanh,
)
from fastopt.nn.layers import linear
from fastopt.nn.losses import (
    mean_squared_error,
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
)
from fastopt.nn.regularization import dropout, l2_loss

__all__ = [
    "dropout",
    "elu",
    "gelu",
    "l2_loss",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mean_squared_error",
    "relu",
    "sigmoid",
    "sigmoid_cross_entropy_with_logits",
    "silu",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softplus",
    "sparse_softmax_cross_entropy_with_logits",
    "swish",
    "tanh",
]
