"""`SyncReplicasOptimizer`: the first k of n gradients, and stale ones."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fastopt as fo

PATIENCE = 60.0  # seconds after which a test has hung


class Worker:
    """A thread that makes one call after the other, as it is told."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], Any] | None] = []
        self._results: list[Any] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls)
                call = self._calls.pop(0)
            if call is None:
                return
            try:
                result: Any = call()
            except BaseException as error:
                result = error
            with self._changed:
                self._results.append(result)
                self._changed.notify_all()

    def start(self, call: Callable[[], Any] | None) -> None:
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()

    def result(self) -> Any:
        with self._changed:
            assert self._changed.wait_for(lambda: self._results, PATIENCE)
            result = self._results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    def do(self, call: Callable[[], Any]) -> Any:
        self.start(call)
        return self.result()

    def end(self) -> None:
        self.start(None)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@pytest.fixture(autouse=True)
def _fresh_graph() -> Iterator[None]:
    with fo.Graph().as_default():
        yield


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    made = [Worker() for _ in range(3)]
    yield made
    for worker in made:
        worker.end()


class Training:
    """One variable, a counter, and an optimizer that moves by the mean."""

    def __init__(self, required: int, total: int | None = None, **kwargs: Any) -> None:
        self.w = fo.Variable(np.zeros(1), name="w")
        self.step = fo.create_global_step()
        inner = fo.GradientDescentOptimizer(1.0)
        self.opt = fo.SyncReplicasOptimizer(inner, required, total, **kwargs)

    def bring(self, gradient: float) -> Callable[[], Any]:
        pairs = [(np.array([gradient]), self.w)]
        return lambda: self.opt.apply_gradients(pairs, global_step=self.step)

    @property
    def now(self) -> tuple[float, int, int]:
        return self.w.item(), self.step.item(), self.opt.num_stale

    def wait_for_gradients(self, number: int) -> None:
        """Wait until a worker that waits for its token has brought its gradient."""
        deadline = threading.Event()
        for _ in range(int(PATIENCE * 1000)):
            entries = self.opt._entries
            if entries and entries[0][1] is not None:
                if entries[0][1].num_accumulated() == number:
                    return
            deadline.wait(0.001)
        raise AssertionError("the gradient has not been brought")


def test_the_mean_of_all_workers_is_applied(workers: list[Worker]) -> None:
    training = Training(2)
    first, second, _ = workers
    first.start(training.bring(1.0))
    training.wait_for_gradients(1)
    assert training.now == (0.0, 0, 0)
    done = second.do(training.bring(3.0))
    other = first.result()
    assert training.now == (-2.0, 1, 0)
    assert (done.step, done.variables, done.dense_parameters) == (1, (training.w,), 1)
    assert (other.step, other.variables) == (1, ())


def test_the_late_worker_is_dropped_and_goes_on(workers: list[Worker]) -> None:
    training = Training(2, 3)
    first, second, late = workers
    first.start(training.bring(1.0))
    training.wait_for_gradients(1)
    second.do(training.bring(3.0))
    first.result()
    # A worker begins at the counter's step, so its first gradient is none too old.
    assert late.do(training.bring(0.0)).step == 1  # the third token of the step
    assert training.now == (-2.0, 1, 0)
    first.start(training.bring(1.0))  # completes step 2 with the late one's
    first.result()
    assert training.now == (-2.5, 2, 0)
    second.start(training.bring(5.0))  # computed for step 1: stale
    second.result()
    assert training.now == (-2.5, 2, 1)


def test_one_worker_is_plain_training(workers: list[Worker]) -> None:
    training = Training(1)
    for k in range(1, 4):
        assert training.bring(1.0)().step == k
    assert training.now == (-3.0, 3, 0)


