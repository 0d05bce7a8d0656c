"""The history of speed and memory: its rows, what is marked as slower, and whose code a revision runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import history
from bench.history import COLUMNS, HISTORY, Row, append, chosen, read, slower
from bench.process import CommandFailed, Cost, cost
from bench.revision import Revision

ROW = Row("aaaaaaaaaa", "2026-11-22T05:30:08+00:00", "2026-11-28T06:00:00+00:00", "one, 2 cores", 0.25, 7, {})


def row(commit: str, day: int, load: float = 0.0, machine: str = "one", **numbers: float) -> Row:
    """A row of a commit of that day in November."""
    at = f"2026-11-{day:02}T05:30:08+00:00"
    return replace(ROW, commit=commit, committed_at=at, load=load, machine=machine, numbers=numbers)


def took(seconds: float, peak_mb: float = 0.0) -> Cost:
    return Cost(seconds, 2 * seconds, int(peak_mb * 1e6))


def test_rows_are_added_behind_those_of_before(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    first = replace(ROW, numbers={"sequential_pass_per_cat": 1.25, "open_connection_kb": 24.0})
    second = replace(ROW, commit="bbbbbbbbbb", numbers={"sessions_diagnose_s": 3.5})
    append(file, first)
    before = file.read_bytes()
    append(file, second)
    assert file.read_bytes().startswith(before)
    assert read(file) == [first, second]


def test_a_file_without_rows_has_no_rows(tmp_path: Path) -> None:
    assert read(tmp_path / "history.csv") == []
    (tmp_path / "history.csv").write_text(",".join(COLUMNS) + "\n")
    assert read(tmp_path / "history.csv") == []


def test_other_columns_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    file.write_text("commit,seconds\naaaaaaaaaa,1\n")
    with pytest.raises(ValueError, match="columns must be"):
        append(file, ROW)
    assert file.read_text() == "commit,seconds\naaaaaaaaaa,1\n"


def test_the_committed_history_is_read() -> None:
    assert {"c2a539cba7"} <= {each.commit for each in read(HISTORY)}


def test_of_a_commit_the_row_of_the_quietest_moment_counts() -> None:
    loud, quiet, other = row("a", 22, 2.0, x=5.0), row("a", 22, 0.1, x=4.0), row("a", 22, 0.0, "two", x=1.0)
    assert chosen([loud, quiet, other], "one") == [quiet]
    assert chosen([quiet, loud, other], "one") == [quiet]


def test_commits_are_in_the_order_of_their_time_whenever_they_were_measured() -> None:
    rows = [row("c", 27), row("a", 22), row("b", 24)]
    assert [each.commit for each in chosen(rows, "one")] == ["a", "b", "c"]


def test_what_takes_more_than_a_twentieth_longer_is_marked() -> None:
    rows = [row("a", 22, x=1.0, y=1.0), row("b", 23, x=1.05, y=1.06)]
    assert slower(rows) == {("b", "y"): pytest.approx(1.06)}


def test_slow_creep_is_marked_too_and_a_gain_sets_the_new_measure() -> None:
    rows = [row("a", 22, x=2.0), row("b", 23, x=1.0), row("c", 24, x=1.04), row("d", 25, x=1.08), row("e", 26, x=0.9)]
    assert slower(rows) == {("d", "x"): pytest.approx(1.08)}


def test_what_was_not_measured_is_neither_slower_nor_the_measure() -> None:
    assert slower([row("a", 22, x=1.0), row("b", 23), row("c", 24, x=1.2)]) == {("c", "x"): pytest.approx(1.2)}


def test_numbers_are_those_of_the_programs() -> None:
    costs = {
        ("random", "cat"): took(0.5),
        ("random", "pass"): took(1.0, 80),
        ("fewer_open", "diagnosis_pass"): took(1, 300),
        ("more_open", "diagnosis_pass"): took(1, 1500),
    }
    found = {number.name: number.values([costs, {}]) for number in history.NUMBERS}
    assert {name: values for name, values in found.items() if values} == {
        "random_pass_per_cat": [2.0],
        "random_pass_per_cat_cpu": [2.0],
        "random_pass_mb": [80.0],
        # 1,200 MB for 50,000 connections
        "open_connection_kb": [24.0],
    }


def test_shown_are_marks_and_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    history.show([row("a", 22, sessions_diagnose_s=2.0, random_pass_mb=9.0), row("b", 23, sessions_diagnose_s=2.5)])
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line}
    assert lines["sessions_diagnose_s"] == ["2", "+25", "%", "2.5"]
    assert lines["random_pass_mb"] == ["9", "-"]


def test_revisions_take_turns_in_going_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran = []

    def note(command: list[str], *, environment: dict[str, str] | None, **_: object) -> Cost:
        if "summary" in command and command[-1].endswith("random.pcap"):
            assert environment is not None
            ran.append(Path(environment["PYTHONPATH"]).name)
        return replace(took(1.0), output=b"[1, 1]")

    monkeypatch.setattr(history, "cost", note)
    bench = history.Bench(tmp_path, [Revision(name, "", tmp_path / name) for name in "ab"])
    for _ in range(3):
        bench.round(has_tshark=False)
    assert ran == ["a", "b", "b", "a", "a", "b"]


def test_of_three_tries_of_a_pass_the_best_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seconds = {"random.pcap": [0.5, 0.25, 0.75]}

    def dribble(command: list[str], **_: object) -> Cost:
        name = Path(command[-1]).name
        if command[0] == "cat" and name in seconds:
            return took(seconds[name].pop(0))
        return replace(took(1.0), output=b"[1, 1]")

    monkeypatch.setattr(history, "cost", dribble)
    revision = Revision("a", "", tmp_path)
    bench = history.Bench(tmp_path, [revision])
    bench.round(has_tshark=False)
    assert seconds == {"random.pcap": []}
    assert bench.numbers(revision)["random_pass_per_cat"] == 1 / 0.25


def test_a_program_that_fails_leaves_its_numbers_empty_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries = []

    def fail(command: list[str], **_: object) -> Cost:
        if command[0] == "tcptrace":
            tries.append(command[-1])
            raise FileNotFoundError(command[0])
        return replace(took(1.0), output=b"[1, 1]")

    monkeypatch.setattr(history, "cost", fail)
    revision = Revision("a", "", tmp_path)
    bench = history.Bench(tmp_path, [revision])
    for _ in range(2):
        bench.round(has_tshark=True)
    assert len(tries) == len(set(tries)) == 3
    measured = bench.numbers(revision)
    assert not any("tcptrace" in name for name in measured)
    assert measured["random_summary_per_tshark"] == measured["sequential_pass_per_cat"] == 1.0


def test_a_revision_runs_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "iscsitrace").mkdir()
    (tmp_path / "iscsitrace" / "__init__.py").touch()
    (tmp_path / "iscsitrace" / "__main__.py").write_text("print('another')\n")
    command = [sys.executable, "-m", "iscsitrace"]
    # the current folder of the tests has this package, too
    said = cost(command, environment=Revision("a", "", tmp_path).environment, has_output=True).output
    assert said == b"another\n"
    assert subprocess.run([*command, "--help"], check=True, capture_output=True).stdout != said


def test_a_process_is_measured_by_itself() -> None:
    code = "import time; block = b'x' * 200_000_000; time.sleep(0.3)"
    measured = cost([sys.executable, "-c", code])
    assert measured.elapsed_s >= 0.3
    assert measured.peak_bytes > 200_000_000
    busy = cost([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"])
    assert busy.cpu_s >= 0.3


def test_a_process_that_fails_or_takes_too_long_is_an_error() -> None:
    with pytest.raises(CommandFailed):
        cost([sys.executable, "-c", "exit(3)"])
    with pytest.raises(CommandFailed):
        cost([sys.executable, "-c", "import time; time.sleep(60)"], limit_s=0.3)
