"""The profile: Wireshark accepts its filters and columns; colours match the legend and are distinguishable."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.wireshark import install as installation
from iscsitrace.wireshark.install import Folders
from tests.support import hand_timed as by_hand
from tests.support.hand_timed import READ, Wire, command, data_in
from tests.support.runs import Run, Runs
from tools.docs import ROOT

PROFILE = ROOT / "plugins" / "profile"
PLUGIN = ROOT / "plugins" / "iscsitrace.lua"
RULE = re.compile(r"@([^@]+)@(.+)@\[(\d+),(\d+),(\d+)\]\[(\d+),(\d+),(\d+)\]")
BUTTON = re.compile(r'"TRUE","([^"]+)","([^"]+)","([^"]+)"')
LOSSY = (
    "mixed --one-way-delay 8ms --rate 320Mbit --loss 1/512 --block-size 128K --queue-depth 2 --bytes 4M --seed 3 "
    "--key InitialR2T=Yes --key ImmediateData=No"
)
Colour = tuple[float, float, float]

# the rule of each opcode, where no rule before it fits
EXPECTED = {
    0x00: "iSCSI NOP",
    0x01: "iSCSI command",
    0x03: "iSCSI login, logout, text",
    0x05: "iSCSI Data-Out",
    0x06: "iSCSI login, logout, text",
    0x20: "iSCSI NOP",
    0x21: "iSCSI status",
    0x23: "iSCSI login, logout, text",
    0x25: "iSCSI Data-In",
    0x26: "iSCSI login, logout, text",
    0x31: "iSCSI R2T",
}


def rules() -> dict[str, tuple[str, Colour, Colour]]:
    """Name to expression, background and foreground."""
    lines = [line for line in (PROFILE / "colorfilters").read_text().splitlines() if not line.startswith("#")]
    found = {}
    for line in lines:
        match = RULE.fullmatch(line)
        assert match, line
        name, expression, *parts = match.groups()
        red, green, blue, *foreground = (int(part) / 65535 for part in parts)
        found[name] = (expression, (red, green, blue), (foreground[0], foreground[1], foreground[2]))
    assert len(found) == len(lines)
    return found


def buttons() -> dict[str, str]:
    found = {}
    for line in (PROFILE / "dfilter_buttons").read_text().splitlines():
        match = BUTTON.fullmatch(line)
        assert match, line
        found[match[1]] = match[2]
    return found


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Runs(tmp_path_factory.mktemp("runs"))(LOSSY)


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration folder with only the profile."""
    folder = tmp_path_factory.mktemp("home")
    # the plugin stays out of the folders that tshark looks into: it is named
    installation.install(Folders(folder, folder / "elsewhere", folder / "elsewhere"))
    return folder


