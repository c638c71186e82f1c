import sys

import pytest

from bench.driver import Driver, environment, find_pythons, plan_groups
from bench.peers import PEERS
from bench.workloads import Aggregation, Dense


def test_groups_fit_the_memory_and_everybody_takes_part_once():
    sizes = {"ours": 1, "limit": 1, "a": 3, "b": 3, "c": 3, "d": 100}
    groups = plan_groups(sizes, ["ours", "limit"], 8)
    assert groups == [
        ["ours", "limit", "a", "b"],
        ["ours", "limit", "c"],
        ["ours", "limit", "d"],
    ]


def test_without_peers_there_is_one_group():
    assert plan_groups({"ours": 1}, ["ours", "limit"], 8) == [["ours"]]


def test_environment_sets_threads_and_drops_what_slows_the_blas():
    base = {"OPENBLAS_CORETYPE": "Prescott", "OMP_NUM_THREADS": "9", "HOME": "/home/x"}
    env = environment("numpy_", 2, False, base)
    assert "OPENBLAS_CORETYPE" not in env and "BENCH_CHECKOUT" not in env
    assert env["OMP_NUM_THREADS"] == env["FASTOPT_NUM_THREADS"] == "2"
    assert env["HOME"] == "/home/x"
    assert environment("numpy_", 2, True, base)["BENCH_CHECKOUT"] == "1"
    assert environment("fastopt_", 2, False, base)["OPENBLAS_NUM_THREADS"] == "1"
    assert environment("jax_", 1, False, base)["JAX_PLATFORMS"] == "cpu"


def test_a_library_that_no_interpreter_has_is_left_out(monkeypatch):
    monkeypatch.setitem(PEERS, "nobody", PEERS["numpy_"].__class__("Nobody", ("no_such_module",)))
    pythons, versions = find_pythons([sys.executable], ["numpy_", "nobody"], False)
    assert set(pythons) == {"numpy_"}
    assert set(versions) == {"numpy", "scipy"}


@pytest.fixture(scope="module")
def driver():
    pythons = {"fastopt_": sys.executable, "numpy_": sys.executable}
    with Driver(pythons, rounds=2, seconds=0.0, budget_mb=1e3, checkout=False) as made:
        yield made


def test_contestants_take_turns_in_processes_of_their_own(driver):
    measured = driver.measure(Dense("dense/sgd/100", "sgd", 100), 1)
    assert [m.name for m in measured] == ["fastopt", "NumPy"]
    assert all(len(m.rounds) == 2 and all(t > 0 for t in m.rounds[0]) for m in measured)
    ours, theirs = measured
    assert theirs.against == ours.rounds


def test_what_a_library_cannot_do_is_a_dash(driver):
    measured = driver.measure(Aggregation("x", "csr", 100, 10, 4, "uniform"), 1)
    assert [m.name for m in measured] == ["fastopt"]


def test_a_workload_that_fails_is_a_note_and_the_next_one_works(driver):
    (failed, *_) = driver.measure(Aggregation("x", "coalesce", 10, 4, 4, "no such ids"), 1)
    assert "no such ids" in failed.note and not failed.rounds
    assert driver.measure(Dense("dense/sgd/100", "sgd", 100), 1)[0].rounds


def test_a_worker_that_ends_is_a_note_and_comes_back(driver):
    driver.measure(Dense("dense/sgd/100", "sgd", 100), 1)
    driver._workers["numpy_", 1]._process.kill()
    measured = {m.peer: m for m in driver.measure(Dense("dense/sgd/100", "sgd", 100), 1)}
    assert "ended" in measured["numpy_"].note
    assert measured["fastopt_"].rounds
    measured = {m.name: m for m in driver.measure(Dense("dense/sgd/100", "sgd", 100), 1)}
    assert measured["NumPy"].rounds


def test_peers_of_one_thread_stay_out_of_rows_of_two(driver):
    assert [m.peer for m in driver.measure(Dense("d", "sgd", 100), 2)] == ["fastopt_"]
