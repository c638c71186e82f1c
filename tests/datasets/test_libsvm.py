"""The LIBSVM reader, and how a LIBSVM file is told from a CSV file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastopt.datasets import DataError, is_libsvm, read_libsvm

AGARICUS = Path(__file__).parent.parent / "data" / "agaricus_400.svm.gz"


@pytest.fixture
def write(tmp_path: Path):
    def write(content: str | bytes) -> Path:
        path = tmp_path / "data.svm"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


class TestRead:
    def test_rows(self, write) -> None:
        rows = read_libsvm(write("+1 1:0.5 3:-2e-1\n-1 2:1\n+1 1:7 2:8 9:9\n"))
        np.testing.assert_array_equal(rows.indptr, [0, 2, 3, 6])
        np.testing.assert_array_equal(rows.indices, [1, 3, 2, 1, 2, 9])
        np.testing.assert_array_equal(rows.values, [0.5, -0.2, 1, 7, 8, 9])
        np.testing.assert_array_equal(rows.label.values, [1, 0, 1])
        assert rows.label.meaning == ("-1", "+1")
        assert (rows.indptr.dtype, rows.indices.dtype, rows.values.dtype) == (
            np.int64,
            np.int64,
            np.float64,
        )

    def test_indices_from_zero_gaps_comments_blank_lines(self, write) -> None:
        rows = read_libsvm(
            write("# head\n0 0:1 5:2 # tail 7:1\n\n1\n   \n1  0:3\t1:4 \r\n0 # none\n")
        )
        np.testing.assert_array_equal(rows.indptr, [0, 2, 2, 4, 4])
        np.testing.assert_array_equal(rows.indices, [0, 5, 0, 1])
        np.testing.assert_array_equal(rows.label.values, [0, 1, 1, 0])

    def test_words_as_labels(self, write) -> None:
        label = read_libsvm(write("spam 1:1\nham 2:1\n")).label
        assert label.meaning == ("ham", "spam")
        np.testing.assert_array_equal(label.values, [1, 0])

    def test_no_features_at_all(self, write) -> None:
        rows = read_libsvm(write("0\n1\n"))
        assert len(rows) == 2
        assert rows.to_scipy().shape == (2, 0)

    def test_large_index(self, write) -> None:
        rows = read_libsvm(write(f"0 {2**62 - 1}:1\n1 1:1\n"))
        assert rows.indices[0] == 2**62 - 1

    @pytest.mark.parametrize("n", [10_000, 20_000, 25_001])
    def test_rows_in_chunks(self, write, n: int) -> None:
        rows = read_libsvm(write("".join(f"{i % 2} {i}:1 {i + 1}:{i}\n" for i in range(n))))
        np.testing.assert_array_equal(rows.indptr, 2 * np.arange(n + 1))
        np.testing.assert_array_equal(rows.indices[::2], np.arange(n))
        np.testing.assert_array_equal(rows.values[1::2], np.arange(n))

    def test_agaricus(self) -> None:
        rows = read_libsvm(AGARICUS)
        with gzip.open(AGARICUS, "rt") as text:
            lines = [line.split() for line in text]
        assert len(rows) == 400
        matrix = rows.to_scipy()
        assert matrix.shape == (400, 127)
        for i, (label, *pairs) in enumerate(lines):
            assert rows.label.values[i] == float(label)
            expected = np.zeros(127)
            expected[[int(pair.split(":")[0]) for pair in pairs]] = 1
            np.testing.assert_array_equal(matrix[[i]].toarray()[0], expected)


class TestMalformed:
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("1 3", "'3' is not index:value"),
            ("1 3:", "'3:' is not index:value"),
            ("1 3:1:2 4", "'3:1:2' is not index:value"),
            ("1 3 : 1", "'3' is not index:value"),
            ("1 a:1", "the index of 'a:1' is not a whole number"),
            ("1 -3:1", "the index of '-3:1' is not a whole number"),
            ("1 1.5:1", "the index of '1.5:1' is not a whole number"),
            ("1 ٣:1", "the index of '٣:1' is not a whole number"),
            ("1 3:x", "the value of '3:x' is not a finite number"),
            ("1 3:nan", "the value of '3:nan' is not a finite number"),
            ("1 3:inf", "the value of '3:inf' is not a finite number"),
            ("1 3:1_0", "the value of '3:1_0' is not a finite number"),
            (f"1 {2**62}:1", "is too large"),
            ("1 1" + "0" * 5000 + ":1", "is too large"),
            ("1 3:1 2:1", "indices must ascend within a row, and 2 follows 3"),
            ("1 3:1 3:1", "indices must ascend within a row, and 3 follows 3"),
            ("1 qid:2 3:1", "'qid:2': ranking groups (qid) are not supported"),
            ("3:1 4:1", "the row begins with '3:1' where its label should stand"),
            ("7 3:1", "'7' is a third value of the label"),
        ],
    )
    def test_message_has_the_line(self, write, line: str, message: str) -> None:
        path = write(f"0 1:1\n# a comment\n1 5:1\n{line}\n0 1:1\n")
        with pytest.raises(DataError) as caught:
            read_libsvm(path)
        assert caught.value.line == 4
        assert message in str(caught.value)

    def test_line_in_a_later_chunk(self, write) -> None:
        with pytest.raises(DataError, match="line 12001: '5' is not index:value"):
            read_libsvm(write("0 1:1\n1 2:1\n" * 6000 + "0 5\n"))

    @pytest.mark.parametrize("content", ["", "# only a comment\n"])
    def test_no_rows(self, write, content: str) -> None:
        with pytest.raises(DataError, match="there are no rows"):
            read_libsvm(write(content))


class TestSniffing:
    @pytest.mark.parametrize(
        "content",
        [
            "1 3:1 4:1\n",
            "+1\n-1 3:0.5\n",
            "# comment\n0 1:1\n",
            "1 qid:3 1:1\n",
            "a 1:1\n",
        ],
    )
    def test_libsvm(self, write, content: str) -> None:
        assert is_libsvm(write(content))

    @pytest.mark.parametrize(
        "content",
        [
            "label,a\n0,1\n",
            "label\ta\n0\t1:2\n",
            "time,label\n17:20,yes\n",
            "first name,label\nx y,1\n",
            "",
            "word\n",
        ],
    )
    def test_not_libsvm(self, write, content: str) -> None:
        assert not is_libsvm(write(content))

    def test_gzip(self) -> None:
        assert is_libsvm(AGARICUS)


@settings(max_examples=300, deadline=None)
@given(content=st.text(alphabet="01 :.\n#-+eqid_9\u00a0", max_size=60) | st.binary(max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory, content: str | bytes) -> None:
    """Whatever a file holds, the outcome is a consistent matrix or a `DataError`."""
    path = tmp_path_factory.getbasetemp() / "any.svm"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    try:
        rows = read_libsvm(path)
    except DataError as error:
        assert str(error).startswith(str(path))
        return
    assert set(np.unique(rows.label.values)) == {0.0, 1.0}
    assert rows.indptr[-1] == len(rows.indices) == len(rows.values)
    assert np.isfinite(rows.values).all()
    for begin, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        assert (np.diff(rows.indices[begin:end]) > 0).all()