def test_tokens_go_round_so_that_workers_end_together() -> None:
    """A worker that took two tokens of a step would leave the other without company at the end."""
    for _ in range(20):
        with fo.Graph().as_default():
            training = Training(3)
        threads = [
            threading.Thread(
                target=lambda t=training: [t.bring(1.0)() for _ in range(20)], daemon=True
            )
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert training.now == (-20.0, 20, 0)


def test_more_gradients_than_workers(workers: list[Worker]) -> None:
    """Each worker brings two for a step; without tokens from the start both would wait for ever."""
    training = Training(4, 2)
    first, second, _ = workers
    assert first.do(training.bring(1.0)).step == 0
    assert second.do(training.bring(2.0)).step == 0
    first.start(training.bring(3.0))
    training.wait_for_gradients(3)
    second.do(training.bring(6.0))
    first.result()
    assert training.now == (-3.0, 1, 0)


def test_initial_tokens_cost_a_gradient_each(workers: list[Worker]) -> None:
    """They carry step 0, so that a later push is stale and lost, once."""
    training = Training(1)
    worker = workers[0]
    worker.do(training.bring(1.0))
    training.opt.get_init_tokens_op()  # -1: as many as make a step
    assert worker.do(training.bring(1.0)).step == 0
    assert training.now == (-2.0, 2, 0)
    assert worker.do(training.bring(1.0)).step == 2
    assert training.now == (-2.0, 2, 1)
    training.opt.get_init_tokens_op()  # they are there: nothing
    assert worker.do(training.bring(1.0)).step == 3
    assert training.now == (-3.0, 3, 1)


def test_initial_tokens_are_checked() -> None:
    training = Training(1)
    with pytest.raises(ValueError, match="after apply_gradients"):
        training.opt.get_init_tokens_op()
    training.bring(1.0)()
    training.opt.get_init_tokens_op(0)
    with pytest.raises(ValueError, match="at least 0.*got -2"):
        training.opt.get_init_tokens_op(-2)
    assert training.bring(1.0)().step == 2  # no token was added
    larger = fo.SyncReplicasOptimizer(fo.GradientDescentOptimizer(1.0), 3, 1)
    larger.apply_gradients([(np.ones(1), training.w)], global_step=training.step)
    with pytest.raises(ValueError, match="at least 2.*got 1"):
        larger.get_init_tokens_op(1)


def test_rows_have_their_own_mean(workers: list[Worker]) -> None:
    table, step = fo.Variable(np.zeros((3, 2)), name="table"), fo.create_global_step()
    unused = fo.Variable(np.ones(1), name="unused")
    opt = fo.SyncReplicasOptimizer(fo.GradientDescentOptimizer(1.0), 2)
    gradients = [
        fo.IndexedSlices([[1.0, 0.0], [0.0, 2.0]], [0, 1]),
        fo.IndexedSlices([[3.0, 0.0], [0.0, 1.0]], [2, 0]),
    ]

    def bring(k: int) -> Any:
        return opt.apply_gradients([(gradients[k], table), (None, unused)], global_step=step)

    for k in range(2):
        workers[k].start(lambda k=k: bring(k))
    for k in range(2):
        workers[k].result()
    assert table.numpy().tolist() == [[-0.5, -0.5], [0.0, -2.0], [-3.0, 0.0]]
    assert unused.item() == 1.0 and step.item() == 1


def test_many_steps_of_many_workers() -> None:
    """The first two of three workers make each step; the one that is late loses a gradient."""
    training = Training(2, 3)
    ops: list[list[Any]] = [[], [], []]
    enough = threading.Event()

    def work(k: int) -> None:
        try:
            while True:
                ops[k].append(training.bring(1.0)())
                if len(ops[k]) == 50:
                    enough.set()
        except RuntimeError:  # closed
            pass

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(3)]
    for thread in threads:
        thread.start()
    assert enough.wait(PATIENCE)
    training.opt.close()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    moved, steps, stale = training.now
    calls = sum(map(len, ops))
    assert moved == -steps  # the mean of ones, once a step
    assert calls <= 3 * steps  # a token for each call
    assert 2 * steps + stale <= calls + 3  # two gradients for each step; three calls may be lost
    for each in ops:
        assert all(a.step <= b.step for a, b in zip(each, each[1:], strict=False))


def test_moving_averages_follow_each_step() -> None:
    average = fo.ExponentialMovingAverage(0.5)
    w, step = fo.Variable(np.zeros(1), name="w"), fo.create_global_step()
    average.apply([w])
    opt = fo.SyncReplicasOptimizer(
        fo.GradientDescentOptimizer(1.0), 1, variable_averages=average, variables_to_average=[w]
    )
    opt.apply_gradients([(np.full(1, -4.0), w)], global_step=step)
    shadow = average.average(w)
    assert shadow is not None and (w.item(), shadow.item()) == (4.0, 2.0)


def test_what_is_delegated() -> None:
    inner = fo.MomentumOptimizer(1.0, 0.5)
    opt = fo.SyncReplicasOptimizer(inner, 1, name="sync")
    w, step = fo.Variable(np.zeros(1), name="w"), fo.create_global_step()
    done = opt.minimize(lambda: np.sum(w * 2.0), global_step=step)
    assert opt.get_name() == "sync" and done.name == "sync" and done.step == 1
    assert opt.get_slot_names() == ["momentum"]
    assert opt.get_slot(w, "momentum") is inner.get_slot(w, "momentum")
    assert opt.variables() == inner.variables()
    assert opt.compute_gradients(lambda: np.sum(w * 3.0))[0][0] == [3.0]


# ---------------------------------------------------------------------- what goes wrong


