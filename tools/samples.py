"""Makes samples/ from recordings: copies each capture, writes its recipe.toml and truth.json from the description.

``python -m tools.samples FOLDER`` reads a folder of recordings: captures, each with a description (NAME.json) of its
set-up and of the counts of the kernels, dd and tshark. The READMEs are written by hand. It never reads a capture:
nothing in a truth.json comes from the program under test.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
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


SAMPLES = {
    "sequential-read-4ms": Sample("01_seqread_qd1_delay04ms_tso-off.pcapng.gz"),
    "sequential-read-16ms": Sample("01_seqread_qd1_delay16ms_tso-off.pcapng.gz"),
    "write-r2t-rounds": Sample("03_seqwrite_256k_delay04ms_R2T-yes_Imm-no_burst64k.pcapng.gz"),
    "loss-1-percent": Sample("04_read_loss1pct_delay08ms.initiator.pcap.gz"),
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
    suffix = re.search(r"\.pcap(ng)?(\.gz)?$", sample.recording)
    if suffix is None or (recordings / sample.recording).stat().st_size >= SIZE_MAX_BYTES:
        raise ValueError(f"{sample.recording} is no capture below 1 MB")
    shutil.copyfile(recordings / sample.recording, folder / f"capture{suffix[0]}")
    (folder / "truth.json").write_text(json.dumps(truth(sample, described), indent=2) + "\n")
    (folder / "recipe.toml").write_text(recipe(sample, described))


def main(arguments: list[str]) -> int:
    """Makes all samples; returns the exit code."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m tools.samples FOLDER (recordings with their descriptions)", file=sys.stderr)
        return 2
    for name, sample in SAMPLES.items():
        make(Path(arguments[0]), name, sample)
        print(f"samples/{name} made")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
