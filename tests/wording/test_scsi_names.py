"""Names of SCSI codes against tshark's, and against the standards where those differ."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from iscsitrace.wording import scsi_names
from tests.support import tshark_values


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
