"""``iscsitrace capture`` without an interface: refusals, filters, names; triggers on captures with known truth."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.cli.record import capture_progress as shown
from iscsitrace.recording import capture
from tests.support.capture_file import read_records
from tests.support.runs import Run, Runs

MS_NS = 1_000_000
TSHARK = shutil.which("tshark") or "tshark"
EDITCAP = shutil.which("editcap") or "editcap"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["capture", *map(str, arguments)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("capture"))


@pytest.fixture(scope="module")
def reads(runs: Runs) -> Run:
    """Reads of 4 KiB one at a time, of which the 50th and the 400th wait 80 ms."""
    return runs(
        "read --one-way-delay 1ms --block-size 4K --queue-depth 1 --bytes 2M --seed 7 "
        "--fault delayed-status,nth=50,operation=read,by=80ms --fault delayed-status,nth=400,operation=read,by=80ms"
    )


# --- refusals


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("", "name an interface with -i"),
        ("-i lo -r x.pcapng", "name an interface with -i"),
        ("-i lo --learn -f tcp", "omit -f"),
        ("-i lo -b files:3 -w x.pcapng", "add -b filesize, duration or packets"),
        ("-i lo -b size:3 -w x.pcapng", "is not a limit"),
        ("-i lo -b filesize:0 -w x.pcapng", "filesize: '0' is not kB"),
        ("-i lo -b duration:soon -w x.pcapng", "duration: 'soon' is not seconds"),
        ("-i lo -b filesize:1 -b filesize:2 -w x.pcapng", "given twice"),
        ("-i lo -s 10", "-s takes 68 to"),
        ("-i lo -s deep", "-s takes 68 to"),
        ("-i lo -b packets:5 -w -", "-b needs files"),
        ("-r x.pcapng", "name a file with -w"),
        ("-r x.pcapng -w y.pcapng -a duration:5", "-r takes --trigger"),
        ("-i lo -w /nowhere/x.pcapng", "cannot write /nowhere/x.pcapng"),
        ("-i lo -b packets:1 -w /nowhere/x.pcapng", "is not a folder"),
        ("-i lo -w /", "is a folder"),
        ("-i lo -f 'tcp prt 3260'", "at character 5 'tcp >>>prt 3260'"),
        ("-i lo --time-stamp-type adapter", "lo has no time stamps of type adapter; it has host"),
        ("-i lo --trigger 'latency<50ms'", "at character 8 'latency>>><50ms'"),
        ("-i lo --trigger 'latency>50ms or'", "at character 16 'latency>50ms or>>>'"),
    ],
)
def test_each_refusal_is_one_line(arguments: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    monkeypatch.chdir(tmp_path)
    result = run(*shlex.split(arguments))
    assert result.exit_code == 2
    (said,) = [each for each in result.output.splitlines() if line in each]
    assert "Traceback" not in result.output
    assert said.startswith(("iscsitrace:", "Error:"))
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "there.pcapng"
    file.write_text("precious")
    result = run("-i", "lo", "-w", file)
    assert result.exit_code == 2
    assert result.output == f"iscsitrace: {file} exists; nothing was written (--force overwrites)\n"
    assert file.read_text() == "precious"


def test_a_missing_interface_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    result = run("-i", "lo0", "-w", tmp_path / "x.pcapng")
    assert result.exit_code == 2
    assert result.output == "iscsitrace: there is no interface lo0; there is lo\n"
    assert not list(tmp_path.iterdir())


def test_a_missing_libpcap_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ImportError("libpcap.so.0.8: cannot open shared object file: No such file or directory")
    monkeypatch.setattr(capture, "_core_missing", missing)
    for arguments in (["capture", "-i", "lo"], ["interfaces"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2
        assert result.output.startswith("iscsitrace: libpcap is missing: install it")
        assert len(result.output.splitlines()) == 1


# --- triggers


def _latencies(file: Path) -> list[tuple[int, int]]:
    """Start and latency of each complete command."""
    rows = iscsitrace.read(file).cycles.rows()
    return [(row["command_first_ns"], row["latency_ns"]) for row in rows if row["latency_ns"] is not None]


def test_a_trigger_keeps_its_windows_and_the_login(reads: Run, tmp_path: Path) -> None:
    whole, _ = read_records(reads.capture())
    slow = [(start_ns, latency_ns) for start_ns, latency_ns in _latencies(reads.capture()) if latency_ns > 50 * MS_NS]
    assert len(slow) == 2
    out = tmp_path / "slow.pcapng"
    options = ("--trigger", "latency>50ms", "--before", "20ms", "--after", "10ms")
    result = run("-r", reads.capture(), *options, "-w", out)
    assert result.exit_code == 0, result.output
    rows = [row for row in iscsitrace.read(reads.capture()).cycles.rows() if row["status_ns"]]
    wanted = []
    for start_ns, latency_ns in slow:
        until_ns = start_ns + latency_ns + 10 * MS_NS
        # and until the task that is open then has ended
        last = [row["status_frame"] for row in rows if row["command_first_ns"] <= until_ns < row["status_ns"]]
        wanted += [
            record
            for frame, record in enumerate(whole, 1)
            if record.time_ns >= start_ns - 20 * MS_NS and (record.time_ns <= until_ns or frame <= max(last, default=0))
        ]
    kept, _ = read_records(out)
    assert kept[-len(wanted) :] == wanted
    # before them how the connection began, with nothing else
    beginning = kept[: -len(wanted)]
    assert beginning == whole[: len(beginning)]
    assert 0 < len(beginning) <= 48
    trace = iscsitrace.read(out)
    assert next(iter(trace.sessions.rows()))["is_login_captured"]
    assert sorted(latency_ns for _, latency_ns in _latencies(out) if latency_ns > 50 * MS_NS) == sorted(
        latency_ns for _, latency_ns in slow
    )
    (comment, *slow_comments) = trace.inputs[0]["comments"]
    assert "left out on purpose" in comment
    assert len(slow_comments) == 2
    assert all(text.startswith("latency>50ms: read of 4096 bytes at LBA ") for text in slow_comments)


def test_the_comment_is_on_the_frame_that_completed_the_command(reads: Run, tmp_path: Path) -> None:
    out = tmp_path / "slow.pcapng"
    run("-r", reads.capture(), "--trigger", "latency>50ms", "--before", "10ms", "--after", "10ms", "-w", out)
    tshark = subprocess.run(
        [TSHARK, "-r", out, "-Y", "frame.comment", "-T", "fields", "-e", "frame.number"],
        check=True,
        capture_output=True,
        text=True,
    )
    status_frames = [
        row["status_frame"] for row in iscsitrace.read(out).cycles.rows() if (row["latency_ns"] or 0) > 50 * MS_NS
    ]
    assert [int(number) for number in tshark.stdout.split()] == status_frames


def test_a_trigger_without_a_match_keeps_nothing(reads: Run, tmp_path: Path) -> None:
    out = tmp_path / "none.pcapng"
    result = run("-r", reads.capture(), "--trigger", "latency>1s and operation=read", "-w", out)
    assert result.exit_code == 0
    assert " 0 written" in result.output
    assert read_records(out)[0] == []


def test_without_a_trigger_every_packet_is_kept_unchanged(reads: Run, tmp_path: Path) -> None:
    out = tmp_path / "all.pcapng"
    result = run("-r", reads.capture(), "-w", out, "--json")
    assert result.exit_code == 0, result.output
    assert read_records(out) == read_records(reads.capture())
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_the_files_of_a_ring_have_all_packets(reads: Run, tmp_path: Path) -> None:
    result = run("-r", reads.capture(), "-w", tmp_path / "ring.pcapng", "-b", "packets:100")
    assert result.exit_code == 0, result.output
    files = sorted(tmp_path.iterdir())
    whole = read_records(reads.capture())[0]
    assert len(files) == -(-len(whole) // 100)
    stitched = [record for file in files for record in read_records(file)[0]]
    assert stitched == whole
    ours, true = iscsitrace.read(*files), iscsitrace.read(reads.capture())
    assert list(ours.cycles.rows()) == list(true.cycles.rows())
    assert list(ours.connections.rows()) == list(true.connections.rows())


def test_the_summary_of_a_ring_equals_that_of_one_file(reads: Run, tmp_path: Path) -> None:
    run("-r", reads.capture(), "-w", tmp_path / "ring.pcapng", "-b", "filesize:100")
    files = sorted(tmp_path.iterdir())
    assert len(files) > 10
    summaries = [
        json.loads(CliRunner().invoke(main, ["summary", "--json", *map(str, inputs)]).stdout)
        for inputs in (files, [reads.capture()])
    ]
    for summary in summaries:
        # their names and sizes are not the same
        del summary["input"]
    assert summaries[0] == summaries[1]


def test_a_ring_keeps_the_last_files(reads: Run, tmp_path: Path) -> None:
    run("-r", reads.capture(), "-w", tmp_path / "ring.pcapng", "-b", "packets:100", "-b", "files:2")
    files = sorted(tmp_path.iterdir())
    whole = read_records(reads.capture())[0]
    count = -(-len(whole) // 100)
    assert [int(file.name.split("_")[1]) for file in files] == [count - 1, count]
    assert [record for file in files for record in read_records(file)[0]] == whole[(count - 2) * 100 :]


@pytest.mark.parametrize(("options", "count"), [("-c 37", 37), ("-a packets:37", 37), ("-b packets:10 -a files:3", 30)])
def test_a_packet_limit_is_exact(options: str, count: int, reads: Run, tmp_path: Path) -> None:
    result = run("-r", reads.capture(), "-w", tmp_path / "x.pcapng", *options.split())
    assert result.exit_code == 0, result.output
    kept = [record for file in sorted(tmp_path.iterdir()) for record in read_records(file)[0]]
    assert kept == read_records(reads.capture())[0][:count]


@pytest.mark.parametrize("written", ["filesize:20", "filesize:20000B"])
def test_a_file_ends_at_its_size_limit(written: str, reads: Run, tmp_path: Path) -> None:
    run("-r", reads.capture(), "-w", tmp_path / "x.pcapng", "-b", written)
    sizes = [file.stat().st_size for file in sorted(tmp_path.iterdir())]
    assert len(sizes) > 2
    # the packet that fills it is its last, and statistics follow
    assert all(20_000 <= size < 20_000 + 2000 for size in sizes[:-1])


# --- advice


def _advice(file: Path) -> dict[str, int]:
    result = run("-r", file, "-s", "advise", "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, int] = json.loads(result.stdout)
    assert found["schema"] == 1
    return found


def _cut(file: Path, snaplen: int, folder: Path) -> iscsitrace.Trace:
    out = folder / f"{snaplen}.pcapng"
    subprocess.run([EDITCAP, "-s", str(snaplen), file, out], check=True)
    return iscsitrace.read(out, tables=("pdus",))


def _counter(trace: iscsitrace.Trace, name: str) -> int:
    return sum(int(row["count"]) for row in trace.counters.rows() if row["name"] == name)


LAYOUTS = {
    "reads of 4 KiB": "read --block-size 4K --bytes 256K --seed 1 --one-way-delay 1ms",
    "reads of 64 KiB in PDUs of 8 KiB": "read --block-size 64K --bytes 512K --key MaxRecvDataSegmentLength=8192 "
    "--seed 2 --one-way-delay 1ms",
    "writes": "write --block-size 32K --bytes 256K --seed 3 --one-way-delay 1ms",
    "eight at a time": "read --block-size 4K --queue-depth 8 --bytes 512K --seed 4 --one-way-delay 1ms",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_advised_snaplen_keeps_every_header_and_one_byte_less_does_not(
    layout: str, runs: Runs, tmp_path: Path
) -> None:
    file = runs(LAYOUTS[layout]).capture()
    advice = _advice(file)
    snaplen = advice["headers_snaplen"]
    true, cut = iscsitrace.read(file, tables=("pdus",)), _cut(file, snaplen, tmp_path)
    began = None
    for whole, short in zip(true.cycles.rows(), cut.cycles.rows(), strict=True):
        if began is None and whole["data_pdu_count"]:
            began = whole["cycle"]
        differing = {name for name in whole if whole[name] != short[name]}
        # where the login's text is cut, a digest may follow the first data, so that its end is unknown
        assert not differing or whole["cycle"] == began
        assert all(short[name] is None for name in differing - {"is_complete"})
    assert [row["opcode"] for row in cut.pdus.rows()] == [row["opcode"] for row in true.pdus.rows()]
    assert _counter(cut, "pdu_header_cut") == _counter(cut, "header_assumed") == _counter(cut, "sync_lost") == 0
    less = _cut(file, snaplen - 1, tmp_path)
    lost = sum(
        _counter(less, name) for name in ("pdu_header_cut", "header_assumed", "sync_lost", "frame_cut_in_headers")
    )
    assert lost > 0
    # the predicted size equals that of editcap's output
    assert advice["headers_kept_bytes"] == cut.inputs[0]["captured_byte_count"]


def test_the_longer_advice_keeps_the_login_texts(runs: Runs, tmp_path: Path) -> None:
    file = runs(LAYOUTS["reads of 4 KiB"]).capture()
    advice = _advice(file)
    keys = [(row["key"], row["effective_initiator"]) for row in iscsitrace.read(file).parameters.rows()]
    assert keys
    cut = _cut(file, advice["texts_snaplen"], tmp_path)
    assert [(row["key"], row["effective_initiator"]) for row in cut.parameters.rows()] == keys
    assert advice["headers_snaplen"] < advice["texts_snaplen"] < 1514


def test_no_snaplen_is_advised_if_headers_lie_anywhere(runs: Runs, tmp_path: Path) -> None:
    # four answers of 4 KiB and their headers in one packet, as a host with GRO captures them
    import struct

    from tests.support.capture_file import Record, write_pcapng

    records, link_type = read_records(runs(LAYOUTS["eight at a time"]).capture())
    joined: list[Record] = []
    for record in records:
        data = bytearray(record.data)
        head = 14 + (data[14] & 15) * 4
        tcp = head + (data[head + 12] >> 4) * 4
        previous = bytearray(joined[-1].data) if joined else bytearray()
        is_payload = len(data) > tcp
        if is_payload and len(previous) > tcp and len(previous) < 40_000:
            own, last = struct.unpack_from(">HHI", data, head), struct.unpack_from(">HHI", previous, head)
            if own[:2] == last[:2] and own[2] == last[2] + len(previous) - tcp:
                previous += data[tcp:]
                struct.pack_into(">H", previous, 16, len(previous) - 14)
                joined[-1] = Record(joined[-1].time_ns, bytes(previous), len(previous))
                continue
        joined.append(Record(record.time_ns, bytes(data), len(data)))
    file = write_pcapng(tmp_path / "joined.pcapng", joined, link_type)
    result = run("-r", file, "-s", "advise")
    assert "no useful snaplen" in result.output
    assert "packets are longer than any on the wire" in result.output


def test_without_iscsi_there_is_no_advice(tmp_path: Path) -> None:
    from tests.support.capture_file import Record, write_pcapng

    file = write_pcapng(tmp_path / "none.pcapng", [Record(1, bytes(60), 60)], 1)
    result = run("-r", file, "-s", "advise")
    assert result.exit_code == 0
    assert "no PDU seen, so no advice" in result.output


# --- interfaces


def test_interfaces_lists_the_loopback_device() -> None:
    result = CliRunner().invoke(main, ["interfaces", "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    (loopback,) = [each for each in document["interfaces"] if each["name"] == "lo"]
    assert loopback["is_loopback"]
    assert loopback["can_capture"] == (os.geteuid() == 0)
    assert loopback["link_types"][0] == 1
    assert "host" in loopback["time_stamp_types"]
    assert "lo " in CliRunner().invoke(main, ["interfaces"]).stdout


def test_samples_without_packets_are_no_written_packets() -> None:
    """It said "0 written (175688 bytes)": those bytes were samples of TCP_INFO."""
    progress = {"written_count": 0, "written_bytes": 175_688, "dropped_count": 0, "slow_count": 0, "tcp_info_count": 7}
    told = shown.end_of({"progress": progress, "interfaces": [{"seen_count": 0}]})
    assert told == "0 packets seen, 0 written, 0 dropped; 175688 bytes in files; 7 samples of TCP_INFO"
