"""Files of points: their content, and one clear error for an unreadable one."""

from __future__ import annotations

from pathlib import Path

import pytest
from amounts import tries
from hypothesis import given
from hypothesis import strategies as st
from processes import command

from unloader.errors import ConfigError
from unloader.tuning.points import Load, Point, points_text, read_points

HEAD = "parallelism,seconds\n"


def read(tmp_path: Path, content: str | bytes) -> tuple[Point, ...]:
    """Return the points of a file that is understood without a notice."""
    found = read_points(written(tmp_path, content))
    assert found.notices == ()
    return found.points


def written(tmp_path: Path, content: str | bytes) -> Path:
    """Return a file."""
    path = tmp_path / "points.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        "parallelism,seconds\n4,12.5\n8,7\n",
        "\ufeffparallelism,seconds\r\n4,12.5\r\n8,7",
        "# a remark\n\n Seconds , PARALLELISM \n\n12.5, 4\n# another\n7.0,8\n \n",
        '"parallelism","seconds"\n"4","12.5"\n"8","0.7e1"\n',
    ],
)
def test_columns_by_name_in_any_order(tmp_path: Path, content: str) -> None:
    """With a mark of the byte order, blanks, quotation marks, remarks and any ends of line."""
    points = read(tmp_path, content)
    assert points == (Point(parallelism=4, seconds=12.5), Point(parallelism=8, seconds=7))


def test_other_figures_are_taken_where_they_are_known(tmp_path: Path) -> None:
    """Percent with or without its sign; an empty cell, or one that is missing, is unknown."""
    text = "parallelism,seconds,bytes,rows,cpu,queued\n2,9,1e9,5,89,0.5\n4,5,,,97%\n"
    assert read(tmp_path, text) == (
        Point(parallelism=2, seconds=9, bytes=1e9, rows=5, load=Load(cpu=0.89, queued=0.5)),
        Point(parallelism=4, seconds=5, load=Load(cpu=0.97)),
    )


def test_shares_and_unknown_columns_are_told(tmp_path: Path) -> None:
    """A column of shares is not taken as one of less than a percent, and nothing is dropped unseen."""
    found = read_points(written(tmp_path, "parallelism,seconds,cpu,kB/s\n2,9,0.5,1\n4,5,1,2\n"))
    assert [point.load.cpu for point in found.points] == [0.5, 1.0]
    unused, shares = found.notices
    assert "not used: kb/s" in unused
    assert "read as shares" in shares
    percent = read(tmp_path, "parallelism,seconds,cpu\n2,9,0.5%\n4,5,1%\n")
    assert [point.load.cpu for point in percent] == [0.005, 0.01]


