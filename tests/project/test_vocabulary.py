"""The core's tables of SCSI commands and login keys in Python, and the file generated from the keys."""

from __future__ import annotations

from iscsitrace import _core
from tools import login_keys


def test_the_file_of_login_keys_is_up_to_date() -> None:
    assert login_keys.FILE.read_text() == login_keys.text(), "python -m tools.login_keys"


def test_login_keys_are_those_of_the_rfc() -> None:
    keys = {key["name"]: key for key in _core.login_keys()}
    assert len(keys) == len(_core.login_keys())
    # RFC 7143, sections 13.14, 13.12, 13.11 and 12.1.3
    assert keys["FirstBurstLength"] == {
        "name": "FirstBurstLength",
        "section": "13.14",
        "setting": "first_burst_length",
        "kind": "number",
        "bounds": (512, 2**24 - 1),
        "default": "65536",
        "is_leading_only": True,
        "is_of_connection": False,
        "is_irrelevant_in_discovery": True,
        "is_secret": False,
    }
    declared = keys["MaxRecvDataSegmentLength"]
    assert (declared["default"], declared["is_leading_only"], declared["is_of_connection"]) == ("8192", False, True)
    assert (keys["ImmediateData"]["kind"], keys["ImmediateData"]["default"]) == ("boolean", "Yes")
    assert keys["CHAP_R"]["is_secret"]
    assert not keys["CHAP_N"]["is_secret"]
    assert set(_core.SECRET_KEYS) == {name for name, key in keys.items() if key["is_secret"]}
    assert all(name.startswith(("CHAP_", "SRP_", "SPKM_", "KRB_")) for name in _core.SECRET_KEYS)


def test_scsi_commands_are_those_of_t10() -> None:
    rows = {(row["operation_code"], row["service_action"], row["device_type"]): row for row in _core.scsi_commands()}
    assert len(rows) == len(_core.scsi_commands())
    codes = [row["operation_code"] for row in _core.scsi_commands()]
    assert codes == sorted(codes)
    assert {row["operation"] for row in rows.values()} == set(_core.OPERATIONS)
    # SBC: READ(10) has the LBA in bytes 2 to 5 and the transfer length in bytes 7 and 8
    assert rows[0x28, None, 0] == {
        "operation_code": 0x28,
        "service_action": None,
        "device_type": 0,
        "operation": "read",
        "name": "READ(10)",
        "kind": "read",
        "purpose": "data",
        "lba": (2, 4),
        "block_count": (7, 2),
    }
    # SBC: WRITE(16), WRITE(6); SPC and SBC: SEEK(10), the same code in SSC: LOCATE(10); SBC: READ CAPACITY(16)
    assert (rows[0x8A, None, 0]["kind"], rows[0x8A, None, 0]["lba"]) == ("write", (2, 8))
    assert rows[0x8A, None, 0]["block_count"] == (10, 4)
    assert (rows[0x0A, None, 0]["lba"], rows[0x0A, None, 0]["block_count"]) == ((1, 3), (4, 1))
    assert (rows[0x2B, None, 0]["name"], rows[0x2B, None, 0]["block_count"]) == ("SEEK(10)", None)
    assert (rows[0x2B, None, 1]["name"], rows[0x2B, None, 1]["lba"]) == ("LOCATE(10)", None)
    assert (rows[0x9E, 0x10, 0]["operation"], rows[0x9E, None, 0]["operation"]) == (
        "read_capacity",
        "service_action_in",
    )
    assert (rows[0x2E, None, 0]["kind"], rows[0x2E, None, 0]["purpose"]) == ("other", "data")
    assert (rows[0x35, None, 0]["purpose"], rows[0x12, None, 0]["purpose"]) == ("flush", "other")
