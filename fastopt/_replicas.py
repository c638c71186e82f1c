"""`apply_gradients` of several replicas: their lists of pairs become one."""

from __future__ import annotations

from collections.abc import Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any

from fastopt import _pairs
from fastopt.distribute.strategy import Strategy, get_replica_context, get_strategy
from fastopt.distribute.values import PerReplica, ReduceOp
from fastopt.operation import Operation
from fastopt.variable import Variable

if TYPE_CHECKING:
    from fastopt.optimizer import Optimizer

Pairs = Sequence[tuple[Any, Any]]


def meet(
    optimizer: Optimizer, pairs: Sequence[Any], global_step: Variable | None, name: str | None
) -> Operation:
    """Apply the gradients of all replicas: what one of them calls.

    Raises
    ------
    RuntimeError
        In a cross-replica context.
    """
    context = get_replica_context()
    if context is None:
        raise RuntimeError(
            f"apply_gradients of {optimizer._label()} was called in the cross-replica context of"
            f" {get_strategy()!r}; call it in a replica (Strategy.run), or use"
            " _distributed_apply() to apply gradients that are PerReplica"
        )
    read = _pairs.converted(pairs, optimizer._label())
    if global_step is not None:
        optimizer._require_step(global_step)
    # A method of the optimizer: all replicas must use the same one.
    merge = MethodType(apply_gradients, optimizer)
    done: Operation = context.merge_call(merge, (read, global_step, name))
    return done


def apply_gradients(
    optimizer: Optimizer, strategy: Strategy, lists: Any, global_step: Any, name: Any
) -> Operation:
    """Apply the gradients of all replicas, once, when all have come."""
    global_step = _same(global_step, "global_step")
    name = _same(name, "name")
    return optimizer._distributed_apply(strategy, _zipped(strategy, lists), global_step, name)


def _zipped(strategy: Strategy, lists: Any) -> list[tuple[PerReplica, Any]]:
    """Return one list of pairs with a gradient of each replica.

    Replicas must have listed the same variables in the same order. Only variables without a
    gradient may be missing in the lists of some of them.
    """
    replicas: Sequence[Pairs] = strategy._local_values(lists)
    if not _same_variables(replicas):
        replicas = [[pair for pair in pairs if pair[0] is not None] for pairs in replicas]
        if not _same_variables(replicas):
            raise _differ(replicas)
    columns = [[gradient for gradient, _ in pairs] for pairs in replicas]
    return [
        (PerReplica(terms), var)
        for terms, (_, var) in zip(zip(*columns, strict=True), replicas[0], strict=True)
    ]


def _same(value: Any, name: str) -> Any:
    """Return an argument that all replicas must have passed alike."""
    if isinstance(value, PerReplica):
        if any(type(other) is not str or other != value[0] for other in value):
            raise ValueError(f"{name} must be the same on all replicas, got {value!r}")
        return value[0]
    return value


def reduced(strategy: Strategy, pairs: Pairs) -> list[tuple[Any, Any]]:
    """Return the pairs with the gradients of all replicas added."""
    several = strategy.num_replicas_in_sync > 1
    for position, pair in enumerate(pairs):
        gradient, var = _pairs.split(pair, position)
        if several and gradient is not None and not isinstance(gradient, PerReplica):
            raise ValueError(
                f"_distributed_apply: the gradient of variable {_name(var)} must be PerReplica, one"
                f" for each replica of {strategy!r}, got {type(gradient).__name__}"
            )
    names = [getattr(var, "name", "") for _, var in pairs]
    sums = strategy.batch_reduce(ReduceOp.SUM, [gradient for gradient, _ in pairs], names)
    return [(gradient, var) for gradient, (_, var) in zip(sums, pairs, strict=True)]


def _same_variables(replicas: Sequence[Pairs]) -> bool:
    first = replicas[0]
    return all(
        len(pairs) == len(first)
        and all(one[1] is other[1] for one, other in zip(first, pairs, strict=True))
        for pairs in replicas
    )


def _differ(replicas: Sequence[Pairs]) -> ValueError:
    first = [id(var) for _, var in replicas[0]]
    other = next(k for k, pairs in enumerate(replicas) if [id(var) for _, var in pairs] != first)
    return ValueError(
        "all replicas must apply gradients to the same variables in the same order: replica 0 to"
        f" {_listed(replicas[0])}, replica {other} to {_listed(replicas[other])}; pass the same"
        " var_list on all of them"
    )


def _listed(pairs: Pairs) -> str:
    return "[" + ", ".join(_name(var) for _, var in pairs) + "]"


def _name(var: Any) -> str:
    return repr(getattr(var, "name", var))
