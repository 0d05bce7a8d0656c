"""Other initiators as tests run them: libiscsi's programs and qemu-img. Output with numbers is parsed.

A program that fails or exceeds its time limit raises an error with its last line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from iscsitrace.errors import ToolMissing
from iscsitrace.lab.places import Place

_LIBISCSI = "libiscsi-bin"


@dataclass(frozen=True)
class ListedTarget:
    """A target that iscsi-ls found: name, portal, and a line for each LUN."""

    name: str
    portal: str
    luns: tuple[str, ...]


def iscsi_ls(place: Place, discovery_url: str, *, limit_s: float = 20) -> list[ListedTarget]:
    """Discovers targets and their LUNs.

    Against istgt iscsi-ls never ends after its list: istgt counts the immediate Text Request in CmdSN (RFC 7143,
    section 4.2.2.1, does not), so libiscsi finds no CmdSN for its logout. The result is the list up to the time limit.
    """
    finished = place.run(
        # line buffering: each line is written at once
        *("stdbuf", "-oL", _found("iscsi-ls", place), "-s", discovery_url),
        package="coreutils",
        limit_s=limit_s,
        is_checked=False,
    )
    listed: list[ListedTarget] = []
    for line in finished.output.splitlines():
        if target := re.fullmatch(r"Target:(\S+) Portal:(\S+),\d+", line.strip()):
            listed.append(ListedTarget(target[1], target[2], ()))
        elif listed and line.startswith("Lun:"):
            last = listed.pop()
            listed.append(ListedTarget(last.name, last.portal, (*last.luns, " ".join(line.split()))))
    if finished.code not in {0, None} or not listed:
        raise ToolMissing(f"iscsi-ls found no target at {_without_secret(discovery_url)}: {finished.last_message}")
    return listed


def iscsi_inq(place: Place, url: str, *, limit_s: float = 20) -> dict[str, str]:
    """The standard INQUIRY data by iscsi-inq's labels; of a label that occurs several times the last value."""
    return _values(_run(place, "iscsi-inq", url, limit_s=limit_s))


def iscsi_readcapacity16(place: Place, url: str, *, limit_s: float = 20) -> tuple[int, int]:
    """Number of logical blocks, and bytes of a block."""
    values = _values(_run(place, "iscsi-readcapacity16", url, limit_s=limit_s))
    last_block, block_bytes = values["RETURNED LOGICAL BLOCK ADDRESS"], values["LOGICAL BLOCK LENGTH IN BYTES"]
    return int(last_block) + 1, int(block_bytes)


@dataclass(frozen=True)
class ConformanceTest:
    """One test of iscsi-test-cu."""

    suite: str
    name: str
    has_passed: bool
    skipped: tuple[str, ...]
    """Reasons for skipping it or a part of it. iscsi-test-cu counts it as passed."""
    failed: tuple[str, ...]
    """Its error messages."""


def iscsi_test_cu(
    place: Place,
    url: str,
    *,
    tests: str = "ALL",
    second_path: str | None = None,
    is_destructive: bool = True,
    limit_s: float = 300,
) -> list[ConformanceTest]:
    """Runs libiscsi's conformance tests, FAMILY[.SUITE[.TEST]] like ``SCSI.Read10``; returns the result of each.

    ``second_path`` is another URL of the same disk. Without it the multipath tests are skipped.
    """
    options = ["--dataloss"] if is_destructive else []
    urls = [url] if second_path is None else [url, second_path]
    finished = place.run(
        *("iscsi-test-cu", "--verbose", *options, "--test", tests, *urls),
        package=_LIBISCSI,
        limit_s=limit_s,
        is_checked=False,
    )
    # its exit code is not 0 when tests failed, too
    if finished.code is None or "Run Summary:" not in finished.output:
        raise ToolMissing(f"iscsi-test-cu did not run to its end: {finished.last_message}")
    return _conformance(finished.output)


def qemu_img(place: Place, *arguments: str, limit_s: float = 120) -> str:
    """Runs qemu-img, which takes iSCSI URLs as images; returns its output."""
    finished = place.run("qemu-img", *arguments, package="qemu-utils", limit_s=limit_s, is_checked=False)
    if "Unknown protocol 'iscsi'" in finished.errors:
        raise ToolMissing("qemu-img has no iSCSI driver: apt install qemu-block-extra")
    if finished.code != 0:
        raise ToolMissing(f"qemu-img failed: {finished.last_message}")
    return finished.output


def _conformance(output: str) -> list[ConformanceTest]:
    """``Test: Simple ...    [SKIPPED] why``, more such lines, then a line that begins with ``passed`` or ``FAILED``.

    After the verdict of the last test of a suite there is other output.
    """
    found = []
    for suite in re.split(r"^Suite: ", output.partition("Run Summary:")[0], flags=re.MULTILINE)[1:]:
        suite_name, _, rest = suite.partition("\n")
        for test in re.split(r"^  Test: ", rest, flags=re.MULTILINE)[1:]:
            name, _, output = test.partition(" ...")
            verdicts = re.findall(r"^(passed|FAILED)", output, re.MULTILINE)
            skipped = tuple(dict.fromkeys(re.findall(r"\[SKIPPED\] (.*)", output)))
            failed = tuple(dict.fromkeys(re.findall(r"\[FAILED\] (.*)", output)))
            found.append(ConformanceTest(suite_name.strip(), name, verdicts == ["passed"], skipped, failed))
    return found


def _run(place: Place, program: str, *arguments: str, limit_s: float) -> str:
    return place.run(program, *arguments, package=_LIBISCSI, limit_s=limit_s).output


def _found(program: str, place: Place) -> str:
    return place.command(program, package=_LIBISCSI)[-1]


def _values(output: str) -> dict[str, str]:
    return {name.strip(): value.strip() for name, colon, value in (line.partition(":") for line in output.splitlines())}


def _without_secret(url: str) -> str:
    return re.sub(r"%[^@/]*@", "@", url)
