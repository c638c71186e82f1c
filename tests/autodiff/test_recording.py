"""Modes, recordings, threads."""

import threading

import numpy as np
import pytest

from fastopt.autodiff import (
    Recording,
    Tensor,
    backward,
    eager_mode,
    enable_eager_execution,
    executing_eagerly,
    graph_mode,
    recording,
    stop_gradient,
)
from fastopt.variable import Variable


@pytest.fixture
def graph_by_default():
    """Put the default mode of the process back after the test."""
    yield
    recording.set_default(recording.GRAPH)


def test_graph_mode_records():
    x = Variable([1.0, 2.0])
    assert not executing_eagerly()
    assert isinstance(x * 2, Tensor)
    assert isinstance(np.exp(x), Tensor)


def test_eager_mode_does_not_record():
    x = Variable([1.0, 2.0], dtype=np.float64)
    with eager_mode():
        assert executing_eagerly()
        for result in (
            x * 2,
            np.exp(x),
            np.concatenate([x, x]),
            x[[0, 1]],
            x.reshape(1, 2),
            stop_gradient(x),
        ):
            assert type(result) is np.ndarray
        # What autodiff has no derivative for is no obstacle where nothing is recorded.
        assert np.median(x) == 1.5
        assert np.hypot.reduce(x) == np.hypot(1.0, 2.0)
        np.testing.assert_array_equal(np.block([x, x]), [1.0, 2.0, 1.0, 2.0])
        out = np.zeros(2)
        np.add(x, 1.0, out=out)
        np.testing.assert_array_equal(out, [2.0, 3.0])
        with pytest.raises(TypeError, match="out= is not supported"):
            np.add(out, 1.0, out=x)
        with pytest.raises(TypeError):
            np.hypot.reduce(np.ones((2, 2)), out=x)
    assert isinstance(x * 2, Tensor)


def test_eager_results_do_not_open_the_storage():
    x = Variable(np.ones((2, 2)))
    with eager_mode():
        for view in (x.T, x[0], x.reshape(4), np.asarray(x)):
            with pytest.raises(ValueError, match="read-only"):
                view[...] = 5.0
    np.testing.assert_array_equal(np.asarray(x), np.ones((2, 2)))


def test_recording_records_in_both_modes():
    x = Variable([1.0, 2.0])
    for mode in (eager_mode, graph_mode):
        with mode():
            with Recording() as tape:
                y = np.sum(x * x)
                assert executing_eagerly() is (mode is eager_mode)
            assert tape.watched == [x] or tape.watched[0] is x
            np.testing.assert_array_equal(backward([y], [x])[0], [2.0, 4.0])


def test_enable_eager_execution_is_for_the_process(graph_by_default):
    enable_eager_execution()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(executing_eagerly()))
    thread.start()
    thread.join()
    assert seen == [True]
    assert executing_eagerly()
    with graph_mode():
        assert not executing_eagerly()


def test_eager_mode_is_for_the_thread():
    seen = []
    with eager_mode():
        thread = threading.Thread(target=lambda: seen.append(executing_eagerly()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_modes_end_with_an_error():
    with pytest.raises(KeyError), eager_mode():
        raise KeyError
    assert not executing_eagerly()
    with pytest.raises(KeyError), Recording():
        raise KeyError
    assert recording.current() is recording.GRAPH


def test_watched_in_order_of_reading():
    a, b, c = (Variable(1.0, name=n) for n in "abc")
    frozen = Variable(1.0, trainable=False)
    with Recording() as tape:
        y = c * 2
        y = y + frozen * a
        y = y * c + a
        Tensor(1.0) * 3
        b[()]
    assert [id(x) for x in tape.watched] == [id(c), id(a), id(b)]


def test_reading_is_noted_by_every_kind_of_function():
    for call in (
        lambda x: np.sum(x),
        lambda x: x[[0, 1]],
        lambda x: x[0],
        lambda x: np.concatenate([np.ones(2), x]),
        lambda x: np.einsum("i->", x),
        lambda x: np.where(True, x, 0.0),
        lambda x: x.astype(np.int64),
        lambda x: np.linalg.norm(x),
        lambda x: stop_gradient(x),
    ):
        x = Variable([1.0, 2.0])
        with Recording() as tape:
            call(x)
        assert [id(w) for w in tape.watched] == [id(x)]


def test_integers_are_watched_too():
    x = Variable(np.array([1, 2]))
    with Recording() as tape:
        x * 2.0
    assert tape.watched[0] is x


def test_watch():
    x, frozen = Tensor(1.0), Variable(1.0, trainable=False)
    with Recording() as tape:
        tape.watch(x)
        tape.watch(frozen)
        tape.watch(x)
    assert [id(w) for w in tape.watched] == [id(x), id(frozen)]


def test_nested_recordings():
    a, b = Variable(1.0), Variable(2.0)
    with Recording() as outer:
        a * 1
        with Recording() as inner:
            b * a
    assert [id(w) for w in inner.watched] == [id(b), id(a)]
    assert [id(w) for w in outer.watched] == [id(a), id(b)]


def test_a_recording_is_opened_once():
    tape = Recording()
    with tape, pytest.raises(RuntimeError, match="open already"):
        tape.__enter__()


def test_threads_have_recordings_of_their_own():
    variables = [Variable(float(i)) for i in range(4)]
    barrier = threading.Barrier(4)
    found = [None] * 4

    def run(i):
        with eager_mode(), Recording() as tape:
            barrier.wait()
            y = variables[i] * 2.0
            for _ in range(200):
                y = y + variables[i]
            barrier.wait()
        found[i] = (list(tape.watched), backward([y], [variables[i]])[0])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (watched, g) in enumerate(found):
        assert len(watched) == 1 and watched[0] is variables[i]
        assert g == 202.0


def test_a_thread_does_not_see_the_recording_of_another():
    x = Variable(1.0)
    seen = []
    with eager_mode(), Recording() as tape:

        def run():
            with eager_mode():
                seen.append(type(x * 2.0))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert tape.watched == []
    assert seen == [np.float32]
