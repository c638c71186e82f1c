"""Blocks of rows, and the threads that share them."""

import multiprocessing
import sys
import threading

import numpy as np
import pytest

import fastopt as fo
from fastopt import nn
from fastopt.autodiff import Tensor, gradients
from fastopt.nn import blocks as module
from fastopt.nn.blocks import blas_has_one_thread, blocks, run


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    """Cut products whatever the environment of the tests says of the BLAS."""
    monkeypatch.setattr(module, "_ours", True)


@pytest.mark.parametrize(
    ("environment", "one"),
    [
        ({}, False),
        ({"OMP_NUM_THREADS": "1"}, True),
        ({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "4"}, False),
        ({"OMP_NUM_THREADS": "8", "OPENBLAS_NUM_THREADS": "1"}, True),
        ({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": ""}, True),
    ],
)
def test_threads_of_the_blas(monkeypatch, environment, one):
    for name in module._BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert blas_has_one_thread() is one


def test_a_blas_with_threads_gets_the_whole_product(monkeypatch):
    monkeypatch.setattr(module, "_ours", False)
    assert blocks(1 << 20, 64, 64) == [slice(0, 1 << 20)]


@pytest.fixture
def threads():
    """Set the number of threads for a test."""
    before = fo.get_num_threads()
    yield fo.set_num_threads
    fo.set_num_threads(before)


@pytest.mark.parametrize(
    "sizes", [(0, 5, 5), (100, 5, 0), (1, 1, 1), (2048, 429, 64), (8192, 429, 64), (5000, 4096, 9)]
)
def test_blocks_cover_all_rows_once(sizes):
    n, inner, _ = sizes
    parts = blocks(*sizes)
    assert [row for part in parts for row in range(n)[part]] == list(range(n))
    assert len(parts) == 1 or all(part.stop - part.start >= inner for part in parts[:-1])


def test_large_products_are_cut_for_two_threads():
    assert blocks(2048, 429, 64) == [slice(0, 1024), slice(1024, 2048)]
    assert len(blocks(2048, 64, 32)) == 1


def layer(n):
    rng = np.random.default_rng(2)
    x, y, w, b = (
        Tensor(rng.normal(size=shape).astype(np.float32))
        for shape in [(n, 60), (n, 5), (65, 70), (70,)]
    )
    out = nn.linear([x, y], w, b, nn.relu)
    up = rng.normal(size=(n, 70)).astype(np.float32)
    return [out.numpy(), *gradients(out, [x, y, w, b], grad_ys=[up])]


def test_same_bits_on_any_number_of_threads(threads):
    assert len(blocks(20000, 65, 70)) >= 4
    seen = []
    for n in (1, 2, 8):
        threads(n)
        seen.append([a.tobytes() for a in layer(20000)])
    assert seen[0] == seen[1] == seen[2]


def test_blocks_add_up_to_the_whole(threads):
    threads(2)
    ours = layer(20000)
    rng = np.random.default_rng(2)
    x, y, w, b = (
        rng.normal(size=s).astype("f") for s in [(20000, 60), (20000, 5), (65, 70), (70,)]
    )
    up = rng.normal(size=(20000, 70)).astype(np.float32).astype(float)
    joined = np.concatenate([x, y], 1).astype(float)
    up[joined @ w + b <= 0] = 0
    # Sums of 20,000 float32 terms of size 1, whose partial sums reach some hundreds; an element of
    # the product that is nearly 0 may fall on the other side of it.
    np.testing.assert_allclose(ours[3], joined.T @ up, atol=0.05)
    np.testing.assert_allclose(ours[4], up.sum(axis=0), atol=0.05)
    np.testing.assert_allclose(np.maximum(joined @ w + b, 0), ours[0], atol=1e-4)


def test_every_part_is_done_once_by_any_thread(threads):
    threads(4)
    parts, seen = [slice(i, i + 1) for i in range(50)], []
    run(lambda i, part: seen.append((i, part.start)), parts)
    assert sorted(seen) == [(i, i) for i in range(50)]


def test_the_first_error_arrives_and_all_have_ended(threads):
    threads(3)
    running = []

    def task(i, part):
        running.append(i)
        try:
            if i == 2:
                raise ZeroDivisionError("part 2")
        finally:
            running.remove(i)

    with pytest.raises(ZeroDivisionError, match="part 2"):
        run(task, [slice(0, 1)] * 20)
    assert running == []


def test_an_error_of_another_thread_arrives(threads):
    threads(2)
    barrier, caller = threading.Barrier(2), threading.get_ident()

    def task(i, part):
        barrier.wait(10)  # both threads have a part in their hands
        if threading.get_ident() != caller:
            raise ZeroDivisionError("elsewhere")

    with pytest.raises(ZeroDivisionError, match="elsewhere"):
        run(task, [slice(0, 1)] * 2)


def test_floating_point_errors_as_in_the_calling_thread(threads):
    threads(2)
    barrier, seen = threading.Barrier(2), []

    def task(i, part):
        barrier.wait(10)
        seen.append(np.geterr())

    with np.errstate(divide="raise", over="ignore"):
        expected = np.geterr()
        run(task, [slice(0, 1)] * 2)
    assert seen == [expected] * 2


def in_child(pipe):
    try:
        pipe.send([a.tobytes() for a in layer(20000)])
    finally:
        pipe.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_after_fork(threads):
    threads(2)
    expected = [a.tobytes() for a in layer(20000)]  # the threads exist now
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=in_child, args=(theirs,))
    child.start()
    theirs.close()
    assert ours.poll(60), "the child hangs"
    assert ours.recv() == expected
    child.join(60)
    assert child.exitcode == 0
