"""Names of SCSI codes against tshark's, and against the standards where those differ."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from iscsitrace.wording import scsi_names
from tests.support import tshark_values

# code: tshark's name, the standard's
OF_TYPES = {
    0x1: ("Write Excl", "Write Exclusive"),
    0x3: ("Excl Access", "Exclusive Access"),
    0x5: ("Write Excl, Registrants Only", "Write Exclusive - Registrants Only"),
    0x6: ("Excl Access, Registrants Only", "Exclusive Access - Registrants Only"),
    0x7: ("Write Excl, All Registrants", "Write Exclusive - All Registrants"),
    0x8: ("Excl Access, All Registrants", "Exclusive Access - All Registrants"),
}
OF_ACTIONS = {
    0x5: ("Preempt & Abort", "PREEMPT AND ABORT"),
    0x6: ("Register & Ignore Existing Key", "REGISTER AND IGNORE EXISTING KEY"),
    0x7: ("Register & Move", "REGISTER AND MOVE"),
}


@pytest.mark.parametrize(
    ("field", "names", "different", "missing"),
    [
        # SAM-5: INTERMEDIATE-CONDITION MET; COMMAND TERMINATED is obsolete, and tshark does not have it
        (
            "scsi.status",
            scsi_names.statuses(),
            {0x14: ("Intermediate Condition Met", "INTERMEDIATE-CONDITION MET")},
            {0x22: "COMMAND TERMINATED"},
        ),
        (
            "iscsi.scsiresponse.status",
            scsi_names.statuses(),
            {0x14: ("Intermediate Condition Met", "INTERMEDIATE-CONDITION MET")},
            {0x22: "COMMAND TERMINATED"},
        ),
        ("scsi.persresvout.svcaction", scsi_names.RESERVE_ACTIONS, OF_ACTIONS, {}),
        ("scsi.persresv.type", scsi_names.RESERVATION_TYPES, OF_TYPES, {}),
        (
            "iscsi.scsiresponse.response",
            scsi_names.SERVICE_RESPONSES,
            # RFC 7143: Target Failure
            {0x1: ("Response does not contain SCSI status", "target failure")},
            {},
        ),
    ],
)
def test_names_are_those_of_tshark_or_of_the_standard(
    field: str, names: Mapping[int, str], different: Mapping[int, tuple[str, str]], missing: Mapping[int, str]
) -> None:
    theirs = tshark_values.names(field)
    assert len(theirs) + len(missing) == len(names)
    found = {code: (text, names[code]) for code, text in theirs.items() if text.upper() != names[code].upper()}
    assert found == different
    assert {code: names[code] for code in names.keys() - theirs.keys()} == missing


def test_access_states_are_those_of_spc() -> None:
    # SPC-5, ASYMMETRIC ACCESS STATE field of REPORT TARGET PORT GROUPS: 4 bits, 5h to Dh are reserved
    assert [code for code in range(16) if code in scsi_names.ACCESS_STATES] == [0, 1, 2, 3, 4, 14, 15]
    assert scsi_names.name(scsi_names.ACCESS_STATES, 0x2) == "standby"
    assert scsi_names.name(scsi_names.ACCESS_STATES, 0xF) == "transitioning"
    assert scsi_names.name(scsi_names.ACCESS_STATES, 0x5) == "0x05"
