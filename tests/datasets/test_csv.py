"""The CSV reader: what it infers, what it allows, and what it refuses with which line."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastopt.datasets import CategoricalColumn, DataError, NumericColumn, Table, read_csv


@pytest.fixture
def write(tmp_path: Path):
    def write(content: str | bytes, name: str = "data.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def kinds(table: Table) -> dict[str, str]:
    return {
        c.name: "numeric" if isinstance(c, NumericColumn) else "categorical" for c in table.columns
    }


class TestInference:
    def test_numbers_and_names(self, write) -> None:
        table = read_csv(write("label,a,b,c\n0,1,x,1e3\n1,-2.5,y,+4\n0,3,x,.5\n"))
        assert kinds(table) == {"a": "numeric", "b": "categorical", "c": "numeric"}
        np.testing.assert_array_equal(table["a"].values, [1, -2.5, 3])
        np.testing.assert_array_equal(table["c"].values, [1000, 4, 0.5])
        assert table["b"].categories == ("x", "y")
        np.testing.assert_array_equal(table["b"].codes, [0, 1, 0])
        np.testing.assert_array_equal(table.label.values, [0, 1, 0])
        assert len(table) == 3

    def test_gaps_do_not_make_a_column_categorical(self, write) -> None:
        table = read_csv(write("label,a,b\n0,1,x\n1,,\n0,?,NA\n1,NaN,null\n0,nan,None\n"))
        assert kinds(table) == {"a": "numeric", "b": "categorical"}
        np.testing.assert_array_equal(np.isnan(table["a"].values), [False, True, True, True, True])
        np.testing.assert_array_equal(table["b"].codes, [0, -1, -1, -1, -1])
        assert table["b"].categories == ("x",)

    def test_column_of_gaps_only_is_categorical(self, write) -> None:
        table = read_csv(write("label,a\n0,\n1,?\n"))
        assert kinds(table) == {"a": "categorical"}
        assert table["a"].categories == ()

    def test_hexadecimal_ids_are_names(self, write) -> None:
        """A column of ids where some, such as 12345678 or 1e234567, look like numbers."""
        table = read_csv(write("label,c\n0,12345678\n1,1e234567\n0,05db9164\n"))
        assert kinds(table) == {"c": "categorical"}

    def test_infinity_and_underscores_are_not_numbers(self, write) -> None:
        table = read_csv(write("label,a,b\n0,1,1\n1,inf,1_0\n"))
        assert kinds(table) == {"a": "categorical", "b": "categorical"}

    def test_callers_lists_win(self, write) -> None:
        path = write("label,zip,size,id\n0,123,1,7\n1,456,2,8\n")
        table = read_csv(path, categorical=["zip"], numeric=["size"], ignore=["id"])
        assert kinds(table) == {"zip": "categorical", "size": "numeric"}

    @pytest.mark.parametrize("separator", [",", "\t", ";"])
    def test_separators(self, write, separator: str) -> None:
        text = "label,a,b\n0,1,x\n1,2,y\n".replace(",", separator)
        assert kinds(read_csv(write(text))) == {"a": "numeric", "b": "categorical"}

    def test_without_header(self, write) -> None:
        """The layout of the Criteo logs: tab-separated, label first, no header, gaps."""
        table = read_csv(write("0\t\t3\t05db9164\t\n1\t-1\t\t\tfe6b92e5\n1\t7\t4\t05db9164\t\n"))
        assert table.label.name == "column1"
        assert kinds(table) == {
            "column2": "numeric",
            "column3": "numeric",
            "column4": "categorical",
            "column5": "categorical",
        }
        assert len(table) == 3

    @pytest.mark.parametrize(
        ("header", "rows", "expected"),
        [
            ("a,Label,b", ["1,0,2", "3,1,4"], "Label"),
            ("a,click,b", ["1,0,0", "3,1,1"], "click"),
            ("a,b,bought", ["1,7,0", "3,8,1", "2,9,1"], "bought"),
            ("bought,a,b", ["0,7,1", "1,8,2", "1,9,3"], "bought"),
        ],
    )
    def test_label(self, write, header: str, rows: list[str], expected: str) -> None:
        assert read_csv(write("\n".join([header, *rows]))).label.name == expected

    def test_label_named_by_the_caller(self, write) -> None:
        table = read_csv(write("label,b\n5,0\n6,1\n7,1\n"), label="b")
        assert table.label.name == "b"
        assert kinds(table) == {"label": "numeric"}

    def test_an_ignored_column_is_not_taken_for_the_label(self, write) -> None:
        table = read_csv(write("label,a,b\n0,5,0\n1,6,1\n1,7,1\n"), ignore=["label"])
        assert table.label.name == "b"


class TestLabels:
    @pytest.mark.parametrize(
        ("first", "second", "meaning"),
        [
            ("0", "1", ("0", "1")),
            ("1", "0", ("0", "1")),
            ("+1", "-1", ("-1", "+1")),
            ("1.0", "0.0", ("0.0", "1.0")),
            ("2", "10", ("2", "10")),
            ("yes", "no", ("no", "yes")),
            ("<=50K", ">50K", ("<=50K", ">50K")),
        ],
    )
    def test_larger_number_or_later_word_is_one(
        self, write, first: str, second: str, meaning: tuple[str, str]
    ) -> None:
        label = read_csv(write(f"a,label\n1,{first}\n2,{second}\n3,{first}\n")).label
        assert label.meaning == meaning
        expected = [float(v == meaning[1]) for v in (first, second, first)]
        np.testing.assert_array_equal(label.values, np.float32(expected))
        assert label.values.dtype == np.float32

    def test_numbers_are_equal_by_value(self, write) -> None:
        label = read_csv(write("a,label\n1,1\n2,0\n3,1.0\n4,0.0\n")).label
        np.testing.assert_array_equal(label.values, [1, 0, 1, 0])

    def test_third_value(self, write) -> None:
        path = write("a,label\n1,yes\n2,no\n3,yes\n4,maybe\n")
        with pytest.raises(DataError, match="line 5: 'maybe' is a third value") as caught:
            read_csv(path)
        assert caught.value.line == 5
        assert caught.value.path == str(path)
        assert "'yes' and 'no'" in str(caught.value)

    def test_missing(self, write) -> None:
        with pytest.raises(DataError, match=r"line 3: the label \('label'\) is missing"):
            read_csv(write("a,label\n1,0\n2,\n"))

    def test_one_value(self, write) -> None:
        with pytest.raises(DataError, match="needs two values; every row has '1'"):
            read_csv(write("a,label\n1,1\n2,1\n"))

    def test_cannot_tell(self, write) -> None:
        with pytest.raises(DataError, match="name the label, one of a, b"):
            read_csv(write("a,b\n1,4\n2,5\n3,6\n"))


class TestText:
    def test_gzip_is_known_by_content(self, write) -> None:
        packed = gzip.compress(b"a,label\n1,0\n2,1\n")
        assert len(read_csv(write(packed, "data.csv"))) == 2

    def test_byte_order_mark_windows_line_ends_blank_lines(self, write) -> None:
        table = read_csv(write(b"\xef\xbb\xbflabel,a\r\n\r\n0,1\r\n1,2\r\n\r\n"))
        assert table.label.name == "label"
        np.testing.assert_array_equal(table["a"].values, [1, 2])

    def test_no_newline_at_the_end(self, write) -> None:
        assert len(read_csv(write("label,a\n0,1\n1,2"))) == 2

    def test_quotes(self, write) -> None:
        table = read_csv(write('label,a\n0,"x, y"\n1,"say ""hi"""\n0,"two\nlines"\n'))
        assert table["a"].categories == ("x, y", 'say "hi"', "two\nlines")

    def test_spaces_after_commas(self, write) -> None:
        assert read_csv(write("label, a\n0, x\n1, x\n"))["a"].categories == ("x",)

    def test_bytes_that_are_not_utf8(self, write) -> None:
        table = read_csv(write("label,a\n0,caf\xe9\n1,x\n".encode("latin-1")))
        assert len(table["a"].categories) == 2

    @pytest.mark.parametrize("n", [10_000, 20_000, 25_001])
    def test_rows_in_chunks(self, write, n: int) -> None:
        path = write("label,a,b\n" + "".join(f"{i % 2},{i},s{i % 7}\n" for i in range(n)))
        table = read_csv(path)
        np.testing.assert_array_equal(table["a"].values, np.arange(n))
        np.testing.assert_array_equal(table["b"].codes, np.arange(n) % 7)
        np.testing.assert_array_equal(table.label.values, np.arange(n) % 2)


