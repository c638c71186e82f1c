"""Training on CPUs at the speed of memory, with TensorFlow v1's ``Optimizer`` contract.

Variables are NumPy arrays, losses are NumPy code, gradients are arrays or, where a step touches
few rows of a large table, :class:`IndexedSlices`::

    import numpy as np
    import fastopt as fo

    table = fo.Variable(np.zeros((1_000_000, 16), np.float32), name="table")
    opt = fo.AdagradOptimizer(learning_rate=0.1)
    opt.minimize(lambda: np.mean((fo.embedding_lookup(table, [3, 5]) - 1.0) ** 2))
"""

from fastopt import (
    checkpoint,
    clip,
    constraints,
    datasets,
    distribute,
    loss_scale,
    metrics,
    nn,
    regularizers,
    schedules,
    threads,
)
from fastopt._version import __version__
from fastopt.accumulators import ConditionalAccumulator, SparseConditionalAccumulator
from fastopt.autodiff import (
    AggregationMethod,
    Recording,
    Tensor,
    custom_gradient,
    defvjp,
    defvjp_argnums,
    eager_mode,
    enable_eager_execution,
    executing_eagerly,
    gradients,
    graph_mode,
    primitive,
    stop_gradient,
)
from fastopt.clip import (
    clip_by_average_norm,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
)
from fastopt.config import show_config
from fastopt.embedding import (
    QuantizedTable,
    RaggedIds,
    embedding_dot,
    embedding_lookup,
    embedding_lookup_sparse,
    quantize_table,
    safe_embedding_lookup_sparse,
)
from fastopt.global_step import create_global_step, get_global_step, get_or_create_global_step
from fastopt.gradient_accumulation import GradientAccumulation
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
from fastopt.indexed_slices import IndexedSlices
from fastopt.loss_scale import DynamicLossScale, FixedLossScale
from fastopt.loss_scale_optimizer import MixedPrecisionLossScaleOptimizer
from fastopt.moving_averages import ExponentialMovingAverage, assign_moving_average
from fastopt.operation import Operation
from fastopt.optimizer import Optimizer
from fastopt.optimizers import (
    AdadeltaOptimizer,
    AdagradDAOptimizer,
    AdagradOptimizer,
    AdamaxOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    GroupFtrlOptimizer,
    LAMBOptimizer,
    LARSOptimizer,
    LazyAdamOptimizer,
    LionOptimizer,
    MomentumOptimizer,
    NadamOptimizer,
    PartialRowWiseAdamOptimizer,
    ProximalAdagradOptimizer,
    ProximalGradientDescentOptimizer,
    RMSPropOptimizer,
    RowWiseAdagradOptimizer,
    count_zero_rows,
    decouple,
    prune_zero_rows,
    stochastic_rounding,
    zero_rows,
)
from fastopt.sparse_product import sparse_matmul
from fastopt.step_memory import cached_bytes, empty_cache, set_cache_limit
from fastopt.sync_replicas import SyncReplicasOptimizer
from fastopt.threads import get_num_threads, num_threads, set_num_threads
from fastopt.variable import Variable

__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "AdamaxOptimizer",
    "AggregationMethod",
    "ConditionalAccumulator",
    "DynamicLossScale",
    "ExponentialMovingAverage",
    "FixedLossScale",
    "FtrlOptimizer",
    "GradientAccumulation",
    "GradientDescentOptimizer",
    "Graph",
    "GraphKeys",
    "GroupFtrlOptimizer",
    "IndexedSlices",
    "LAMBOptimizer",
    "LARSOptimizer",
    "LazyAdamOptimizer",
    "LionOptimizer",
    "MixedPrecisionLossScaleOptimizer",
    "MomentumOptimizer",
    "NadamOptimizer",
    "Operation",
    "Optimizer",
    "PartialRowWiseAdamOptimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "QuantizedTable",
    "RMSPropOptimizer",
    "RaggedIds",
    "Recording",
    "RowWiseAdagradOptimizer",
    "SparseConditionalAccumulator",
    "SyncReplicasOptimizer",
    "Tensor",
    "Variable",
    "__version__",
    "add_to_collection",
    "assign_moving_average",
    "cached_bytes",
    "checkpoint",
    "clip",
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "constraints",
    "create_global_step",
    "custom_gradient",
    "datasets",
    "decouple",
    "defvjp",
    "defvjp_argnums",
    "distribute",
    "eager_mode",
    "embedding_dot",
    "embedding_lookup",
    "embedding_lookup_sparse",
    "empty_cache",
    "enable_eager_execution",
    "executing_eagerly",
    "get_collection",
    "get_default_graph",
    "get_global_step",
    "get_num_threads",
    "get_or_create_global_step",
    "global_norm",
    "global_variables",
    "gradients",
    "graph_mode",
    "loss_scale",
    "metrics",
    "nn",
    "num_threads",
    "primitive",
    "regularizers",
    "reset_default_graph",
    "safe_embedding_lookup_sparse",
    "schedules",
    "set_cache_limit",
    "set_num_threads",
    "show_config",
    "sparse_matmul",
    "stochastic_rounding",
    "stop_gradient",
    "threads",
    "trainable_variables",
    "count_zero_rows",
    "prune_zero_rows",
    "quantize_table",
    "zero_rows",
]
