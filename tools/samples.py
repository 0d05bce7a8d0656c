"""Makes samples/: simulated runs by their commands, and recordings, each with its recipe.toml and truth.json.

``python -m tools.samples`` makes the simulated ones, ``python -m tools.samples FOLDER`` also those of a folder of
recordings: captures, each with a description (NAME.json) of its set-up and of the counts of the kernels, dd and tshark.
The READMEs are written by hand. It never reads a capture: nothing in a truth.json comes from the analysis.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SIZE_MAX_BYTES = 1_000_000

PDU_TITLES = {
    "NopOut": "NOP-Out", "NopIn": "NOP-In", "Cmd": "SCSI Command", "Resp": "SCSI Response",
    "TMF": "Task Management Function Request", "TMFResp": "Task Management Function Response",
    "Login": "Login Request", "LoginResp": "Login Response", "DataOut": "SCSI Data-Out", "DataIn": "SCSI Data-In",
    "Logout": "Logout Request", "LogoutResp": "Logout Response", "R2T": "Ready To Transfer",
}  # fmt: skip

# the kernel's name -> the key, and the words for 0 and 1
KERNEL_KEYS = {
    "initial_r2t": ("InitialR2T", ("No", "Yes")),
    "immediate_data": ("ImmediateData", ("No", "Yes")),
    "first_burst_len": ("FirstBurstLength", None),
    "max_burst_len": ("MaxBurstLength", None),
    "max_outstanding_r2t": ("MaxOutstandingR2T", None),
    "erl": ("ErrorRecoveryLevel", None),
    "header_digest": ("HeaderDigest", ("None", "CRC32C")),
    "data_digest": ("DataDigest", ("None", "CRC32C")),
}


@dataclass(frozen=True)
class Sample:
    """The recording of a sample, and facts about it that are not in its description."""

    recording: str
    pdus: dict[str, int] | None = None
    """PDU counts by a program that handles digests, where tshark's are wrong; empty if unknown."""
    known: dict[str, Any] = field(default_factory=dict)
    at_target: str | None = None
    """The recording of the same traffic at the target."""


SAMPLES = {
    "sequential-read-4ms": Sample("01_seqread_qd1_delay04ms_tso-off.pcapng.gz"),
    "sequential-read-16ms": Sample("01_seqread_qd1_delay16ms_tso-off.pcapng.gz"),
    "write-r2t-rounds": Sample("03_seqwrite_256k_delay04ms_R2T-yes_Imm-no_burst64k.pcapng.gz"),
    "loss-1-percent": Sample(
        "04_read_loss1pct_delay08ms.initiator.pcap.gz", at_target="04_read_loss1pct_delay08ms.target.pcap.gz"
    ),
    "header-and-data-digests": Sample(
        "05_digests_header+data_crc32c_delay01ms.pcap.gz", {"SCSI Command": 50, "SCSI Data-In": 42}
    ),
    # the target's kernel retransmitted a FIN, which has no bytes (tshark: frame 2899)
    "two-connections-one-session": Sample(
        "06_mcs_2-connections_delay04ms.pcapng.gz", known={"session_count": 1, "retransmitted_fin_count": 1}
    ),
    "any-device": Sample("09_any-device_sll2_delay01ms.pcap.gz"),
    "mid-session": Sample("09_mid-session_delay04ms_noop1s.pcap.gz"),
    "snaplen-128": Sample("09_snaplen128_read+write_delay01ms.pcap.gz", {}),
    "task-abort-storage-hang": Sample("14_tmf_abort_storage-hang.pcapng.gz", known={"aborted_task_count": 1}),
    # status class 2, detail 1: the initiator could not be authenticated (RFC 7143 section 11.13.5)
    "chap-refused-then-accepted": Sample(
        "16_login_chap_wrong-then-right.pcap", known={"session_count": 2, "refused_login_status": [2, 1]}
    ),
    "capture-drops": Sample("20_capture-drops_delay04ms.pcap.gz", {}),
}


SIMULATED = {
    "black-out-and-relogin": "read --one-way-delay 5ms --rate 20Mbit --block-size 16K --queue-depth 2 "
    "--think-time 40ms --seconds 17 --fault black-out,for=12s",
    "login-not-authorized": "read --one-way-delay 1ms --block-size 16K --fault no-acl",
    "medium-error": "read --one-way-delay 1ms --rate 100Mbit --block-size 8K --think-time 20ms --seconds 4 "
    "--fault storage-errors,sectors=512-1023,at=0s,for=4s",
    "reordering": "read --one-way-delay 8ms --rate 20Mbit --block-size 64K --queue-depth 4 --seconds 4 "
    "--fault reordering,at=0s,for=4s,share=20%,by=60ms",
}
"""Commands of `iscsitrace simulate` by the sample's name; their captures at the initiator are the samples."""


