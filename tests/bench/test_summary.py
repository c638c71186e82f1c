import json
from fnmatch import fnmatchcase

import pytest

from bench import guard, markdown, overview, plots
from bench.driver import Measured
from bench.scenarios import workloads
from bench.summary import quantile, row_from_json, row_to_json, summarise
from bench.workloads import Clicks, Dense, Sparse

CONTEXT = {
    "processor": "A processor",
    "processors": 2,
    "python": "3.11",
    "versions": {"numpy": "2.4"},
    "load": [0.1, 0.2],
    "rounds": 2,
    "turn_seconds": 0.1,
    "command": "python -m bench",
}


def measured(name, peer, rounds, ours, **more):
    return Measured(name, peer, rounds=rounds, against=ours, **more)


@pytest.fixture
def row():
    ours = [[1.0, 1.0, 3.0], [10.0]]  # the second round was slow for everybody
    return summarise(
        Dense("dense/sgd/1e6", "sgd", 1_000_000),
        2,
        [
            measured("fastopt", "fastopt_", ours, ours),
            measured("limit", "limit", [[0.5], [5.0]], ours),
            measured("PyTorch fused", "pytorch", [[4.0], [40.0]], ours),
            measured("NumPy", "numpy_", [[6.0], [20.0]], ours),
            Measured("optax", "jax_", note="no such rule"),
        ],
    )


def test_ratios_are_those_of_turns_side_by_side(row):
    torch = row.entries[2]
    assert torch.ratio == torch.ratio_low == torch.ratio_high == 4.0
    assert row.of_limit == 0.5
    assert (row.entries[3].ratio_low, row.entries[3].ratio_high) == (2.0, 6.0)


def test_the_best_peer_is_the_fastest_and_neither_limit_nor_candidate(row):
    assert [peer.name for peer in row.peers] == ["NumPy", "PyTorch fused"]
    assert row.times_best_peer == 4.0
    assert row.undisturbed == pytest.approx(7.4)  # 10 % quantiles: 6 to 20, and 1
    assert [entry.name for entry in row.absent] == ["optax"]


def test_median_and_spread_are_of_all_steps(row):
    ours = row.ours
    assert ours.seconds == 2.0
    assert ours.low == 1.0 and ours.high == pytest.approx(7.9)


def test_a_peer_with_larger_steps_is_compared_by_examples():
    ours = [[1.0]]
    row = summarise(
        Clicks("end_to_end/clicks/8", 8),
        1,
        [
            measured("fastopt", "fastopt_", ours, ours),
            measured("big steps", "vowpal_wabbit", [[10.0]], ours, examples=40),
        ],
    )
    assert row.ours.examples_a_second == 8.0
    assert row.peers[0].examples_a_second == 4.0
    assert row.times_best_peer == row.undisturbed == 2.0


def test_a_rule_that_fastopt_lacks_is_a_dash(row):
    lacking = summarise(
        row.work, 1, [Measured("fastopt", "fastopt_", note="no class"), Measured("x", "numpy_")]
    )
    assert lacking.ours.seconds is None and lacking.times_best_peer is None
    assert "no class" in markdown.document([lacking], CONTEXT)


def test_quantiles_interpolate():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.75) == 1.75
    assert quantile([5.0], 0.1) == 5.0


def test_rows_survive_the_file(row):
    assert row_from_json(json.loads(json.dumps(row_to_json(row)))) == row


def test_the_table_says_who_is_ahead(row):
    document = markdown.document([row], CONTEXT)
    (line,) = (line for line in document.splitlines() if line.startswith("| sgd/1e6 "))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:2] == ["sgd/1e6", "2"]
    assert cells[2] == "2.00 s" and cells[5] == "**4.00**" and cells[8] == "0.50"
    heads = [x for x in document.splitlines() if x.startswith("| scenario ")]
    assert len(heads) == 1 and heads[0].count("|") == line.count("|")
    assert "Load of the machine 0.1 to 0.2" in document