def test_bad_calls() -> None:
    training = Training(1)
    opt, w, step = training.opt, training.w, training.step
    one = np.ones(1)
    with pytest.raises(ValueError, match="No variables"):
        opt.apply_gradients([], global_step=step)
    with pytest.raises(ValueError, match="global_step is required"):
        opt.apply_gradients([(one, w)])
    with pytest.raises(TypeError, match="global_step"):
        opt.apply_gradients([(one, w)], global_step=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'w'"):
        opt.apply_gradients([("one", w)], global_step=step)
    with pytest.raises(ValueError, match="No gradients"):
        opt.apply_gradients([(None, w)], global_step=step)
    with pytest.raises(TypeError, match="must be a fastopt Variable"):
        opt.apply_gradients([(one, one)], global_step=step)
    assert training.now == (0.0, 0, 0)
    with fo.distribute.LocalReplicas(1).scope(), pytest.raises(RuntimeError, match="no strategy"):
        opt.apply_gradients([(one, w)], global_step=step)


def test_later_calls_must_be_like_the_first() -> None:
    training = Training(1)
    opt, w, step = training.opt, training.w, training.step
    other = fo.Variable(np.zeros(1), name="other")
    one, slices = np.ones(1), fo.IndexedSlices([1.0], [0])
    opt.apply_gradients([(one, w), (None, other)], global_step=step)
    with pytest.raises(ValueError, match=r"first call had \['w', 'other'\], this one has \['w'\]"):
        opt.apply_gradients([(one, w)], global_step=step)
    with pytest.raises(ValueError, match="'w' must be dense in every call.*got sparse"):
        opt.apply_gradients([(slices, w), (None, other)], global_step=step)
    with pytest.raises(ValueError, match="'other' must be None in every call.*got dense"):
        opt.apply_gradients([(one, w), (one, other)], global_step=step)
    second = fo.Variable(np.int64(0), trainable=False, name="second")
    with pytest.raises(ValueError, match="'global_step' before, 'second' now"):
        opt.apply_gradients([(one, w), (None, other)], global_step=second)
    assert training.now == (-1.0, 1, 0)


def test_a_step_that_fails_ends_all_waiting(workers: list[Worker]) -> None:
    w, step = fo.Variable(np.zeros(1), name="w"), fo.create_global_step()
    opt = fo.SyncReplicasOptimizer(fo.AdamOptimizer(beta1=lambda: 2.0), 2)
    training = Training.__new__(Training)
    training.opt, training.w, training.step = opt, w, step
    workers[0].start(training.bring(1.0))
    training.wait_for_gradients(1)
    with pytest.raises(ValueError, match="beta1"):
        workers[1].do(training.bring(1.0))
    with pytest.raises(RuntimeError, match="a step failed: ValueError: .*beta1"):
        workers[0].result()
    with pytest.raises(RuntimeError, match="makes no more steps"):
        training.bring(1.0)()
    assert training.now == (0.0, 0, 0)


def test_close_ends_all_waiting(workers: list[Worker]) -> None:
    training = Training(3)
    for k in range(2):
        workers[k].start(training.bring(1.0))
    training.wait_for_gradients(2)
    training.opt.close()
    for k in range(2):
        with pytest.raises(RuntimeError, match="it was closed"):
            workers[k].result()


def test_a_worker_waits_no_longer_than_it_is_told() -> None:
    training = Training(2, timeout=0.01)
    with pytest.raises(TimeoutError, match="no token within 0.01 s; 2 gradients make a step"):
        training.bring(1.0)()
    training.bring(3.0)()  # the gradient before had been brought
    assert training.now == (-2.0, 1, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"opt": 3}, ValueError, "opt must be an Optimizer"),
        ({"replicas_to_aggregate": 0}, ValueError, "replicas_to_aggregate"),
        ({"replicas_to_aggregate": 1.5}, ValueError, "must be whole"),
        ({"replicas_to_aggregate": "2"}, TypeError, "replicas_to_aggregate"),
        ({"total_num_replicas": 0}, ValueError, "total_num_replicas"),
        ({"variable_averages": 0.9}, TypeError, "variable_averages"),
        ({"name": ""}, ValueError, "name"),
        ({"timeout": -1}, ValueError, "timeout"),
    ],
)
def test_bad_arguments(arguments: Any, error: type[Exception], match: str) -> None:
    good = {"opt": fo.GradientDescentOptimizer(1.0), "replicas_to_aggregate": 2}
    with pytest.raises(error, match=match):
        fo.SyncReplicasOptimizer(**{**good, **arguments})


def test_copies_have_no_workers() -> None:
    training = Training(2, timeout=0.01)
    with pytest.raises(TimeoutError):
        training.bring(1.0)()
    for other in (copy.deepcopy(training.opt), pickle.loads(pickle.dumps(training.opt))):
        with pytest.raises(TimeoutError):
            other.apply_gradients([(np.ones(1), training.w)], global_step=training.step)
    assert training.now == (0.0, 0, 0)
