"""The memory of a step's temporaries."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels import _step_memory
from fastopt.step_memory import step_memory


@pytest.fixture(autouse=True)
def empty():
    before = _step_memory.get_limit()
    fo.empty_cache()
    yield
    _step_memory.set_limit(before)
    fo.empty_cache()


def handler():
    return np._core.multiarray.get_handler_name()


def test_blocks_are_given_out_again():
    with step_memory():
        a = np.empty(100_000)
        address = a.ctypes.data
        del a
        assert fo.cached_bytes() >= 800_000
        assert np.empty(100_000).ctypes.data == address


def test_many_small_blocks_are_given_out_again():
    with step_memory():
        arrays = [np.empty(1000, np.float32) for _ in range(200)]
        addresses = {a.ctypes.data for a in arrays}
        del arrays
        again = [np.empty(1000, np.float32) for _ in range(200)]
        assert {a.ctypes.data for a in again} == addresses


def test_zeros_are_zero_in_used_memory():
    with step_memory():
        for n in (10, 3_000, 50_000):
            np.full(n, 7.0)
            assert not np.zeros(n).any()


@pytest.mark.parametrize("n", [0, 1, 1000, 2048, 2049, 16_384, 16_385, 1_000_003, 5_000_000])
def test_every_size_is_whole_and_aligned(n):
    with step_memory():
        arrays = [np.full(n, k, np.uint8) for k in range(4)]
        arrays += [np.full(n, 9, np.uint8)]
        for k, a in enumerate(arrays[:4]):
            assert (a == k).all()
            assert a.ctypes.data % 64 == 0


def test_it_is_off_outside():
    outside = handler()
    with step_memory():
        assert handler() == "fastopt_step_memory"
        with step_memory():
            assert handler() == "fastopt_step_memory"
        assert handler() == "fastopt_step_memory"
    assert handler() == outside


def test_it_is_off_after_an_error():
    outside = handler()
    with pytest.raises(ZeroDivisionError), step_memory():
        raise ZeroDivisionError
    assert handler() == outside


def test_other_threads_are_not_concerned():
    seen = []
    with step_memory():
        thread = threading.Thread(target=lambda: seen.append(handler()))
        thread.start()
        thread.join()
    assert seen != ["fastopt_step_memory"]


def test_results_of_look_ups_come_from_it_outside_of_steps():
    table, ids = fo.Variable(np.ones((10, 64), np.float32)), np.zeros(1000, np.int64)
    with fo.eager_mode():
        for look_up in (
            lambda: fo.embedding_lookup(table, ids),
            lambda: fo.embedding_lookup_sparse(table, (ids, np.arange(1001)), None),
        ):
            fo.empty_cache()
            address = look_up().ctypes.data
            assert fo.cached_bytes() >= 256_000
            assert look_up().ctypes.data == address
    assert handler() != "fastopt_step_memory"


def test_arrays_live_on_and_may_be_resized():
    with step_memory():
        a = np.arange(5_000.0)
    a.resize(50_000, refcheck=False)
    assert (a[:5_000] == np.arange(5_000)).all()
    assert not a[5_000:].any()
    a.resize(10, refcheck=False)
    assert a.tolist() == list(range(10))


def test_the_first_limit():
    """An eighth of the memory: results of look-ups that are 512 MiB are kept on large machines."""
    code = f"""
import sys
sys.path += {sys.path!r}
from fastopt._kernels import _step_memory
print(_step_memory.get_limit())
"""
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True
    )
    page = os.sysconf("SC_PAGE_SIZE")
    memory = os.sysconf("SC_PHYS_PAGES") * page
    assert abs(int(run.stdout) - max(2**29, memory // 8)) < page


def test_the_limit_holds():
    fo.set_cache_limit(1_000_000)
    with step_memory():
        arrays = [np.empty(50_000) for _ in range(10)]
        del arrays
    assert 0 < fo.cached_bytes() <= 1_000_000
    fo.set_cache_limit(0)
    assert fo.cached_bytes() == 0
    with step_memory():
        np.empty(50_000)
    assert fo.cached_bytes() == 0


@pytest.mark.parametrize("bad", [1.5, "1", None])
def test_limit_of_another_type(bad):
    with pytest.raises(TypeError, match="n_bytes"):
        fo.set_cache_limit(bad)


@pytest.mark.parametrize("bad", [-1, 2**63])
def test_limit_out_of_range(bad):
    with pytest.raises(ValueError, match=str(bad)):
        fo.set_cache_limit(bad)


def test_many_threads_share_it():
    def work(k, wrong):
        rng = np.random.default_rng(k)
        for _ in range(300):
            with step_memory():
                n = int(rng.integers(1, 200_000))
                a = np.full(n, k, np.int64)
                b = a + 1
                if not (a == k).all() or not (b == k + 1).all():
                    wrong.append(k)

    wrong = []
    threads = [threading.Thread(target=work, args=(k, wrong)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_child_can_use_it():
    code = """
import os, sys
import numpy as np
from fastopt.step_memory import step_memory
with step_memory():
    a = np.full(100_000, 3.0)
    child = os.fork()
    if child == 0:
        b = a + 1
        del a
        os._exit(0 if (b == 4).all() and not np.zeros(100_000).any() else 1)
    sys.exit(os.waitpid(child, 0)[1])
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_step_uses_it_and_the_caller_does_not():
    w = fo.Variable(np.ones((300, 300)), name="w")
    names = []

    def loss():
        names.append(handler())
        return np.sum(w @ w)

    outside = handler()
    optimizer = fo.GradientDescentOptimizer(0.001)
    pairs = optimizer.compute_gradients(loss)
    optimizer.apply_gradients(pairs)
    optimizer.minimize(loss)
    optimizer.minimize(loss, gate_gradients=optimizer.GATE_NONE)
    assert names == ["fastopt_step_memory"] * 3
    assert handler() == outside
    del pairs
    assert fo.cached_bytes() > 0