def tshark(configuration: Path, *arguments: str) -> list[list[str]]:
    """Lines of tshark with profile and plugin; any message on standard error fails."""
    command = ["tshark", "-n", "-X", f"lua_script:{PLUGIN}", "-C", "iscsitrace", *arguments]
    environment = os.environ | {"WIRESHARK_CONFIG_DIR": str(configuration), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    complaints = [line for line in done.stderr.splitlines() if line and not line.startswith("Running as user")]
    assert (done.returncode, complaints) == (0, [])
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_wireshark_accepts_every_filter(configuration: Path, lossy: Run) -> None:
    expressions = [*(expression for expression, *_ in rules().values()), *buttons().values()]
    every = " || ".join(f"({expression})" for expression in expressions)
    assert tshark(configuration, "-r", str(lossy.capture()), "-Y", every)


def test_wireshark_knows_every_column(configuration: Path, lossy: Run) -> None:
    text = (PROFILE / "preferences").read_text()
    fields = re.findall(r'"%Cus:([a-z0-9_.]+):0:R"', text)
    assert "iscsitrace.cycle" in fields
    wanted = [part for field in fields for part in ("-e", field)]
    # tshark refuses a field that there is not
    tshark(configuration, "-r", str(lossy.capture()), "-c", "1", "-T", "fields", *wanted)


def test_rows_have_the_colours_of_the_legend(configuration: Path, lossy: Run) -> None:
    shown = tshark(
        configuration,
        *("-r", str(lossy.capture()), "--color", "-T", "fields"),
        *("-e", "frame.number", "-e", "frame.coloring_rule.name"),
    )
    rule_of = {int(line[0]): line[1] for line in shown}
    trace = iscsitrace.read(lossy.capture(), tables=("pdus", "retransmissions"))
    again = {row["frame"] for row in trace.retransmissions.rows()}
    assert again
    assert {rule_of[frame] for frame in again} == {"iSCSI retransmission"}
    slow = {row["status_frame"] for row in trace.cycles.rows() if (row["latency_ns"] or 0) >= 50_000_000}
    assert slow - again
    assert {rule_of[frame] for frame in slow - again} == {"iSCSI slow command"}
    opcodes: dict[int, set[int]] = {}
    for row in trace.pdus.rows():
        opcodes.setdefault(row["frame_last"], set()).add(row["opcode"])
    seen = set()
    for frame, found in opcodes.items():
        rule = rule_of[frame]
        if len(found) == 1 and rule in EXPECTED.values():
            (opcode,) = found
            # a status that rides in the last Data-In ends its cycle
            assert rule in (EXPECTED[opcode], "iSCSI status"), frame
            seen.add(opcode)
    assert {0x01, 0x03, 0x05, 0x21, 0x23, 0x25, 0x31} <= seen


def test_failures_have_their_colour(configuration: Path) -> None:
    # a refused login, and the CHECK CONDITION that reports the power on
    sample = ROOT / "samples" / "chap-refused-then-accepted" / "capture.pcap"
    fields = ("-T", "fields", "-e", "frame.number", "-e", "frame.coloring_rule.name")
    shown = {
        int(frame) for frame, rule in tshark(configuration, "-r", str(sample), "--color", *fields) if "failed" in rule
    }
    trace = iscsitrace.read(sample)
    refused = {row["response_frame"] for row in trace.logins.rows() if row["status_class"]}
    unwell = {row["status_frame"] for row in trace.cycles.rows() if row["status"]}
    assert len(refused) == len(unwell) == 1
    assert shown == refused | unwell


@pytest.mark.parametrize("port", [40_000, 50_000])
def test_the_profile_shows_iscsi_from_any_port_without_a_login(port: int, configuration: Path, tmp_path: Path) -> None:
    """Wireshark 4.4 takes connections from port 40000 for SAP."""
    wire = Wire(port)
    wire.send(0, command(0, READ, cmd_sn=1, read=512)).receive(8, data_in(0, 0, 0, 512, stat_sn=1))
    shown = tshark(configuration, "-r", str(by_hand.capture(tmp_path, wire)), "-Y", "iscsitrace.latency")
    assert len(shown) == 1


def test_the_legend_has_every_colour() -> None:
    legend = (ROOT / "docs" / "plugins.md").read_text().split("| colour | rows |\n|---|---|\n")[1].split("\n\n")[0]
    assert len(legend.splitlines()) == len({(background, text) for _, background, text in rules().values()})


def linear(colour: Colour) -> Colour:
    """sRGB to linear light (IEC 61966-2-1)."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour)
    return red, green, blue


def luminance(colour: Colour) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", rules())
def test_text_has_enough_contrast(name: str) -> None:
    _, background, foreground = rules()[name]
    darker, lighter = sorted((luminance(background), luminance(foreground)))
    # WCAG 2, contrast (minimum)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


# Machado, Oliveira and Fernandes (2009), severity 1
_VISION = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def seen_as(colour: Colour, vision: str) -> Colour:
    """CIELAB of a colour as seen with this colour vision."""
    light = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, light, strict=True))))
        for row in _VISION[vision]
    )
    weighted = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in weighted)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("vision", _VISION)
def test_colours_are_distinguishable(vision: str) -> None:
    # a reset is a failure
    backgrounds = {
        name: seen_as(background, vision) for name, (_, background, _) in rules().items() if name != "TCP reset"
    }
    for (one, first), (other, second) in itertools.combinations(backgrounds.items(), 2):
        distance = sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5
        # a difference of 2.3 can just be noticed
        assert distance >= 11, (one, other)
