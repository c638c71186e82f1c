import json

import numpy as np
import pytest

import fastopt as fo
from bench import data
from bench.peers import fastopt_
from bench.scenarios import FAMILIES, means, select, workloads
from bench.workloads import KINDS, Dense, Hogwild, Sparse, from_json, to_json


def test_every_workload_survives_the_pipe_to_a_worker():
    for work in workloads():
        assert from_json(json.loads(json.dumps(to_json(work)))) == work


def test_every_family_and_kind_is_measured_and_names_are_unique():
    names = [work.name for work in workloads()]
    assert len(set(names)) == len(names)
    assert {name.split("/")[0] for name in names} == set(FAMILIES)
    assert {work.kind for work in workloads()} == set(KINDS)


def test_quick_scenarios_are_some_of_all():
    quick = workloads(quick=True)
    assert {work.name for work in quick} < {work.name for work in workloads()}
    assert {work.name.split("/")[0] for work in quick} == set(FAMILIES)
    assert max(work.megabytes for work in quick) < 1024


def test_every_workload_describes_itself():
    descriptions = [work.describe() for work in workloads()]
    assert len(set(descriptions)) >= len(descriptions) - 6  # scaling repeats a few of sparse


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        ("sparse", "sparse/adagrad/1e6x64/65k/zipf", True),
        ("sparse/adagrad", "sparse/adagrad/1e6x64/65k/zipf", True),
        ("sparse/ada", "sparse/adagrad/1e6x64/65k/zipf", False),
        ("*/65k/*", "sparse/adagrad/1e6x64/65k/zipf", True),
        ("sparse/", "sparse/sgd/1e6x64", True),
        ("dense", "sparse/sgd/1e6x64", False),
    ],
)
def test_names_are_leading_parts_or_patterns(name, path, expected):
    assert means(name, path) is expected


def test_select_keeps_the_order_and_names_what_it_does_not_know():
    available = workloads()
    assert select([], available) == available
    chosen = select(["lookups", "dense/sgd"], available)
    assert chosen[0].name.startswith("lookups/") and chosen[-1].name.startswith("dense/sgd/")
    with pytest.raises(ValueError, match="'nonsense'"):
        select(["nonsense"], available)


def test_memory_counts_what_the_rule_keeps():
    assert Dense("x", "sgd", 1_000_000).megabytes == 8
    assert Dense("x", "adam", 1_000_000).megabytes == 16
    adagrad = Sparse("x", "adagrad", 1_000, 10, 0, "zipf").megabytes
    assert adagrad == 2 * Sparse("x", "sgd", 1_000, 10, 0, "zipf").megabytes


@pytest.mark.parametrize("kind", ["zipf", "uniform"])
def test_ids_are_in_range_and_the_same_every_time(kind):
    first, second = data.ids(kind, 1_000, 5_000), data.ids(kind, 1_000, 5_000)
    assert first.dtype == np.int64
    assert first.min() >= 0 and first.max() < 1_000
    np.testing.assert_array_equal(first, second)


def test_zipf_ids_repeat_more_than_uniform_ones():
    zipf, uniform = (len(np.unique(data.ids(k, 100_000, 50_000))) for k in ("zipf", "uniform"))
    assert zipf < uniform / 2


def test_unknown_ids_are_refused():
    with pytest.raises(ValueError, match="'normal'"):
        data.ids("normal", 10, 10)


@pytest.mark.parametrize("n_rows", [1, 2, 7, 60, 1_000])
def test_scattering_is_a_permutation(n_rows):
    scattered = data.scattered(np.arange(n_rows), n_rows)
    assert sorted(scattered) == list(range(n_rows))


def test_numbers_repeat_a_block_and_keep_their_scale():
    numbers = data.numbers((3, 5), seed=1, scale=2.0)
    assert numbers.dtype == np.float32 and numbers.shape == (3, 5)
    np.testing.assert_array_equal(numbers, data.numbers((3, 5), seed=1, scale=2.0))
    assert not np.array_equal(numbers, data.numbers((3, 5), seed=2, scale=2.0))


def test_every_workload_runs_with_the_threads_that_it_is_measured_with():
    # One after the other in the same process, as a worker does.
    before = fo.get_num_threads()
    try:
        fastopt_.builders(Hogwild("hogwild/64", 64), 2)
        assert fo.get_num_threads() == 1  # it makes two of its own
        fastopt_.builders(Dense("dense/sgd/100", "sgd", 100), 2)
        assert fo.get_num_threads() == 2
    finally:
        fo.set_num_threads(before)
