"""Output files: complete or not there, never an input, never through a symbolic link, private where they name hosts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid, OutputExists
from iscsitrace.show.files import check, written_aside

SAMPLE = Path(__file__).parents[2] / "samples" / "two-connections-one-session"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def write(path: Path, text: str = "new", *, has_hosts: bool = True) -> None:
    with written_aside(path, has_hosts=has_hosts) as partial:
        partial.write_text(text)


KILLED = """
import os, signal, sys
from pathlib import Path
from iscsitrace.show.files import written_aside
with written_aside(Path(sys.argv[1])) as partial:
    partial.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_writer_removes_what_one_that_was_killed_left_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    others = {".x.html.of-another-kind", ".y.html.abcdefgh.partial"}
    for name in others:
        (tmp_path / name).write_text("other")
    os.mkfifo(tmp_path / ".x.html.fifo.partial")
    code = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode
    assert code == -signal.SIGKILL
    assert len(list(tmp_path.glob(".x.html.*.partial"))) == 2
    with written_aside(path) as partial:
        partial.write_text("first")
        # a writer that lives keeps its file
        write(path, "second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert {each.name for each in tmp_path.iterdir()} == {"x.html", ".x.html.fifo.partial", *others}


def test_a_failure_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    path.write_text("old")

    def fail() -> None:
        with written_aside(path) as partial:
            partial.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [each.name for each in tmp_path.iterdir()] == ["x.html"]
    assert path.read_text() == "old"


def test_another_user_cannot_place_the_partial_file(tmp_path: Path) -> None:
    """Its name differs each time, so that a link of this name cannot be there before."""
    names = set()
    for _ in range(3):
        with written_aside(tmp_path / "x") as partial:
            names.add(partial.name)
            assert partial.parent == tmp_path
            assert mode(partial) == 0o600
    assert len(names) == 3


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    for target in (precious, tmp_path / "nowhere"):
        link = tmp_path / "x.html"
        link.symlink_to(target)
        with pytest.raises(OutputExists):
            check(link, is_forced=False)
        check(link, is_forced=True)
        write(link)
        assert not link.is_symlink()
        assert link.read_text() == "new"
        link.unlink()
    assert precious.read_text() == "keep"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(("has_hosts", "expected"), [(True, 0o600), (False, 0o640)])
def test_files_that_name_hosts_are_private(has_hosts: bool, expected: int, tmp_path: Path) -> None:
    previous = os.umask(0o027)
    try:
        write(tmp_path / "x", has_hosts=has_hosts)
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(previous)
    assert mode(tmp_path / "x") == expected
    # who may read it was decided before
    (tmp_path / "x").chmod(0o604)
    write(tmp_path / "x", has_hosts=has_hosts)
    assert mode(tmp_path / "x") == 0o604


def names_of(capture: Path, folder: Path) -> list[Path]:
    """The capture under three names; only the inode is the same for all."""
    hard, soft = folder / "hard.png", folder / "soft.png"
    os.link(capture, hard)
    soft.symlink_to(capture)
    return [capture, hard, soft]


def test_an_input_under_any_name_is_no_output(tmp_path: Path) -> None:
    capture = tmp_path / "capture.png"
    capture.write_bytes(b"packets")
    for path in names_of(capture, tmp_path):
        with pytest.raises(InputInvalid, match="is the input"):
            check(path, is_forced=True, inputs=["-", str(tmp_path / "missing"), str(capture)])
    check(tmp_path / "other.png", is_forced=True, inputs=[str(capture)])


@pytest.mark.parametrize(
    "words",
    [
        "report --force -o {out} {capture}",
        "plot sequence --force -o {out} {capture}",
        "capture --force -w {out} -r {capture} --trigger latency>1s",
        "export --force --format perfetto -o {out} {capture}",
    ],
)
def test_commands_do_not_overwrite_their_input(words: str, tmp_path: Path) -> None:
    capture = tmp_path / "capture.png"
    shutil.copy(next(SAMPLE.glob("capture.pcap*")), capture)
    before = capture.read_bytes()
    for out in names_of(capture, tmp_path):
        result = CliRunner().invoke(main, words.format(out=out, capture=capture).split())
        assert result.exit_code == 2, result.output
        assert "is the input" in result.stderr, result.output
    assert capture.read_bytes() == before


def test_tables_do_not_overwrite_their_input(tmp_path: Path) -> None:
    capture = tmp_path / "cycles.csv"
    shutil.copy(next(SAMPLE.glob("capture.pcap*")), capture)
    result = CliRunner().invoke(main, ["export", "--force", "-o", str(tmp_path), str(capture)])
    assert (result.exit_code, sorted(each.name for each in tmp_path.iterdir())) == (2, ["cycles.csv"])
