"""The update rules, one module a family."""

from fastopt.optimizers.adagrad import AdagradOptimizer
from fastopt.optimizers.adam import AdamOptimizer, LazyAdamOptimizer
from fastopt.optimizers.ftrl import FtrlOptimizer
from fastopt.optimizers.gradient_descent import GradientDescentOptimizer
from fastopt.optimizers.momentum import MomentumOptimizer

__all__ = [
    "AdagradOptimizer",
    "AdamOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "LazyAdamOptimizer",
    "MomentumOptimizer",
]
