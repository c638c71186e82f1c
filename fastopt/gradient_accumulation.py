"""`GradientAccumulation`: one step for several micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastopt import _pairs
from fastopt._arrays import shown
from fastopt._slots import WeakIdentityMap
from fastopt._sums import Collected, GradientSum
from fastopt._validate import Real
from fastopt.distribute.context import context_set_to
from fastopt.distribute.strategy import Strategy, get_replica_context, has_strategy
from fastopt.distribute.values import PerReplica
from fastopt.operation import Operation
from fastopt.optimizer import Optimizer
from fastopt.variable import Variable
from fastopt.wrapper import OptimizerWrapper

Pairs = list[tuple[Any, Variable]]


class GradientAccumulation(OptimizerWrapper):
    """An optimizer that collects the gradients of several micro-batches for another one.

    Each call of ``apply_gradients`` adds gradients to running sums. The call that completes
    `num_micro_batches` lets the wrapped optimizer apply their means: one step, in which weight
    decay, clipping, slots, ``global_step`` and schedules advance once. Gradients of a variable stay
    sparse while all of them are; once one is dense, the mean is.

    Parameters
    ----------
    opt : Optimizer
        The optimizer that does the work. The wrapper takes over its name and locking.
    num_micro_batches : int
        How many calls make a step, >= 1.
    transform : callable, optional
        Called with the list of (mean gradient, variable) before it is applied, and returns such a
        list; the place for clipping.

    Raises
    ------
    ValueError
        If `opt` is not an optimizer, or the number is less than 1 or not whole.
    TypeError
        If the number is none, or `transform` cannot be called.

    Notes
    -----
    Where a micro-batch has no gradient for a variable, it counts as zero: the mean is over all
    micro-batches, for sparse gradients too. A variable without a gradient in any of them is left
    alone. What is collected half-way is not part of ``variables()``, but of checkpoints. Slots are
    the wrapped optimizer's, and found through the wrapper.

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> w = fo.Variable(np.array([1.0]), name="w")
    >>> def clipped(pairs):
    ...     gradients, _ = fo.clip_by_global_norm([g for g, _ in pairs], 10.0)
    ...     return [(g, v) for g, (_, v) in zip(gradients, pairs)]
    >>> opt = fo.GradientAccumulation(fo.AdamOptimizer(0.01), 3, transform=clipped)
    >>> for gradient in (1.0, 2.0, 3.0):
    ...     done = opt.apply_gradients([(np.array([gradient]), w)])
    >>> done.dense_parameters, w.numpy().round(6)
    (1, array([0.99]))
    """

    def __init__(
        self,
        opt: Optimizer,
        num_micro_batches: int,
        transform: Callable[[Pairs], Any] | None = None,
    ) -> None:
        super().__init__(opt)
        owner = type(self).__name__
        number = Real(ge=1, fixed=True).accept(owner, "num_micro_batches", num_micro_batches)
        if number != int(number):
            raise ValueError(f"{owner}: num_micro_batches must be whole, got {num_micro_batches!r}")
        if transform is not None and not callable(transform):
            raise TypeError(f"{owner}: transform must be callable, got {shown(transform)}")
        self._num_micro_batches = int(number)
        self._transform = transform
        self._collected = 0
        self._sums: WeakIdentityMap[Variable, GradientSum] = WeakIdentityMap()

    @property
    def num_micro_batches(self) -> int:
        """How many calls make a step."""
        return self._num_micro_batches

    @property
    def num_accumulated(self) -> int:
        """How many micro-batches have been collected since the last step."""
        return self._collected

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Collect the gradients of a micro-batch, and make a step if it was the last one.

        Gradients are checked at each call, and a call that they make fail changes nothing. If it is
        the step that fails (the transform, or a hyperparameter), what was collected stays and
        `flush` tries again. The operation of a call without a step has no variables. See
        :meth:`Optimizer.apply_gradients`.
        """
        return super().apply_gradients(grads_and_vars, global_step, name)

    def _apply_once(
        self, pairs: list[Any], global_step: Variable | None, name: str | None
    ) -> Operation:
        good = _pairs.checked(pairs, self._label())
        self._optimizer._require_updatable([var for _, var in good])
        if global_step is not None:
            _pairs.require_step(global_step)
        with self._state_lock:
            return self._collect(good, global_step, name)

    def flush(self, global_step: Variable | None = None, name: str | None = None) -> Operation:
        """Make a step with what has been collected, at the end of an epoch say.

        The means are over the micro-batches that there were. Without any, nothing is done. All
        replicas must call it.

        Parameters
        ----------
        global_step : Variable, optional
            As for ``apply_gradients``.
        name : str, optional
            As for ``apply_gradients``.

        Returns
        -------
        Operation
        """
        context = get_replica_context()
        if context is not None and has_strategy():
            done: Operation = context.merge_call(self._flush, (global_step, name))
            return done
        with self._state_lock:
            if not self._collected:
                return self._nothing_applied(global_step, name)
            return self._step(global_step, name)

    def _flush(self, strategy: Strategy, global_step: Any, name: Any) -> Operation:
        """Flush once for all replicas."""
        if isinstance(global_step, PerReplica):
            raise ValueError(f"global_step must be the same on all replicas, got {global_step!r}")
        with context_set_to(None):
            return self.flush(global_step, name[0] if isinstance(name, PerReplica) else name)

    def _has_collected(self, var: Variable) -> bool:
        return var in self._sums

    def _collected_now(self) -> Collected:
        sums = [(var, found.state()) for var, found in self._sums.items()]
        return Collected(self._collected, 0, sums)

    def _set_collected(self, collected: Collected) -> None:
        sums: WeakIdentityMap[Variable, GradientSum] = WeakIdentityMap()
        for var, state in collected.sums:
            sums[var] = GradientSum(var.shape)
            sums[var].restore(state)
        self._collected, self._sums = collected.count, sums

    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """Return the wrapped optimizer's slot."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the wrapped optimizer's slot names."""
        return self._optimizer.get_slot_names()

    def _collect(
        self, good: list[Any], global_step: Variable | None, name: str | None
    ) -> Operation:
        for gradient, var in good:
            found = self._sums.get(var)
            if found is None:
                found = self._sums[var] = GradientSum(var.shape)
            found.add(gradient)
        self._collected += 1
        if self._collected < self._num_micro_batches:
            return self._nothing_applied(global_step, name)
        return self._step(global_step, name)

    def _step(self, global_step: Variable | None, name: str | None) -> Operation:
        means: Any = [(found.mean(self._collected), var) for var, found in self._sums.items()]
        if self._transform is not None:
            means = self._transform(means)
        done = self._optimizer.apply_gradients(means, global_step, name)
        self._collected = 0
        self._sums = WeakIdentityMap()
        return done
