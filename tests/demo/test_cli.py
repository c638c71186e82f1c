"""The command line, as a user meets it."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

import fastopt as fo
from fastopt.demo import cli
from fastopt.demo.cli import main
from tests.demo.helpers import FASTOPT, click_log, environment

AGARICUS = str(Path(__file__).parent.parent / "data" / "agaricus_400.svm.gz")
QUICK = ["--epochs", "2", "--hash-buckets", "64", "--batch-size", "64"]
EPOCH = re.compile(r"^ +(\d+) +(\d+\.\d{4}) +(\d+\.\d{4}) +(\d\.\d{4}|-) +[\d,]+$", re.M)


def epochs(output: str) -> list[tuple[str, ...]]:
    """Return number, training loss, test log-loss and AUC of each epoch, as printed."""
    return [match.groups() for match in EPOCH.finditer(output)]


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FASTOPT, *arguments], env=environment(**variables), capture_output=True, text=True
    )


class TestTraining:
    def test_census(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--epochs", "2"]) == 0
        output = capsys.readouterr().out
        assert "48,842 rows, 6 numeric and 8 categorical columns" in output
        assert "label income: predicting >50K (23.9 % of the rows) against <=50K" in output
        assert "training on 32,562 rows, testing on 16,280" in output
        (_, first_loss, *_), (number, loss, log_loss, auc) = epochs(output)
        assert number == "2"
        assert float(loss) < float(first_loss)
        assert float(auc) >= 0.90
        assert float(log_loss) < 0.33  # the best constant has 0.5513
        ftrl, adagrad = (line.split() for line in output.splitlines()[-3:-1])
        steps = 2 * -(-32_562 // 256)
        assert ftrl[:2] == ["Ftrl", f"{steps:,}"]
        assert adagrad[:2] == ["Adagrad", f"{steps:,}"]
        # 42 rows an example, most of them shared within a batch
        assert 0 < int(ftrl[2].replace(",", "")) < 2 * 32_562 * 42
        assert ftrl[3] == "0"
        dense = (14 * 8 + 6) * 64 + 64 + 64 * 32 + 32 + 32 + 1
        assert int(adagrad[3].replace(",", "")) == steps * dense

    @pytest.mark.parametrize("threads", ["1", "2"])
    def test_click_log(self, tmp_path: Path, capsys, threads: str) -> None:
        path = click_log(tmp_path / "clicks.csv")
        before = fo.get_num_threads()
        try:
            assert main(["--data", str(path), *QUICK, "--threads", threads]) == 0
            assert fo.get_num_threads() == int(threads)
        finally:
            fo.set_num_threads(before)
        output = capsys.readouterr().out
        assert "300 rows, 13 numeric and 26 categorical columns" in output
        assert "(28 crossed pairs)" in output
        assert len(epochs(output)) == 2

    def test_libsvm(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--data", AGARICUS, "--epochs", "10", "--batch-size", "32"]) == 0
        output = capsys.readouterr().out
        assert "400 rows, 8,800 entries with indices from 1 to 126" in output
        assert float(epochs(output)[-1][3]) > 0.99

    def test_libsvm_with_hashed_indices(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--data", AGARICUS, "--epochs", "10", "--hash-buckets", "50"]) == 0
        assert "model: 50 embeddings of 8" in capsys.readouterr().out

    def test_same_seed_same_numbers(self, capsys: pytest.CaptureFixture[str]) -> None:
        outputs = []
        for seed in ("1", "1", "2"):
            assert main(["--data", AGARICUS, *QUICK, "--seed", seed]) == 0
            outputs.append(epochs(capsys.readouterr().out))
        assert outputs[0] == outputs[1]
        assert outputs[0] != outputs[2]

    def test_held_out_rows_with_one_label(self, tmp_path: Path, capsys) -> None:
        path = tmp_path / "data.csv"
        path.write_text("label,a\n0,1\n1,2\n0,3\n")
        assert main(["--data", str(path), *QUICK]) == 0
        assert {auc for *_, auc in epochs(capsys.readouterr().out)} == {"-"}

    def test_named_columns(self, tmp_path: Path, capsys) -> None:
        path = tmp_path / "data.csv"
        path.write_text(
            "id,a,b,bought\n" + "".join(f"{i},{i % 3},{i % 5},{i % 2}\n" for i in range(30))
        )
        arguments = ["--data", str(path), "--label", "bought", "--categorical", "a", "b"]
        assert main([*arguments, "--ignore", "id", *QUICK]) == 0
        assert "30 rows, 0 numeric and 2 categorical columns" in capsys.readouterr().out


class TestErrors:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("label,a\n0,1\n1,2,3\n", "line 3: 3 fields where the first line has 2"),
            ("1 3:1\n0 5:x\n", "line 2: the value of '5:x' is not a finite number"),
            ("label,a\n0,1\n1,2\n", "2 rows are too few to hold out a third"),
        ],
    )
    def test_data(self, tmp_path: Path, capsys, content: str, message: str) -> None:
        path = tmp_path / "data"
        path.write_text(content)
        assert main(["--data", str(path)]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"error: {path}")
        assert message in captured.err
        assert captured.err.count("\n") == 1

    def test_no_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--data", "/nowhere/clicks.csv"]) == 1
        assert capsys.readouterr().err == "error: /nowhere/clicks.csv: No such file or directory\n"

    def test_too_many_buckets(self, tmp_path: Path, capsys) -> None:
        path = click_log(tmp_path / "clicks.csv", rows=30)
        assert main(["--data", str(path), "--hash-buckets", str(2**31 - 1)]) == 1
        assert "at most 2,147,483,647 are possible" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--epochs", "0"], "argument --epochs: 0 must be at least 1"),
            (["--epochs", "many"], "argument --epochs: 'many' is not a whole number"),
            (["--seed", "-1"], "argument --seed: -1 must be at least 0"),
            (["--threads", "100000"], "argument --threads: 100000 must be at most 1024"),
            (["--hash-buckets", "1"], "argument --hash-buckets: 1 must be at least 2"),
            (["--label", "a"], "--label: columns can be named only with --data"),
            (["--data", AGARICUS, "--numeric", "a"], "is a LIBSVM file, without named columns"),
            (["--epoch", "3"], "unrecognized arguments"),
            (["clicks.csv"], "unrecognized arguments: clicks.csv"),
        ],
    )
    def test_usage(self, capsys, arguments: list[str], message: str) -> None:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert message in capsys.readouterr().err

    def test_out_of_memory(self, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
        def load_census():
            raise MemoryError

        monkeypatch.setattr(cli, "load_census", load_census)
        assert main([]) == 1
        assert capsys.readouterr().err == "error: out of memory\n"

    def test_names_that_cannot_be_printed(self, tmp_path: Path) -> None:
        """A label of bytes that are not UTF-8, printed to an ASCII terminal."""
        path = tmp_path / "data.csv"
        path.write_bytes(b"a,label\n" + b"1,caf\xe9\n2,th\xe9\n" * 6)
        done = run("--data", str(path), *QUICK, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr
        assert r"predicting th\udce9" in done.stdout


class TestProcess:
    def test_module_without_terminal(self) -> None:
        done = run("--data", AGARICUS, *QUICK)
        assert done.returncode == 0
        assert done.stderr == ""
        assert "\r" not in done.stdout
        assert len(epochs(done.stdout)) == 2

    def test_help_names_every_option(self) -> None:
        done = run("--help", COLUMNS="80")
        assert done.returncode == 0
        for option in ("data", "label", "numeric", "categorical", "ignore", "hash-buckets"):
            assert f"--{option} " in done.stdout
        for option in ("embedding-dim", "epochs", "batch-size", "seed", "threads"):
            assert f"--{option} N" in done.stdout
        assert max(map(len, done.stdout.splitlines())) < 80

    def test_version(self) -> None:
        assert run("--version").stdout == f"fastopt {fo.__version__}\n"

    def test_progress_bar_on_a_terminal(self) -> None:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*FASTOPT, "--epochs", "1", "--batch-size", "32"],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=environment(COLUMNS="100"),
        )
        os.close(theirs)
        drawn = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # what Linux says at the end of a pseudo-terminal
                break
            if not part:
                break
            drawn += part
        output = process.communicate()[0]
        os.close(ours)
        assert process.returncode == 0
        assert b"\repoch 1 of 1 [" in drawn
        assert drawn.endswith(b" \r")
        assert b"\r" not in output

    def test_reader_that_leaves(self) -> None:
        process = subprocess.Popen(
            [*FASTOPT, "--data", AGARICUS, "--epochs", "100000"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""
        process.stderr.close()

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
    def test_full_disk(self) -> None:
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [*FASTOPT, "--data", AGARICUS, *QUICK],
                env=environment(),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert done.returncode == 1
        assert done.stderr == "error: standard output: No space left on device\n"

    def test_interrupt(self) -> None:
        process = subprocess.Popen(
            [*FASTOPT, "--data", AGARICUS, "--epochs", "100000"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not EPOCH.match(process.stdout.readline()):
            pass
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert errors == "interrupted\n"
