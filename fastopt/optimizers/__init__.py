"""The update rules, one module a family."""

from fastopt.optimizers.adadelta import AdadeltaOptimizer
from fastopt.optimizers.adagrad import AdagradOptimizer
from fastopt.optimizers.adagrad_da import AdagradDAOptimizer
from fastopt.optimizers.adam import AdamOptimizer, LazyAdamOptimizer
from fastopt.optimizers.adamax import AdamaxOptimizer
from fastopt.optimizers.adamw import AdamWOptimizer
from fastopt.optimizers.decoupled import decouple
from fastopt.optimizers.ftrl import FtrlOptimizer
from fastopt.optimizers.gradient_descent import GradientDescentOptimizer
from fastopt.optimizers.group_ftrl import GroupFtrlOptimizer
from fastopt.optimizers.layerwise import LAMBOptimizer, LARSOptimizer
from fastopt.optimizers.lion import LionOptimizer
from fastopt.optimizers.momentum import MomentumOptimizer
from fastopt.optimizers.nadam import NadamOptimizer
from fastopt.optimizers.proximal import ProximalAdagradOptimizer, ProximalGradientDescentOptimizer
from fastopt.optimizers.pruning import count_zero_rows, prune_zero_rows, zero_rows
from fastopt.optimizers.rmsprop import RMSPropOptimizer
from fastopt.optimizers.rounding import stochastic_rounding
from fastopt.optimizers.rowwise import PartialRowWiseAdamOptimizer, RowWiseAdagradOptimizer

__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "AdamaxOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "GroupFtrlOptimizer",
    "LAMBOptimizer",
    "LARSOptimizer",
    "LazyAdamOptimizer",
    "LionOptimizer",
    "MomentumOptimizer",
    "NadamOptimizer",
    "PartialRowWiseAdamOptimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
    "RowWiseAdagradOptimizer",
    "decouple",
    "count_zero_rows",
    "prune_zero_rows",
    "stochastic_rounding",
    "zero_rows",
]
