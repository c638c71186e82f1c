"""Hyperparameters as functions of the step.

Two faces of one thing. A class such as :class:`ExponentialDecay` is a pure function of the step,
``schedule(step)``; a function such as :func:`exponential_decay`, named and ordered as in
TensorFlow, returns one that is bound to a step and called without arguments. Both kinds can be
any hyperparameter of any optimizer, see :class:`Schedule`.
"""

from fastopt.schedules.base import Schedule
from fastopt.schedules.cosine import (
    CosineDecay,
    CosineDecayRestarts,
    LinearCosineDecay,
    NoisyLinearCosineDecay,
)
from fastopt.schedules.decay import (
    ExponentialDecay,
    InverseTimeDecay,
    NaturalExponentialDecay,
    PiecewiseConstantDecay,
    PolynomialDecay,
)
from fastopt.schedules.functions import (
    cosine_decay,
    cosine_decay_restarts,
    exponential_decay,
    inverse_time_decay,
    linear_cosine_decay,
    natural_exp_decay,
    noisy_linear_cosine_decay,
    piecewise_constant,
    polynomial_decay,
)
from fastopt.schedules.warmup import LinearWarmup, OneCycle

__all__ = [
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LinearCosineDecay",
    "LinearWarmup",
    "NaturalExponentialDecay",
    "NoisyLinearCosineDecay",
    "OneCycle",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "Schedule",
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "inverse_time_decay",
    "linear_cosine_decay",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "polynomial_decay",
]
