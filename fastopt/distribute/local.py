"""`LocalReplicas`: replicas that are threads of this process."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastopt._arrays import shown
from fastopt.autodiff.recording import current as current_mode
from fastopt.distribute import reduction
from fastopt.distribute.context import CrossReplica, context_set_to, current
from fastopt.distribute.meeting import Meeting, Request, require_same
from fastopt.distribute.strategy import Gradient, ReplicaContext, Strategy
from fastopt.distribute.values import PerReplica, ReduceOp


class LocalReplicas(Strategy):
    """Several replicas in one process: threads with a batch each, on shared variables.

    Every replica computes its gradients at the same time as the others. In ``apply_gradients`` they
    wait for each other; the gradients are added, in the order of the replicas, and applied once. A
    step of n replicas gives the numbers of a step of one replica with the n-fold batch, and the
    same bits in every run.

    Parameters
    ----------
    num_replicas : int
        How many, at least 1.
    loss_reduction : {"mean", "sum"} or ReduceOp
        What the loss of the whole batch is. ``"mean"``: the mean of the replicas' losses, as it is
        if each of them is the mean over a shard of the same size; ``compute_gradients`` divides the
        loss by the number of replicas. ``"sum"``: their sum, and nothing is divided. TensorFlow
        divides under an Estimator only. `set_loss_reduction` changes it from within.

    Raises
    ------
    TypeError
        If `num_replicas` is no integer.
    ValueError
        If it is less than 1, or `loss_reduction` is none of these.

    Notes
    -----
    A replica is a thread, and Python code runs in one thread at a time. NumPy and the kernels let
    others run, so replicas pay where the arrays of a batch are large.

    Variables are to be made before ``run``, which inherits the default graph, the eager mode and
    other context of the caller. Nothing but the optimizer should change a variable during a run.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> x, y = np.arange(8.0), 3.0 * np.arange(8.0)
    >>> w = fo.Variable(0.0, name="w", dtype=np.float64)
    >>> opt = fo.GradientDescentOptimizer(0.02)
    >>> def step(x, y):
    ...     opt.minimize(lambda: np.mean((w * x - y) ** 2))
    ...     return len(x)
    >>> replicas = fo.distribute.LocalReplicas(2)
    >>> for _ in range(20):
    ...     sizes = replicas.run(step, (replicas.split(x), replicas.split(y)))
    >>> sizes.values, float(w.numpy().round(6))
    ((4, 4), 3.0)
    """

    def __init__(self, num_replicas: int, loss_reduction: ReduceOp | str = ReduceOp.MEAN) -> None:
        super().__init__(loss_reduction)
        try:
            self._n = operator.index(num_replicas)
        except TypeError as error:
            raise TypeError(
                f"num_replicas must be an integer, got {shown(num_replicas)}"
            ) from error
        if self._n < 1:
            raise ValueError(f"num_replicas must be at least 1, got {self._n}")

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""
        return self._n

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> PerReplica:
        """Call a function on every replica, each in a thread of its own.

        When this returns or raises, the threads have ended.

        Parameters
        ----------
        fn : callable
            What each replica does: a step, or a whole training.
        args, kwargs : sequence, mapping
            Its arguments. Of a `PerReplica` each replica gets its own value, of anything else the
            same object.

        Returns
        -------
        PerReplica
            What the calls returned.

        Raises
        ------
        ReplicaError
            If a replica raised, or doesn't make the calls that others make. The replicas that wait
            for it are stopped, and nothing of the step at hand has been applied.
        Exception
            What merging raised, such as the errors of ``apply_gradients``.
        RuntimeError
            In a replica, or in a function whose loss is being recorded.
        ValueError
            If a `PerReplica` has not a value for each replica.
        """
        state = current()
        if isinstance(state, ReplicaContext):
            raise RuntimeError(f"run() was called in {state!r}; replicas have no replicas")
        if state is not None and state.strategy is not self:
            raise RuntimeError(f"{state.strategy!r} is in force; run() of {self!r} was called")
        if current_mode().watches:
            raise RuntimeError(
                "run() was called while a loss is being recorded, which threads cannot share"
            )
        positional = [self._local_values(arg) for arg in args]
        named = {name: self._local_values(arg) for name, arg in (kwargs or {}).items()}
        meeting = Meeting(self._n)

        def work(replica: int) -> Any:
            with context_set_to(_LocalContext(self, replica, meeting)):
                return fn(
                    *(values[replica] for values in positional),
                    **{name: values[replica] for name, values in named.items()},
                )

        return PerReplica(meeting.hold(work, self._merge))

    def split(self, array: Any) -> PerReplica:
        """Return equal shards of a batch, one for each replica.

        Parameters
        ----------
        array : ndarray, sequence or scipy.sparse matrix
            Anything that has rows and can be sliced. Arrays are not copied.

        Returns
        -------
        PerReplica
            Consecutive rows.

        Raises
        ------
        ValueError
            If the rows cannot be shared out equally: the mean of the means over unequal shards is
            not the mean.
        """
        shape = getattr(array, "shape", None)
        rows = shape[0] if shape else len(array)
        if rows % self._n:
            raise ValueError(f"{rows} rows cannot be split into {self._n} equal shards")
        size = rows // self._n
        return PerReplica(array[k * size : (k + 1) * size] for k in range(self._n))

    def _merge_call(
        self,
        context: ReplicaContext,
        merge_fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        assert isinstance(context, _LocalContext)
        request = Request(merge_fn, args, kwargs)
        return context.meeting.wait(context.replica_id_in_sync_group, request)

    def _merge(self, requests: list[Request]) -> list[Any]:
        require_same(requests)
        first = requests[0]
        args = [_merged(values) for values in zip(*(each.args for each in requests), strict=True)]
        kwargs = {name: _merged([each.kwargs[name] for each in requests]) for name in first.kwargs}

        def call() -> Any:
            with context_set_to(CrossReplica(self)):
                return first.function(self, *args, **kwargs)

        # In the context of replica 0, whose eager mode, default graph and error state hold.
        return list(self._local_values(first.context.run(call)))

    def _sum(
        self, terms: list[Sequence[Gradient | None]], names: list[str]
    ) -> list[Gradient | None]:
        return [reduction.total(each) for each in terms]

    def __repr__(self) -> str:
        return f"LocalReplicas({self._n})"


class _LocalContext(ReplicaContext):
    """A replica that is a thread of a run."""

    __slots__ = ("meeting",)

    def __init__(self, strategy: Strategy, replica: int, meeting: Meeting) -> None:
        super().__init__(strategy, replica)
        self.meeting = meeting


def _merged(values: Sequence[Any]) -> Any:
    first = values[0]
    return first if all(value is first for value in values) else PerReplica(values)
