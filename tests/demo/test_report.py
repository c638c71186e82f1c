"""What the demo prints."""

from __future__ import annotations

import io

import pytest

from fastopt.demo import report
from fastopt.demo.report import EPOCH_HEADER, ProgressBar, epoch_line, work_table
from fastopt.demo.train import Epoch, Work


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(report.time, "perf_counter", lambda: now[0])
    return now


class TestProgressBar:
    def test_silent_when_not_a_terminal(self, clock: list[float]) -> None:
        stream = io.StringIO()
        bar = ProgressBar(stream, 10)
        bar.restart("epoch 1 of 2")
        clock[0] = 5
        bar.update(5, 0.5)
        bar.clear()
        assert stream.getvalue() == ""

    @pytest.mark.parametrize(
        ("columns", "expected"),
        [
            (
                100,
                "epoch 1 of 2 [#######.......................]"
                "    500 of 2,000       250 examples/s  loss 0.2500",
            ),
            (
                81,
                "epoch 1 of 2 [###............]    500 of 2,000       250 examples/s  loss 0.2500",
            ),
            (70, "epoch 1 of 2   500 of 2,000       250 examples/s  loss 0.2500"),
            (20, "epoch 1 of 2   500 "),
        ],
    )
    def test_line_fits(
        self, clock: list[float], monkeypatch: pytest.MonkeyPatch, columns: int, expected: str
    ) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        stream = Terminal()
        bar = ProgressBar(stream, 2000)
        bar.restart("epoch 1 of 2")
        clock[0] = 2
        bar.update(500, 0.25)
        assert stream.getvalue() == "\r" + expected
        assert len(expected) < columns

    def test_drawn_ten_times_a_second_at_most(self, clock: list[float]) -> None:
        stream = Terminal()
        bar = ProgressBar(stream, 1000)
        for k in range(1000):
            clock[0] = k / 1000
            bar.update(k, 0.5)
        assert stream.getvalue().count("\r") == 9

    def test_shorter_line_wipes_the_longer(self, clock: list[float]) -> None:
        stream = Terminal()
        bar = ProgressBar(stream, 1000)
        for now, loss in ((1, 1000.0), (2, 0.5)):
            clock[0] = now
            bar.update(1, loss)
        first, second = stream.getvalue().split("\r")[1:]
        assert len(first) == len(second)
        bar.clear()
        assert stream.getvalue().endswith("\r" + " " * len(second.rstrip()) + "\r")


def test_epoch_line_stands_under_its_header() -> None:
    line = epoch_line(Epoch(3, 2.0, 123456.7, 0.31234, 0.29876, 0.91666))
    assert line.split() == ["3", "0.3123", "0.2988", "0.9167", "123,457"]
    assert len(line) == len(EPOCH_HEADER)


def test_epoch_without_auc() -> None:
    assert epoch_line(Epoch(1, 2.0, 10.0, 0.3, 0.3, None)).split()[3] == "-"


def test_work_table() -> None:
    work = {
        "Ftrl": Work({"wide": None}, 10, 12345, 0),
        "Adagrad": Work(dict.fromkeys(["embeddings", "w0", "b0", "w1", "b1"]), 10, 999, 1000),
    }
    assert work_table(work) == [
        "optimizer  steps  sparse rows touched  dense parameters  variables",
        "Ftrl          10               12,345                 0  wide",
        "Adagrad       10                  999             1,000  embeddings and 4 more",
    ]
