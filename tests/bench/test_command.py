import json

import pytest

from bench import asides, command, guard
from bench.command import main

SMALL = ["dense/sgd/1e4", "--threads=1", "--rounds=1", "--seconds=0", "--peers=numpy"]


def test_list_names_scenarios_without_measuring(capsys):
    assert main(["--list", "--quick", "dense/sgd"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["dense/sgd/200x1e3", "dense/sgd/1e6"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "no scenario 'nonsense'"),
        (["--peers", "numpy,nonsense"], "no peer nonsense; there are "),
        (["--threads", "two"], "invalid"),
    ],
)
def test_what_does_not_exist_is_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as error:
        main([*arguments, "--list"])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_a_run_writes_the_table_and_the_next_one_adds_to_it(tmp_path, capsys):
    assert main([*SMALL, "--out", str(tmp_path)]) == 0
    assert "| sgd/1e4 | 1 |" in (tmp_path / "table.md").read_text()
    assert "times NumPy" in capsys.readouterr().err
    other = ["dense/momentum/1e4", *SMALL[1:]]
    assert main([*other, "--add", "--out", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "table.json").read_text())
    assert [row["work"]["rule"] for row in record["rows"]] == ["sgd", "momentum"]
    assert record["context"]["command"] == "python -m bench"


def test_the_check_fails_when_a_saved_ratio_is_out_of_reach(tmp_path, monkeypatch, capsys):
    saved = tmp_path / "ratios.json"
    monkeypatch.setattr(command, "SAVED_RATIOS", saved)
    arguments = [*SMALL, "--out", str(tmp_path / "out")]
    assert main([*arguments, "--save-ratios"]) == 0
    assert list(guard.load(saved)) == ["dense/sgd/1e4 @1"]
    saved.write_text('{"dense/sgd/1e4 @1": {"NumPy": 1e9}}')
    assert main([*arguments, "--check"]) == 1
    assert "dense/sgd/1e4 @1" in capsys.readouterr().out.splitlines()[-1]
    saved.write_text('{"dense/sgd/1e4 @1": {"NumPy": 1e-9}}')
    assert main([*arguments, "--check"]) == 0


def test_too_large_scenarios_are_left_out(tmp_path):
    assert main([*SMALL, "--skip-larger-gb=0.00001", "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "table.json").read_text())["rows"] == []


def test_asides_are_measured_instead_of_scenarios(monkeypatch):
    measured = []
    monkeypatch.setattr(asides, "main", lambda: measured.append(True))
    assert main(["--asides"]) == 0
    assert measured == [True]


def test_turns_are_taken_by_all():
    seen = []
    medians = asides.take_turns({"a": lambda k: seen.append(("a", k)), "b": lambda k: None}, 3)
    assert seen == [("a", 0), ("a", 1), ("a", 2)]
    assert list(medians) == ["a", "b"] and all(value >= 0 for value in medians.values())