def simulate(name: str, directory: Path) -> dict[str, Any]:
    """Runs the command of a sample; returns its truth."""
    command = [sys.executable, "-m", "iscsitrace", "simulate", *shlex.split(SIMULATED[name])]
    # 1 and 2: commands or logins failed, as they should
    finished = subprocess.run([*command, "--quiet", "-o", str(directory)], check=False, capture_output=True)
    if finished.returncode not in range(3):
        raise ValueError(f"{name}: {finished.stderr.decode()}")
    found: dict[str, Any] = json.loads((directory / "truth.json").read_text())
    return found


def make_simulated(name: str) -> None:
    """The folder of a simulated sample."""
    folder = ROOT / "samples" / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        found = simulate(name, Path(made))
        capture = gzip.compress((Path(made) / "initiator.pcapng").read_bytes(), mtime=0)
    if len(capture) >= SIZE_MAX_BYTES:
        raise ValueError(f"{name} has {len(capture)} bytes")
    (folder / "capture.pcapng.gz").write_bytes(capture)
    results = found["results"]
    known = {
        "packet_count": found["packet_counts"][0],
        "connection_count": len(results["connections"]),
        "read_bytes": results["read"]["bytes"],
        "error_count": results["error_count"],
        "started_ns": found["started_ns"],
        "ended_ns": found["ended_ns"],
        "faults": found["faults"],
    }
    (folder / "truth.json").write_text(json.dumps(known, indent=2) + "\n")
    command = f"iscsitrace simulate {SIMULATED[name]} -o DIR"
    lines = ["# How this capture was made. Written by tools/samples.py.", "", "[simulation]"]
    lines += [f"command = {json.dumps(command)}", 'capture = "DIR/initiator.pcapng"', ""]
    (folder / "recipe.toml").write_text("\n".join(lines))


def describe(recordings: Path, file: str) -> dict[str, Any]:
    """The description of a recording."""
    name = re.sub(r"(\.(initiator|target))?\.pcap(ng)?(\.gz)?$", "", file)
    described: dict[str, Any] = json.loads((recordings / f"{name}.json").read_text())
    return described


def truth(sample: Sample, described: dict[str, Any]) -> dict[str, Any]:
    """Facts about a capture that do not come from this project's analysis."""
    counted = described["tshark"][sample.recording]
    is_tsharks = sample.pdus is None
    ops = {PDU_TITLES[name]: count for name, count in counted["ops"].items()} if is_tsharks else sample.pdus or {}
    dropped = [re.match(r"(\d+) packets dropped", line) for line in described["capture_tool_says"]]
    delta = described["tcp_counters_delta"]
    return {
        "packet_count": counted["frames"],
        "connection_count": counted["streams"],
        "dropped_packet_count": sum(int(match[1]) for match in dropped if match),
        "pdu_count": ops,
        "is_pdu_count_tsharks": is_tsharks,
        "one_way_delay_ms": described["network"]["one_way_delay_ms"],
        "ping_rtt_min_ms": described["network"]["ping_rtt_ms_under_this_configuration"]["min"],
        "kernel_retransmitted_segments": {
            "to_target": int(delta["initiator"].get("TcpRetransSegs", 0)),
            "to_initiator": int(delta["target"].get("TcpRetransSegs", 0)),
        },
        "keys_in_force": [
            {
                "target_name": session["targetname"],
                **{
                    key: words[int(session[name])] if words else session[name]
                    for name, (key, words) in KERNEL_KEYS.items()
                },
            }
            for session in described["negotiated_as_seen_by_initiator_kernel"]
        ],
        "max_recv_data_segment_length": {
            side: int(session[name])
            for session in described["negotiated_as_seen_by_initiator_kernel"]
            for side, name in (("initiator", "max_recv_dlength"), ("target", "max_xmit_dlength"))
        },
        "transfers": [transfer for step in described["io"] for transfer in transfers(step)],
        **sample.known,
    }