def test_memory_is_told_with_scaling():
    work = Sparse("scaling/rows/adagrad/1e5", "adagrad", 100, 4, 10, "zipf")
    ours = [[1.0]]
    row = summarise(work, 1, [measured("fastopt", "fastopt_", ours, ours, peak_extra_mb=12.3)])
    assert "| rows/adagrad/1e5 | 12 | – |" in markdown.document([row], CONTEXT)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (2.5, "2.50 s"), (0.25, "250 ms"), (1.5e-3, "1.50 ms"), (2e-8, "0.02 µs")],
)
def test_durations_have_a_unit_that_fits(seconds, text):
    assert markdown.duration(seconds) == text


def test_plots_are_drawn_where_matplotlib_is_installed(row, tmp_path):
    pytest.importorskip("matplotlib")
    scaling = summarise(
        Sparse("scaling/rows/adagrad/1e5", "adagrad", 100, 4, 10, "zipf"),
        2,
        [measured("fastopt", "fastopt_", [[1.0]], [[1.0]])],
    )
    made = plots.draw([row, scaling], tmp_path)
    assert [path.name for path in made] == ["dense.png", "scaling.png", "overview.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)


def test_a_library_counts_by_its_best_way(row):
    assert row.best_by_library() == {"limit": 0.5, "PyTorch": 4.0, "NumPy": 4.0}


def test_scenarios_of_a_kind_are_told_by_median_and_lowest(row):
    rows = [row]
    for rule, torch in (("adam", 6.0), ("adamw", 9.0)):
        work = Dense(f"dense/{rule}/1e6", rule, 1_000_000)
        rows.append(
            summarise(
                work,
                2,
                [
                    measured("fastopt", "fastopt_", [[1.0]], [[1.0]]),
                    measured("PyTorch single", "pytorch", [[torch + 1]], [[1.0]]),
                    measured("PyTorch fused", "pytorch", [[torch]], [[1.0]]),
                ],
            )
        )
    (group,) = overview.kinds(rows)
    assert (group.label, group.threads, group.scenarios) == ("dense/*/1e6", 2, 3)
    assert group.libraries == [("NumPy", 4.0, 4.0), ("PyTorch", 6.0, 4.0)]
    assert group.of_limit == [0.5]
    assert "| dense/*/1e6 | 3 | 2 | 0.50 (0.50) | NumPy 4.00 (4.00); PyTorch 6.00 (4.00) |" in (
        markdown.document(rows, CONTEXT)
    )
    short = markdown.short(overview.telling(rows)).splitlines()
    assert short[0] == "|  | 2 threads |"
    assert short[2] == "| a dense variable of 1,000,000 | NumPy 4.00, PyTorch 6.00 |"


def test_scaling_is_no_kind():
    work = Sparse("scaling/rows/adagrad/1e5", "adagrad", 100, 4, 10, "zipf")
    assert overview.kinds([summarise(work, 1, [])]) == []


def test_every_telling_kind_has_scenarios():
    names = [work.name for work in workloads()]
    for pattern in overview.TELLING:
        assert any(fnmatchcase(name, pattern) for name in names), pattern


def test_the_guard_tells_when_a_scenario_got_slower_against_all_its_peers():
    saved = {"a @1": {"x": 10.0, "y": 4.0}, "b @1": {"x": 2.0}}
    assert guard.slower({"a @1": {"x": 8.1, "y": 3.3}}, saved) == []
    # One peer alone may have been quick or disturbed.
    assert guard.slower({"a @1": {"x": 5.0, "y": 4.0}}, saved) == []
    (sentence,) = guard.slower({"a @1": {"x": 7.0, "y": 3.0}, "b @1": {"x": 2.5}}, saved)
    assert "a @1" in sentence and "was 4" in sentence


def test_the_guard_keeps_what_a_run_did_not_measure(row, tmp_path):
    path = tmp_path / "ratios.json"
    path.write_text('{"other @1": {"x": 1.0}}')
    guard.save([row], path)
    assert guard.load(path) == {
        "dense/sgd/1e6 @2": {"NumPy": 4.0, "PyTorch fused": 4.0},
        "other @1": {"x": 1.0},
    }
    assert guard.slower(guard.ratios([row]), guard.load(path)) == []
