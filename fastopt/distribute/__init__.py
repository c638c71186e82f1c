"""Several replicas that train the same variables, each on its own batch.

`LocalReplicas` runs them as threads of this process::

    replicas = fo.distribute.LocalReplicas(4)
    replicas.run(step, (replicas.split(x), replicas.split(y)))

What optimizers and losses need to know about replicas has TensorFlow's names.
"""

from fastopt.distribute.local import LocalReplicas
from fastopt.distribute.meeting import ReplicaError
from fastopt.distribute.strategy import (
    ReplicaContext,
    Strategy,
    get_loss_reduction,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
    set_loss_reduction,
)
from fastopt.distribute.values import PerReplica, ReduceOp

__all__ = [
    "LocalReplicas",
    "PerReplica",
    "ReduceOp",
    "ReplicaContext",
    "ReplicaError",
    "Strategy",
    "get_loss_reduction",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
    "set_loss_reduction",
]
