"""The tasks of one tap, one after another without a cluster: the dataset is the one pass, however the ring is cut."""

from __future__ import annotations

import errno
from dataclasses import replace
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import numpy as np
import pytest
from pyarrow import parquet

from iscsitrace.errors import InputInvalid
from iscsitrace.fleet import history, task
from iscsitrace.fleet.captures import Capture, Tap
from iscsitrace.fleet.history import TapHistory
from iscsitrace.fleet.store import Manifest, Superseded, TapStore
from iscsitrace.fleet.task import Destination, execute, plan
from iscsitrace.tables.schema import DEFAULT_TABLES
from tests.support import rings
from tests.support.capture_file import write_pcapng


@pytest.mark.parametrize("settled_packets", [0, task._SETTLED_PACKETS])
@pytest.mark.parametrize(("pieces", "seed"), [(2, 1), (7, 2), (40, 3)])
def test_a_ring_cut_anywhere_has_the_rows_of_one_pass(
    tmp_path: Path, pieces: int, seed: int, settled_packets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rows leave after each capture, or at the end of a task
    monkeypatch.setattr(task, "_SETTLED_PACKETS", settled_packets)
    packets = rings.traffic(seed)
    files = rings.cut(tmp_path / "ring", packets, rings.random_borders(packets, pieces, seed))
    # several tasks for a ring: two files each
    monkeypatch.setattr(task, "TASK_CAPTURES", 2)
    outcomes = rings.read_ring(tmp_path / "data", tmp_path / "ring")
    assert len(outcomes) == (pieces + 1) // 2
    trace = rings.whole(tmp_path, packets)
    rings.assert_equal(tmp_path / "data", "a", trace)
    days = {path.name for path in (tmp_path / "data" / "cycles" / "tap=a").iterdir()}
    assert days == {"day=2023-11-14", "day=2023-11-15"}
    entries = sorted(TapHistory(tmp_path / "data", "a").entries.values(), key=lambda each: each.first_frame or 0)
    assert [each.capture for each in entries] == [path.name for path in files]
    assert sum(each.frame_count for each in entries) == len(packets)


def test_a_row_is_on_its_day_and_names_the_capture_of_its_first_frame(tmp_path: Path) -> None:
    packets = rings.traffic()
    borders = rings.random_borders(packets, 9, 5)
    files = rings.cut(tmp_path / "ring", packets, borders)
    rings.read_ring(tmp_path / "data", tmp_path / "ring")
    seen = 0
    for path in (tmp_path / "data" / "cycles" / "tap=a").glob("day=*/*.parquet"):
        for row in parquet.ParquetFile(path).read().to_pylist():
            number = row["command_frame"] - 1
            assert packets[number].time_ns == row["command_first_ns"]
            piece = sum(border <= number for border in borders)
            assert row["capture"] == files[piece].name
            assert path.parent.name == f"day={np.datetime64(row['command_first_ns'], 'ns').astype('M8[D]')}"
            seen += 1
    assert seen == 60


@pytest.mark.parametrize(("suffix", "count"), [("", 2), (".gz", 16), (".ZST", 16)])
def test_compressed_captures_are_tasks_by_what_they_hold(suffix: str, count: int) -> None:
    captures = [Capture(f"eth0_{number:05}.pcap{suffix}", "", 100, 0) for number in range(16)]
    works = task._works(Destination(Path(), "run", (), "1", 800), captures, None, rewinds=False)
    assert [len(work.captures) for work in works] == [16 // count] * count


def test_files_say_which_times_frames_and_subjects_they_have(tmp_path: Path) -> None:
    """Readers leave out row groups by it."""
    packets = rings.traffic()
    rings.cut(tmp_path / "ring", packets, [])
    rings.read_ring(tmp_path / "data", tmp_path / "ring")
    [path] = (tmp_path / "data" / "cycles" / "tap=a" / "day=2023-11-14").glob("*.parquet")
    rows, group = parquet.ParquetFile(path).read(), parquet.ParquetFile(path).metadata.row_group(0)
    ranges = {group.column(place).path_in_schema: group.column(place).statistics for place in range(group.num_columns)}
    for name in ("cycle", "session", "connection", "command_frame", "command_first_ns"):
        values = rows.column(name).to_pylist()
        assert (ranges[name].min, ranges[name].max) == (min(values), max(values)), name
    assert ranges["cmd_sn"] is None


def test_new_files_are_added_and_the_last_one_may_have_grown(tmp_path: Path) -> None:
    packets = rings.traffic(4)
    borders = rings.random_borders(packets, 6, 4)
    ring, data = tmp_path / "ring", tmp_path / "data"
    everything = rings.cut(tmp_path / "all", packets, borders)
    ring.mkdir()
    for path in everything[:2]:
        (ring / path.name).write_bytes(path.read_bytes())
    # the third file is still being written: its last packets are missing
    write_pcapng(ring / everything[2].name, packets[borders[1] : borders[2] - 3], rings.LINK_TYPE)
    rings.read_ring(data, ring)
    rings.assert_equal(data, "a", rings.whole(tmp_path, packets[: borders[2] - 3]))
    assert rings.read_ring(data, ring, "same") == []

    for path in everything[2:]:
        (ring / path.name).write_bytes(path.read_bytes())
    # the ring has dropped its first file meanwhile
    (ring / everything[0].name).unlink()
    (outcome,) = rings.read_ring(data, ring, "second")
    assert outcome.statuses == {history.READ: 4}
    rings.assert_equal(data, "a", rings.whole(tmp_path, packets))

    # nothing is left of the state before: a file that comes late is named, and changes nothing
    late = ring / everything[0].name.replace("00001", "00000")
    late.write_bytes(everything[0].read_bytes())
    (outcome,) = rings.read_ring(data, ring, "third")
    assert outcome.statuses == {history.LATE: 1}
    rings.assert_equal(data, "a", rings.whole(tmp_path, packets))


def test_the_last_file_is_kept_when_the_ring_has_dropped_it(tmp_path: Path) -> None:
    packets = rings.traffic(5)
    files = rings.cut(tmp_path / "ring", packets, rings.random_borders(packets, 3, 5))
    aside = files[2].rename(tmp_path / "aside")
    rings.read_ring(tmp_path / "data", tmp_path / "ring")
    aside.rename(files[2])
    files[0].unlink()
    files[1].unlink()
    rings.read_ring(tmp_path / "data", tmp_path / "ring", "second")
    rings.assert_equal(tmp_path / "data", "a", rings.whole(tmp_path, packets))


def test_files_that_cannot_be_read_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    packets = rings.traffic(6)
    borders = rings.random_borders(packets, 3, 6)
    rings.cut(tmp_path / "ring", packets, borders)
    ring = tmp_path / "ring"
    (ring / "eth0_00009_20231115000001.pcapng").write_bytes(b"")
    (ring / "eth0_00008_20231115000001.pcapng").write_bytes(b"no capture at all, but some text of a certain length")
    place, tap = Destination(tmp_path / "data", "first", DEFAULT_TABLES, "1"), Tap("a", (str(ring),))
    TapStore(place.dataset, "a").begin("first")
    (work,) = plan(place, tap).works
    gone = replace(work.captures[0], name="gone.pcapng", path=str(ring / "gone.pcapng"))
    outcome = execute(place, "a", 1, replace(work, captures=(gone, *work.captures)))
    assert outcome.statuses == {history.READ: 3, history.EMPTY: 1, history.UNREADABLE: 1, history.VANISHED: 1}
    assert {name: status for name, status, _ in outcome.problems} == {
        "gone.pcapng": history.VANISHED,
        "eth0_00009_20231115000001.pcapng": history.EMPTY,
        "eth0_00008_20231115000001.pcapng": history.UNREADABLE,
    }
    expected = rings.whole(tmp_path, packets)
    for name in set(DEFAULT_TABLES) - {"counters"}:
        assert rings.rows_of(tmp_path / "data", name, "a") == rings.rows_expected(expected, name)


def test_a_task_that_runs_twice_commits_once_and_an_old_run_not_at_all(tmp_path: Path) -> None:
    packets = rings.traffic(7)
    rings.cut(tmp_path / "ring", packets, rings.random_borders(packets, 4, 7))
    place, tap = Destination(tmp_path / "data", "first", DEFAULT_TABLES, "1"), Tap("a", (str(tmp_path / "ring"),))
    TapStore(place.dataset, "a").begin("first")
    (work,) = plan(place, tap).works
    outcome = execute(place, "a", 1, work)
    assert execute(place, "a", 1, work) == outcome
    rings.assert_equal(place.dataset, "a", rings.whole(tmp_path, packets))
    # a new run sweeps what the old one left: a worker of the old run that wakes up cannot commit
    TapStore(place.dataset, "a").begin("second")
    with pytest.raises((InputInvalid, Superseded)):
        execute(place, "a", 2, work)
    rings.assert_equal(place.dataset, "a", rings.whole(tmp_path, packets))


def test_a_worker_that_was_given_up_and_still_writes_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second worker begins and ends the task while the first one is about to commit."""
    packets = rings.traffic(7)
    rings.cut(tmp_path / "ring", packets, rings.random_borders(packets, 4, 7))
    place, tap = Destination(tmp_path / "data", "first", DEFAULT_TABLES, "1"), Tap("a", (str(tmp_path / "ring"),))
    TapStore(place.dataset, "a").begin("first")
    (work,) = plan(place, tap).works
    commit, others = TapStore.commit, []

    def late(store: TapStore, manifest: Manifest) -> None:
        monkeypatch.setattr(TapStore, "commit", commit)
        others.append(execute(place, "a", 1, work))
        commit(store, manifest)

    monkeypatch.setattr(TapStore, "commit", late)
    assert [execute(place, "a", 1, work)] == others
    rings.assert_equal(place.dataset, "a", rings.whole(tmp_path, packets))
    assert not list((place.dataset / "_fleet" / "a" / "staging" / "first").iterdir())


def test_the_end_of_a_run_completes_a_commit_that_failed_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packets = rings.traffic(7)
    rings.cut(tmp_path / "ring", packets, rings.random_borders(packets, 4, 7))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = TapStore(tmp_path / "data", "a")
    with monkeypatch.context() as patch:
        patch.setattr(TapStore, "complete", full)
        with pytest.raises(InputInvalid, match="No space left on device"):
            rings.read_ring(tmp_path / "data", tmp_path / "ring")
        store.end("first")
    assert list((store.folder / "staging" / "first").iterdir())
    store.end("first")
    rings.assert_equal(tmp_path / "data", "a", rings.whole(tmp_path, packets))
    assert not (store.folder / "staging" / "first").exists()


@pytest.mark.parametrize("moment", ["before", "linked", "placed", "not removed"])
def test_a_commit_that_was_interrupted_is_completed_or_never_happened(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packets = rings.traffic(8)
    borders = rings.random_borders(packets, 5, 8)
    files = rings.cut(tmp_path / "ring", packets, borders)
    aside = [path.rename(tmp_path / path.name) for path in files[3:]]
    rings.read_ring(tmp_path / "data", tmp_path / "ring")
    for path in aside:
        path.rename(tmp_path / "ring" / path.name)
    # the first of two tasks is interrupted: its rows are settled
    monkeypatch.setattr(task, "TASK_CAPTURES", 1)

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    complete = TapStore.complete

    def begun(store: TapStore, manifest: Manifest) -> None:
        """Of the run that is killed, only some of the renames."""
        if manifest.run != "killed":
            complete(store, manifest)
            return
        count = {"linked": 0, "placed": 2, "not removed": len(manifest.placed)}[moment]
        complete(store, msgspec.structs.replace(manifest, placed=manifest.placed[:count], removed=()))
        raise Killed

    with monkeypatch.context() as patch:
        if moment == "before":
            patch.setattr("iscsitrace.fleet.store.os.link", killed)
        else:
            patch.setattr(TapStore, "complete", begun)
        with pytest.raises(Killed):
            rings.read_ring(tmp_path / "data", tmp_path / "ring", "killed")
    rings.read_ring(tmp_path / "data", tmp_path / "ring", "again")
    rings.assert_equal(tmp_path / "data", "a", rings.whole(tmp_path, packets))
    assert not list((tmp_path / "data" / "_fleet" / "a" / "staging" / "again").iterdir())


def test_a_remote_file_that_fails_on_the_way_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filesystem in memory, of which one file fails once after some bytes, and another each time."""
    packets = rings.traffic(10)
    files = rings.cut(tmp_path / "ring", packets, rings.random_borders(packets, 4, 9))
    memory = fsspec.filesystem("memory")
    for path in files:
        memory.pipe(f"/{tmp_path.name}/{path.name}", path.read_bytes())
    memory.pipe(f"/{tmp_path.name}/broken.pcapng", files[0].read_bytes())
    monkeypatch.setattr(task, "_PAUSE_S", 0)
    source, original, failed = f"memory://{tmp_path.name}", type(memory)._open, []

    def opened(self: Any, path: str, *arguments: Any, **options: Any) -> Any:
        stream = original(self, path, *arguments, **options)
        if path.endswith((files[2].name, "broken.pcapng")) and path not in failed:
            if path.endswith(files[2].name):
                failed.append(path)
            content = BytesIO(stream.read())
            stream = BufferedReader(Failing(content))
        return stream

    place = Destination(tmp_path / "data", "first", DEFAULT_TABLES, "1")
    TapStore(place.dataset, "a").begin("first")
    (work,) = plan(place, Tap("a", (source,))).works
    monkeypatch.setattr(type(memory), "_open", opened)
    outcome = execute(place, "a", 1, work)
    assert failed
    assert outcome.statuses == {history.READ: 4, history.UNREADABLE: 1}
    assert outcome.problems == [("broken.pcapng", history.UNREADABLE, "connection lost")]
    rings.assert_equal(place.dataset, "a", rings.whole(tmp_path, packets))


class Failing(RawIOBase):
    """A stream that ends in an error after a thousand bytes."""

    def __init__(self, content: BytesIO) -> None:
        self.content = content

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.content.tell() >= 1000:
            raise ConnectionError("connection lost")
        piece = self.content.read(min(len(buffer), 1000))
        buffer[: len(piece)] = piece
        return len(piece)