def transfers(step: dict[str, Any]) -> list[dict[str, Any]]:
    """Transfers as reported by a command; times are of the initiator's clock, which also timestamped the capture."""
    window = {"time_from_ns": round(step["start"] * 1e9), "time_to_ns": round(step["end"] * 1e9)}
    if "parts" in step:
        return [{"operation": part["what"], "bytes": part["bytes"], **window} for part in step["parts"]]
    words = dict(re.findall(r"(\w+)=(\S+)", step["cmd"]))
    block_bytes = int(words["bs"].rstrip("k")) * 1024
    operation = "read" if words["if"].startswith("/dev/") else "write"
    first = int(words.get("skip" if operation == "read" else "seek", 0)) * block_bytes
    return [
        {
            "operation": operation,
            "first_byte": first,
            "bytes": step["bytes"],
            "block_bytes": block_bytes,
            "seconds": step["seconds"],
            **window,
        }
    ]


def recipe(sample: Sample, described: dict[str, Any]) -> str:
    """How the capture was made, in enough detail to repeat it."""
    (capture,) = [each for each in described["files"] if each["file"] == sample.recording]
    network = described["network"]
    packages = described["versions"]["packages"]
    sections: dict[str, dict[str, Any]] = {
        "recording": {"file": sample.recording, "description": described["description"]},
        "hosts": {
            "what": f"two virtual machines ({described['versions']['emulation']})",
            "distribution": described["versions"]["distribution"],
            "kernel": described["versions"]["kernel"].split()[0],
            "initiator": re.sub(r", see [^)]*", "", described["initiator"]["what"]),
            "initiator_address": described["initiator"]["address"],
            "target": described["target"]["what"],
            "target_address": described["target"]["address"],
            "target_name": described["target"]["iqn"],
        },
        "network": {
            "one_way_delay_to_target_ms": network["one_way_delay_ms"]["initiator_to_target"],
            "one_way_delay_to_initiator_ms": network["one_way_delay_ms"]["target_to_initiator"],
            "netem_at_the_initiator": network["netem_initiator_egress"],
            "netem_at_the_target": network["netem_target_egress"],
            "where": "netem behind the interface on which the capture is taken",
            "mtu_bytes": network["mtu"],
            "offloads": network["offloads_tso_gso_gro"],
            "congestion_control": network["congestion_control"],
        },
        "capture": {"point": capture["capture_point"], "command": f"{capture['tool']} {capture['filter']}"},
        "target_parameters": described["configured"]["target_params"],
        "initiator_parameters": described["configured"]["initiator_params"],
        "versions": {
            name: packages[name] for name in ("open-iscsi", "python3-rtslib-fb", "tcpdump", "wireshark-common")
        },
    }
    lines = ["# How this capture was made. Written by tools/samples.py from the recording's description."]
    for name, values in sections.items():
        lines += ["", f"[{name}]", *(f"{_bare(key)} = {json.dumps(value)}" for key, value in values.items())]
    for step in described["io"]:
        # the folder of a script is irrelevant
        command = re.sub(r"/\S*/(\w+\.py)", r"\1", step["cmd"])
        lines += ["", "[[io]]", f"name = {json.dumps(step['name'])}", f"command = {json.dumps(command)}"]
    return "\n".join([*lines, ""])


def _bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def make(recordings: Path, name: str, sample: Sample) -> None:
    """One sample's folder: capture, recipe.toml and truth.json."""
    folder = ROOT / "samples" / name
    folder.mkdir(parents=True, exist_ok=True)
    described = describe(recordings, sample.recording)
    for stem, recording in (("capture", sample.recording), ("target", sample.at_target)):
        if recording is None:
            continue
        suffix = re.search(r"\.pcap(ng)?(\.gz)?$", recording)
        if suffix is None or (recordings / recording).stat().st_size >= SIZE_MAX_BYTES:
            raise ValueError(f"{recording} is no capture below 1 MB")
        shutil.copyfile(recordings / recording, folder / f"{stem}{suffix[0]}")
    (folder / "truth.json").write_text(json.dumps(truth(sample, described), indent=2) + "\n")
    (folder / "recipe.toml").write_text(recipe(sample, described))


def main(arguments: list[str]) -> int:
    """Makes the samples; returns the exit code."""
    if len(arguments) > 1 or not all(Path(each).is_dir() for each in arguments):
        print("usage: python -m tools.samples [FOLDER] (recordings with their descriptions)", file=sys.stderr)
        return 2
    for name in SIMULATED:
        make_simulated(name)
        print(f"samples/{name} made")
    for name, sample in SAMPLES.items() if arguments else ():
        make(Path(arguments[0]), name, sample)
        print(f"samples/{name} made")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