class TestMalformed:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "the file is empty"),
            ("\n\n", "the file is empty"),
            ("label,a\n", "there is a header and no row"),
            ("label\n0\n1\n", "line 1: one field only"),
            ("label,a\n0,1\n1\n", "line 3: 1 fields where the first line has 2"),
            ("label,a\n0,1\n\n1,2,3\n", "line 4: 3 fields where the first line has 2"),
            ('label,a\n0,"x\ny"\n1\n', "line 4: 1 fields"),
            ('label,a\n0,x\n1,"y\n0,z\n', "line 3: a quoted field begins here and is not closed"),
            ('label,a\n0,"x"y\n1,z\n', "line 2: "),
            ("label,a,a\n0,x,y\n1,z,u\n", "line 1: two columns are called 'a'"),
            ("label,,a\n0,x,y\n1,z,u\n", "line 1: column 2 has no name"),
            ("label,b\n0,x\n1,y\n".replace("x", "\0"), "this is a binary file"),
        ],
    )
    def test_message(self, write, content: str, message: str) -> None:
        with pytest.raises(DataError) as caught:
            read_csv(write(content))
        assert message in str(caught.value)
        assert str(caught.value).startswith(caught.value.path)

    def test_long_unclosed_quote(self, write) -> None:
        """The csv module's own message, about a field limit, wouldn't help anybody."""
        with pytest.raises(DataError, match="line 3: a quoted field begins here"):
            read_csv(write('label,a\n0,x\n1,"y\n' + "0,z\n" * 100_000))

    def test_not_a_number_in_the_middle(self, write) -> None:
        path = write("label,a\n0,1\n1,2\n0,abc\n")
        with pytest.raises(DataError, match="line 4: 'abc' in the numeric column 'a'"):
            read_csv(path, numeric=["a"])

    @pytest.mark.parametrize("text", ["inf", "1e999", "1_000"])
    def test_strange_numbers(self, write, text: str) -> None:
        with pytest.raises(DataError, match=f"line 3: '{text}'.*not a finite number"):
            read_csv(write(f"label,a\n0,1\n1,{text}\n"), numeric=["a"])

    def test_not_a_number_after_the_rows_looked_at(self, write) -> None:
        path = write("label,a\n" + "0,1\n1,2\n" * 6000 + "0,abc\n")
        with pytest.raises(DataError, match="line 12002: 'abc' in the numeric column 'a'"):
            read_csv(path)

    def test_unknown_column(self, write) -> None:
        path = write("label,a\n0,1\n1,2\n")
        with pytest.raises(DataError, match="numeric names the column 'b'.*it has label, a"):
            read_csv(path, numeric=["b"])
        with pytest.raises(DataError, match="label names the column 'b'"):
            read_csv(path, label="b")

    def test_column_with_two_roles(self, write) -> None:
        with pytest.raises(DataError, match="'a' is both numeric and ignore"):
            read_csv(write("label,a\n0,1\n1,2\n"), numeric=["a"], ignore=["a"])

    def test_only_a_label(self, write) -> None:
        with pytest.raises(DataError, match="no column but the label"):
            read_csv(write("label,a\n0,1\n1,2\n"), ignore=["a"])

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"none\.csv: No such file"):
            read_csv(tmp_path / "none.csv")

    def test_directory(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="Is a directory"):
            read_csv(tmp_path)

    def test_cut_gzip(self, write) -> None:
        rows = "".join(f"{i % 2},{i * 7919 % 10007}\n" for i in range(10_000))
        packed = gzip.compress(("label,a\n" + rows).encode())
        with pytest.raises(DataError, match="gzip stream is cut or damaged"):
            read_csv(write(packed[: len(packed) // 2]))

    def test_damaged_gzip(self, write) -> None:
        packed = bytearray(gzip.compress(b"label,a\n0,1\n1,2\n"))
        packed[-6] ^= 0xFF  # in the checksum
        with pytest.raises(DataError, match="gzip stream is cut or damaged"):
            read_csv(write(bytes(packed)))

    def test_error_survives_pickling(self) -> None:
        error = DataError("f.csv", "bad", 3)
        again = pickle.loads(pickle.dumps(error))
        assert (again.path, again.problem, again.line, str(again)) == (
            "f.csv",
            "bad",
            3,
            "f.csv, line 3: bad",
        )


def test_unknown_name_of_a_column(write) -> None:
    with pytest.raises(KeyError, match="nothing"):
        read_csv(write("label,a\n0,1\n1,2\n"))["nothing"]


@settings(max_examples=300, deadline=None)
@given(content=st.text(alphabet='01,x.\n\r"\t;?- éab', max_size=60) | st.binary(max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory, content: str | bytes) -> None:
    """Whatever a file holds, the outcome is a consistent table or a `DataError`."""
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    try:
        table = read_csv(path)
    except DataError as error:
        assert str(error).startswith(str(path))
        return
    assert set(np.unique(table.label.values)) == {0.0, 1.0}
    for column in table.columns:
        if isinstance(column, CategoricalColumn):
            assert column.codes.shape == (len(table),)
            assert column.codes.min() >= -1
            assert column.codes.max() < max(1, len(column.categories))
        else:
            assert column.values.shape == (len(table),)
            assert not np.isinf(column.values).any()
