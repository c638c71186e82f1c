"""`SyncReplicasOptimizer`: one step for the first gradients of several workers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from fastopt import _pairs
from fastopt._sums import Collected
from fastopt._validate import Real, UnsupportedTypeError
from fastopt.accumulators import ConditionalAccumulator, SparseConditionalAccumulator
from fastopt.distribute.context import current as current_replica
from fastopt.indexed_slices import IndexedSlices
from fastopt.moving_averages import ExponentialMovingAverage
from fastopt.operation import Operation
from fastopt.optimizer import Optimizer
from fastopt.variable import Variable
from fastopt.wrapper import OptimizerWrapper

Accumulator = ConditionalAccumulator | SparseConditionalAccumulator


class _Turn:
    """A worker that waits for a token."""

    step: int | None = None


class SyncReplicasOptimizer(OptimizerWrapper):
    """An optimizer that makes one step of the gradients of several workers.

    Workers are threads. Each computes gradients and calls ``apply_gradients``, which puts them into
    accumulators, one for each variable, and waits. When `replicas_to_aggregate` workers have done
    so, the wrapped optimizer applies the means, the step counter grows by one, and tokens with the
    new step are handed out: the worker that gets one goes on. A gradient that was computed for an
    earlier step than the counter's is dropped, so the slowest of more workers than are needed do no
    harm; `num_stale` counts them.

    Unlike the replicas of `fastopt.distribute`, workers need not all take part in a step.

    Parameters
    ----------
    opt : Optimizer
        The optimizer that does the work.
    replicas_to_aggregate : int
        How many gradients make a step, at least 1. If it is more than there are workers, each
        brings several.
    total_num_replicas : int, optional
        How many workers there are. Default `replicas_to_aggregate`.
    variable_averages : ExponentialMovingAverage, optional
        Applied after each step.
    variables_to_average : sequence of Variable, optional
        What it is applied to. Default what it averages by default.
    use_locking : bool
        Kept for TensorFlow's sake; pushing and stepping are always locked.
    name : str
        The name of this optimizer. Slots have the name of `opt`.
    timeout : float, optional
        How many seconds a worker waits for its token at most. Default for ever. Keyword only.

    Attributes
    ----------
    num_stale : int
        How many calls have brought gradients that were too old.

    Raises
    ------
    ValueError
        If `opt` is no optimizer, a number is less than 1 or not whole, or the name is empty.
    TypeError
        If a number is none, or `variable_averages` is no `ExponentialMovingAverage`.

    Notes
    -----
    The mean of a sparse gradient is taken row by row, over the gradients that list the row; see
    `SparseConditionalAccumulator`.

    TensorFlow needs a chief with a queue runner, and hooks for its sessions. Here the worker whose
    gradients complete a step makes it. Tokens that workers would wait for in vain, when they are
    fewer than the gradients of a step, are there from the start.

    A worker that ends while others need its gradients leaves them waiting: `close` wakes them.

    Examples
    --------
    >>> import threading
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([10.0]), name="w")
    >>> step = fo.create_global_step(fo.Graph())
    >>> opt = fo.SyncReplicasOptimizer(fo.GradientDescentOptimizer(1.0), 2)
    >>> def work(gradient):
    ...     for _ in range(3):
    ...         opt.apply_gradients([(np.array([gradient]), w)], global_step=step)
    >>> workers = [threading.Thread(target=work, args=(g,)) for g in (1.0, 3.0)]
    >>> for worker in workers:
    ...     worker.start()
    >>> for worker in workers:
    ...     worker.join()
    >>> w.numpy(), int(step.numpy())
    (array([4.]), 3)
    """

    def __init__(
        self,
        opt: Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: ExponentialMovingAverage | None = None,
        variables_to_average: Sequence[Variable] | None = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
        *,
        timeout: float | None = None,
    ) -> None:
        super().__init__(opt)
        if not name:
            raise ValueError("Must specify the optimizer name: it may not be empty or None")
        self._name = name
        self._use_locking = bool(use_locking)
        self._required = _count("replicas_to_aggregate", replicas_to_aggregate)
        self._total = (
            self._required
            if total_num_replicas is None
            else _count("total_num_replicas", total_num_replicas)
        )
        if variable_averages is not None and not isinstance(
            variable_averages, ExponentialMovingAverage
        ):
            raise TypeError(
                f"variable_averages must be an ExponentialMovingAverage, got {variable_averages!r}"
            )
        self._averages = variable_averages
        self._averaged = variables_to_average
        if timeout is not None:
            timeout = Real(ge=0, fixed=True).accept(type(self).__name__, "timeout", timeout)
        self._timeout = timeout

    def _make_transient(self) -> None:
        super()._make_transient()
        self.num_stale = 0
        self._changed = threading.Condition()
        self._worker = threading.local()  # its step
        self._tokens: deque[int] = deque()
        self._waiting: deque[_Turn] = deque()
        self._start = self._initial_tokens = 0
        self._closed = ""
        self._resumed: Collected | None = None  # for the first call
        # What the first call found: the step counter and where each variable's gradients go.
        self._global_step: Variable | None = None
        self._entries: list[tuple[Variable, Accumulator | None]] = []

    def __getstate__(self) -> dict[str, Any]:
        # A copy has no workers.
        state = super().__getstate__()
        for name in _TRANSIENT:
            del state[name]
        return state

    # ------------------------------------------------------------------ what workers call

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Bring gradients, and wait until this worker may go on.

        The call that completes a step makes it. If that fails, this optimizer is closed, so that
        nobody waits for what will not come.

        Parameters
        ----------
        grads_and_vars : iterable of (gradient, variable)
            All workers must bring gradients for the same variables in the same order, of the same
            kind, dense or sparse. ``None`` is passed on to the wrapped optimizer.
        global_step : Variable
            The step counter. The worker's gradients count as computed for the step of its last
            token, at first for the counter's own.
        name : str, optional
            The name of the operation.

        Returns
        -------
        Operation
            Its ``step`` is that of the token. It has variables if this call made a step.

        Raises
        ------
        ValueError
            If there are no pairs or no gradients; if `global_step` is missing, which is needed to
            tell stale gradients, or another one than before; if a gradient is neither dense, slices
            nor ``None``; if variables or kinds are others than in the first call.
        TimeoutError
            If no token came in time. The gradients have been brought all the same.
        RuntimeError
            If this optimizer is closed, or the thread is in a context of `fastopt.distribute`.
        """
        pairs = _pairs.as_list(grads_and_vars)
        if global_step is None:
            raise ValueError("global_step is required: it tells whether gradients are stale")
        self._require_step(global_step)
        if current_replica() is not None:
            raise RuntimeError(f"{self._label()} has workers of its own, and works in no strategy")
        read = self._read(pairs)
        with self._changed:
            self._require_open()
            if self._global_step is None:
                self._begin(read, global_step)
            self._require_same(read, global_step)
            done = self._bring(read, name)
            step = self._take_token()
        if done is not None:
            return Operation(done.name, done.type, done._variables, *_counts(done), step)
        return Operation(name or self._name, type(self).__name__, step=step)

    def get_init_tokens_op(self, num_tokens: int = -1) -> None:
        """Hand out tokens at the start, so that workers don't wait for the first step.

        They carry the step at which training began, so each of them costs a gradient later, which
        is stale.

        Parameters
        ----------
        num_tokens : int
            How many there are to be in all; -1 for `replicas_to_aggregate`.

        Raises
        ------
        ValueError
            Before the first ``apply_gradients``; or if it is less than `replicas_to_aggregate`
            minus `total_num_replicas`, without which nobody could go on.
        """
        with self._changed:
            if self._global_step is None:
                raise ValueError("get_init_tokens_op() should be called after apply_gradients()")
            wanted = self._required if num_tokens == -1 else int(num_tokens)
            if wanted < self._required - self._total:
                raise ValueError(
                    f"num_tokens must be at least {self._required - self._total}"
                    f" (replicas_to_aggregate - total_num_replicas), got {num_tokens}"
                )
            self._put_initial_tokens(wanted)

    def close(self) -> None:
        """End the training: workers that wait, or come, get a `RuntimeError`."""
        with self._changed:
            self._close("it was closed")

    # ------------------------------------------------------------------ what is delegated

    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """Return the wrapped optimizer's slot."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the wrapped optimizer's slot names."""
        return self._optimizer.get_slot_names()

    def _has_collected(self, var: Variable) -> bool:
        # What workers have begun with a variable they go on with.
        return any(each is var for each, _ in self._entries)

    def _collected_now(self) -> Collected:
        with self._changed:
            if self._resumed is not None:  # and nobody has come since
                return self._resumed
            collected, sums = Collected(), []
            for var, accumulator in self._entries:
                if accumulator is not None:  # all are at one step, and have as many gradients
                    collected = accumulator._collected_now()
                    sums += [(var, state) for _, state in collected.sums]
            numbers = {
                "tokens": list(self._tokens),
                "start": [self._start, self._initial_tokens] if self._entries else [],
                "stale": [self.num_stale],
            }
            return Collected(collected.count, collected.step, sums, numbers)

    def _set_collected(self, collected: Collected) -> None:
        with self._changed:
            self.num_stale = sum(collected.numbers.get("stale", []))
            self._resumed = collected
            if self._entries:
                self._go_on()

    # ------------------------------------------------------------------ the course of a call

    def _read(self, pairs: list[Any]) -> list[tuple[Any, Any]]:
        try:
            read = _pairs.converted(pairs, self._label())
        except UnsupportedTypeError:  # of a variable
            raise
        except TypeError as error:  # of a gradient; as in TensorFlow a ValueError
            raise ValueError(str(error)) from error
        given = [var for gradient, var in read if gradient is not None]
        if not given:
            raise _pairs.no_gradients([var for _, var in read])
        self._optimizer._require_updatable(given)
        return read

    def _begin(self, read: list[tuple[Any, Any]], global_step: Variable) -> None:
        entries: list[tuple[Variable, Accumulator | None]] = []
        for gradient, var in read:
            accumulator: Accumulator | None = None
            if gradient is not None:
                kind = (
                    SparseConditionalAccumulator
                    if isinstance(gradient, IndexedSlices)
                    else ConditionalAccumulator
                )
                accumulator = kind(var.dtype, var.shape, name=f"the gradients of {var.name}")
                accumulator.set_global_step(int(global_step.item()))
            entries.append((var, accumulator))
        self._global_step = global_step
        self._entries = entries
        self._start = int(global_step.item())
        if self._resumed is None:
            self._put_initial_tokens(self._required - self._total)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Give the accumulators what a checkpoint had for them, and the tokens to workers."""
        collected, self._resumed = self._resumed, None
        assert collected is not None and self._global_step is not None
        began = collected.numbers.get("start", [])
        step = collected.step if began else int(self._global_step.item())
        sums = {id(var): state for var, state in collected.sums}
        for var, accumulator in self._entries:
            if accumulator is not None:
                state = [(var, sums[id(var)])] if id(var) in sums else []
                count = collected.count if state else 0
                accumulator._set_collected(Collected(count, step, state))
        self._tokens = deque(collected.numbers.get("tokens", []))
        self._start, self._initial_tokens = began or (step, 0)
        if not began:
            self._put_initial_tokens(self._required - self._total)
        self._hand_out()

    def _put_initial_tokens(self, number: int) -> None:
        more = max(0, number - self._initial_tokens)
        self._initial_tokens += more
        self._tokens.extend([self._start] * more)
        self._hand_out()

    def _require_same(self, read: list[tuple[Any, Any]], global_step: Variable) -> None:
        if global_step is not self._global_step:
            assert self._global_step is not None
            raise ValueError(
                f"global_step must be the same in every call: {self._global_step.name!r} before,"
                f" {global_step.name!r} now"
            )
        names = [var.name for var, _ in self._entries]
        if [id(var) for _, var in read] != [id(var) for var, _ in self._entries]:
            raise ValueError(
                "all workers must bring gradients for the same variables in the same order: the"
                f" first call had {names}, this one has {[getattr(v, 'name', v) for _, v in read]}"
            )
        for (gradient, var), (_, accumulator) in zip(read, self._entries, strict=True):
            if _kind_of(gradient) != _KINDS[type(accumulator)]:
                raise ValueError(
                    f"the gradient of variable {var.name!r} must be {_KINDS[type(accumulator)]} in"
                    f" every call, as in the first, got {_kind_of(gradient)}"
                )

    def _bring(self, read: list[tuple[Any, Any]], name: str | None) -> Operation | None:
        """Put gradients into the accumulators; make a step if they are full."""
        assert self._global_step is not None
        step = getattr(self._worker, "step", int(self._global_step.item()))
        # All accumulators are at one step, so one of them speaks for all.
        fresh = True
        for (gradient, _), (_, accumulator) in zip(read, self._entries, strict=True):
            if isinstance(accumulator, SparseConditionalAccumulator):
                fresh = accumulator.apply_indexed_slices_grad(gradient, step)
            elif accumulator is not None:
                fresh = accumulator.apply_grad(gradient, step)
        self.num_stale += not fresh
        waiting = (a.num_accumulated() for _, a in self._entries if a is not None)
        if min(waiting) < self._required:
            return None
        try:
            return self._step(name)
        except BaseException as error:
            self._close(f"a step failed: {type(error).__name__}: {error}")
            raise

    def _step(self, name: str | None) -> Operation:
        means: list[tuple[Any, Variable]] = []
        for var, accumulator in self._entries:
            if isinstance(accumulator, SparseConditionalAccumulator):
                means.append((accumulator.take_indexed_slices_grad(self._required), var))
            elif accumulator is not None:
                means.append((accumulator.take_grad(self._required), var))
            else:
                means.append((None, var))
        assert self._global_step is not None
        done = self._optimizer.apply_gradients(means, self._global_step, name or self._name)
        step = int(self._global_step.item())
        for _, accumulator in self._entries:
            if accumulator is not None:
                accumulator.set_global_step(step)
        self._tokens.extend([step] * max(self._required, self._total))
        self._hand_out()
        if self._averages is not None:
            self._averages.apply(self._averaged)
        return done

    def _hand_out(self) -> None:
        """Give tokens to those who wait, in the order in which they came.

        Otherwise a quick worker could take two tokens of a step, and its last gradients leave a
        slow one waiting for others that never come.
        """
        while self._tokens and self._waiting:
            self._waiting.popleft().step = self._tokens.popleft()
        self._changed.notify_all()

    def _take_token(self) -> int:
        turn = _Turn()
        self._waiting.append(turn)
        self._hand_out()
        self._changed.wait_for(lambda: turn.step is not None or self._closed, self._timeout)
        if turn.step is None:
            self._waiting.remove(turn)
            self._require_open()
            raise TimeoutError(
                f"{self._label()}: no token within {self._timeout} s; {self._required} gradients"
                " make a step, and too few workers have brought theirs"
            )
        self._worker.step = turn.step
        return turn.step

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self._label()} makes no more steps: {self._closed}")

    def _close(self, reason: str) -> None:
        self._closed = self._closed or reason
        self._changed.notify_all()


_TRANSIENT = (
    "num_stale",
    "_changed",
    "_worker",
    "_tokens",
    "_waiting",
    "_start",
    "_initial_tokens",
    "_closed",
    "_resumed",
    "_global_step",
    "_entries",
)
_KINDS = {
    ConditionalAccumulator: "dense",
    SparseConditionalAccumulator: "sparse",
    type(None): "None",
}


def _kind_of(gradient: Any) -> str:
    if gradient is None:
        return "None"
    return "sparse" if isinstance(gradient, IndexedSlices) else "dense"


def _counts(done: Operation) -> tuple[int, int]:
    return done.sparse_rows, done.dense_parameters


def _count(name: str, value: Any) -> int:
    number = Real(ge=1, fixed=True).accept("SyncReplicasOptimizer", name, value)
    if number != int(number):
        raise ValueError(f"SyncReplicasOptimizer: {name} must be whole, got {value!r}")
    return int(number)