def test_points_are_written_so_that_they_are_read_as_the_same(tmp_path: Path) -> None:
    """What no one measured stays unknown."""
    points = (
        Point(parallelism=32, seconds=0.1 + 0.2, rows=10**12, load=Load(cpu=0.29, source=0.005)),
        Point(parallelism=4, seconds=123456.789, load=Load(queued=1.5)),
    )
    assert read(tmp_path, points_text(points, ["measured on db01"])) == points


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no column parallelism"),
        ("\n# nothing\n", "has no column parallelism"),
        ("parallelism;seconds\n4;5\n", "has no column parallelism"),
        ("workers,seconds\n4,5\n", "has no column parallelism"),
        ("parallelism,time\n4,5\n", "has no column seconds"),
        ("4,5\n8,3\n", "has no column parallelism"),
        ("parallelism,seconds,seconds\n4,5,5\n", "has 2 columns seconds"),
        (HEAD, "has no points"),
        (HEAD + "4\n", "line 2, has no seconds"),
        (HEAD + "4,\n", "line 2, seconds '' is not a number"),
        (HEAD + ",5\n", "line 2, parallelism '' is not a number of workers"),
        (HEAD + "4,5\n\n8,fast\n", "line 4, seconds 'fast' is not a number"),
        (HEAD + "4,nan\n", "seconds 'nan' is not a number"),
        (HEAD + "4,inf\n", "seconds 'inf' is not a number"),
        (HEAD + "4,-5\n", "seconds '-5' is not a number"),
        (HEAD + "4,0\n", "seconds '0' cannot be the time"),
        (HEAD + "4,0.0\n", "seconds '0.0' cannot be the time"),
        (HEAD + "4,1e99\n", "seconds '1e99' cannot be the time"),
        (HEAD + "4,1e-99\n", "seconds '1e-99' cannot be the time"),
        (HEAD + "4,1e-6\n", ""),
        (HEAD + "4,1_0\n", "seconds '1_0' is not a number"),
        (HEAD + "4,0x10\n", "seconds '0x10' is not a number"),
        (HEAD + "4,٥\n", "is not a number"),
        (HEAD + "4,3,497\n", "line 2, has 3 cells for 2 columns"),
        (HEAD + '4,"3,497"\n', "seconds '3,497' is not a number"),
        (HEAD + '4,"5\n', "line 2, is not CSV"),
        (HEAD + "0,5\n", "parallelism '0' is not a number of workers"),
        (HEAD + "-1,5\n", "parallelism '-1' is not a number of workers"),
        (HEAD + "2.5,5\n", "parallelism '2.5' is not a number of workers"),
        (HEAD + "70000,5\n", "parallelism '70000' is not a number of workers"),
        (HEAD + "9" * 5000 + ",5\n", "is not a number of workers"),
        ("parallelism,seconds,cpu\n4,5,101\n", "cpu '101' is more than the whole machine"),
        ("parallelism,seconds,bytes\n4,5,0\n", "bytes '0' is not above 0"),
        (b"parallelism,seconds\n4,\xff\n", "is not text in UTF-8 (byte 22)"),
        (b"\xff\xfep\0a\0", "is not text in UTF-8"),
        (HEAD + "4,5\0\n", "is not"),
        (HEAD + "1,1\n" * 10_001, "has more than 10,000 points"),
    ],
)
def test_what_cannot_be_understood_is_named_with_its_line(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    """One error states which file, line and text, and what to write instead."""
    path = written(tmp_path, content)
    if not message:
        assert read_points(path).points[0].seconds > 0
        return
    with pytest.raises(ConfigError) as caught:
        read_points(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.hint != ConfigError.usual_hint
    assert len(caught.value.message) < len(str(path)) + 200


@tries(400)
@given(
    content=st.one_of(
        st.text('parallelismseconds,01289.eE+-%#"\n\r ;\ufeff', max_size=80),
        st.lists(
            st.lists(st.text('0123456789.e-%"# ', max_size=6), max_size=4).map(",".join), max_size=6
        ).map(lambda lines: "parallelism,seconds,cpu\n" + "\n".join(lines)),
    )
)
def test_any_text_is_understood_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: str
) -> None:
    """Each text gives points in range, or the one error."""
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content.encode())
    try:
        points = read_points(path).points
    except ConfigError:
        return
    assert points
    for point in points:
        assert 1 <= point.parallelism <= 65_535
        assert 0 < point.seconds <= 1e9
        assert point.load.cpu is None or 0 <= point.load.cpu <= 1


def test_columns_that_it_does_not_know_are_kept(tmp_path: Path) -> None:
    """They are reported by name; what a sweep has written for `unloader size` is a figure."""
    text = HEAD.strip() + ",who,row_bytes\n4,5,me,165\n8,3\n"
    found = read_points(written(tmp_path, text))
    assert found.others == ({"who": "me"}, {"who": ""})
    assert [each.row_bytes for each in found.points] == [165, None]
    assert [each.rpartition(" ")[2] for each in found.notices] == ["who"]


def test_points_of_several_curves_are_refused(tmp_path: Path) -> None:
    """The levels of two codecs are not repeats of one another."""
    path = written(tmp_path, "parallelism,seconds,compression\n1,9,none\n1,7,zstd\n")
    text = command.error_of("sweep", "--replay", str(path), status=3)
    assert "compression is none, zstd" in text
