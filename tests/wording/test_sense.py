"""Sense keys and additional sense codes: all of T10's list, against libsgutils2 and tshark."""

from __future__ import annotations

import re

import pytest

from iscsitrace.wording.command_status import UNKNOWN, additional_sense, codes, sense_keys, sense_text
from tests.support import tshark_values
from tools import sense_codes

# The qualifiers of each code in T10's list (asc-num.txt) of 2020-08-17, in hexadecimal; copied from the list, not from
# the library that the file is generated from. Without the ranges: 40h/NNh from 80h on, 4Dh/NNh and 70h/NNh.
LIST_OF_T10 = """
00:0-7,11-22 01:0 02:0 03:0-2 04:0-e,10-25 05:0 06:0 07:0 08:0-4 09:0-5 0a:0 0b:0-14 0c:0-12 0d:0-5 0e:0-3
10:0-5 11:0-15 12:0 13:0 14:0-7 15:0-2 16:0-4 17:0-9 18:0-8 19:0-3 1a:0 1b:0 1c:0-2 1d:0-1 1e:0 1f:0
20:0-f 21:0-9 22:0 23:0-a 24:0-9 25:0 26:0-16 27:0-8 28:0-3 29:0-7 2a:0-d,10-16 2b:0 2c:0-13 2d:0 2e:0-3 2f:0-3
30:0-a,c-d,10-13 31:0-5 32:0-1 33:0 34:0 35:0-5 36:0 37:0 38:0,2,4,6-8 39:0 3a:0-4 3b:0-f,11-1c,20 3d:0 3e:0-4 3f:0-1a
40:0 41:0 42:0 43:0 44:0-1,71 45:0 46:0 47:0-6,7f 48:0 49:0 4a:0 4b:0-15 4c:0 4e:0
50:0-2 51:0-1 52:0 53:0-d 54:0 55:0-11 57:0 58:0 59:0 5a:0-3 5b:0-3 5c:0-2
5d:0-3,10-1c,20-2c,30-3c,40-4c,50-5c,60-6c,73,ff 5e:0-a,41-43,45,47
60:0 61:0-2 62:0 63:0-1 64:0-1 65:0 66:0-3 67:0-d 68:0-1 69:0-2 6a:0 6b:0-2 6c:0 6d:0 6e:0 6f:0-a
71:0 72:0-7 73:0-6,10-11,17 74:0-d,10-12,21,30,40,61-64,6e-6f,71,79
"""
LATER = {
    (0x00, 0x23): "overlapping atomic command in progress",
    (0x5D, 0x1D): "hardware impending failure power loss protection circuit",
}
"""Codes of T10's list of 2023-03-25 that the older one does not have."""


def _codes_of_t10() -> set[tuple[int, int]]:
    found = set()
    for item in LIST_OF_T10.split():
        asc, _, ranges = item.partition(":")
        for each in ranges.split(","):
            first, _, last = each.partition("-")
            found |= {(int(asc, 16), ascq) for ascq in range(int(first, 16), int(last or first, 16) + 1)}
    return found


def _plain(text: str) -> str:
    """Letters and figures alone, in lower case: T10's list is in capitals."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def test_the_codes_are_all_of_t10s_list_and_no_others() -> None:
    assert set(codes()) == _codes_of_t10() | set(LATER)
    assert len(codes()) == 761
    for code, text in LATER.items():
        assert codes()[code] == text


def test_the_file_is_that_of_the_library() -> None:
    assert sense_codes.FILE.read_text() == sense_codes.text(), "python -m tools.sense_codes"
    library = sense_codes.of_library()
    # T10's list has no 30h/0Bh
    assert {code for code in library if code not in codes()} == {(0x30, 0x0B)}
    for code, text in library.items():
        if code in codes():
            assert _plain(codes()[code]) == _plain(re.sub(r"\(obs\)$", "(obsolete)", text))


# Where tshark has other words, and those of T10's list, without its capitals.
OTHER_IN_TSHARK = {
    (0x00, 0x04): ("Beginning Of Partition Detected", "beginning-of-partition/medium detected"),
    (0x04, 0x02): (
        "Logical Unit Not Ready, Initializing Cmd. Required",
        "logical unit not ready, initializing command required",
    ),
    # tshark leaves out the first words
    (0x19, 0x00): ("List Error", "defect list error"),
    (0x19, 0x01): ("List Not Available", "defect list not available"),
    (0x19, 0x02): ("List Error In Primary List", "defect list error in primary list"),
    (0x19, 0x03): ("List Error In Grown List", "defect list error in grown list"),
    (0x1F, 0x00): ("Defect List Transfer", "partial defect list transfer"),
    (0x42, 0x00): ("Self-Test Failure (Should Use 40 Nn)", "power-on or self-test failure (should use 40 NN)"),
    (0x5C, 0x00): ("Change", "RPL status change"),
    (0x5C, 0x02): ("Synchronized", "spindles not synchronized"),
    # the CRC of information units has this name since SPC-3
    (0x47, 0x03): ("Information Unit Crc Error Detected", "information unit iuCRC error detected"),
    # a range, NN is the task tag since SPC-4
    (0x4D, 0x00): ("Tagged Overlapped Commands (Nn = Queue Tag)", "tagged overlapped commands (task tag 00h)"),
}
# 5Dh/10h to 5Dh/6Ch: T10's words are component, IMPENDING FAILURE, reason; tshark leaves out the component, mostly
# IMPENDING, and the last word of two reasons.
IMPENDING = ("hardware", "controller", "data channel", "servo", "spindle", "firmware")
REASONS = (
    "general hard drive failure",
    "drive error rate too high",
    "data error rate too high",
    "seek error rate too high",
    "too many block reassigns",
    "access times too high",
    "start unit times too high",
    "channel parametrics",
    "controller detected",
    "throughput performance",
    "seek time performance",
    "spin-up retry count",
    "drive calibration retry count",
)


def test_all_codes_of_tshark_have_the_same_words_or_those_of_t10() -> None:
    theirs = {(code >> 8, code & 0xFF): text for code, text in tshark_values.names("scsi.sns.ascascq").items()}
    # Wireshark 4.0: a later one may have more
    assert len(theirs) >= 321
    impending = {
        (0x5D, 0x10 * number + reason): f"{component} impending failure {words}"
        for number, component in enumerate(IMPENDING, 1)
        for reason, words in enumerate(REASONS)
    }
    different = set()
    for code, text in theirs.items():
        ours = additional_sense(*code)
        if _plain(ours) == _plain(text):
            continue
        different.add(code)
        if code in impending:
            assert ours == impending[code]
            assert _plain(text) in _plain(ours), (code, text)
        else:
            assert (text, ours) == OTHER_IN_TSHARK[code]
    # a later tshark may have the words of T10
    assert different <= set(OTHER_IN_TSHARK) | set(impending)


# SPC-5's words where tshark's differ.
KEYS_IN_TSHARK = {
    0x7: ("Data Protection", "DATA PROTECT"),
    0xB: ("Command Aborted", "ABORTED COMMAND"),
    # EQUAL, obsolete and now reserved
    0xC: ("Obsolete Error Code", "reserved sense key"),
    0xD: ("Overflow Command", "VOLUME OVERFLOW"),
    # reserved until SPC-4
    0xF: ("Reserved", "COMPLETED"),
}


def test_all_sense_keys_have_the_names_of_spc() -> None:
    theirs = tshark_values.names("scsi.sns.key")
    assert sorted(theirs) == list(range(16))
    different = {key: (text, sense_keys()[key]) for key, text in theirs.items() if text.upper() != sense_keys()[key]}
    assert different == KEYS_IN_TSHARK
    assert len(sense_keys()) == 16


@pytest.mark.parametrize(
    ("asc", "ascq", "text"),
    [
        (0x40, 0x80, "diagnostic failure on component 80h"),
        (0x40, 0xFF, "diagnostic failure on component FFh"),
        # T10's range begins at 80h
        (0x40, 0x7F, UNKNOWN),
        (0x4D, 0x00, "tagged overlapped commands (task tag 00h)"),
        (0x4D, 0xA5, "tagged overlapped commands (task tag A5h)"),
        (0x70, 0x00, "decompression exception short algorithm ID of 00h"),
        (0x70, 0x1F, "decompression exception short algorithm ID of 1Fh"),
        (0x7F, 0x00, UNKNOWN),
        (0x7F, 0xFF, UNKNOWN),
        (0x80, 0x00, "vendor specific"),
        (0xFF, 0xFF, "vendor specific"),
        (0x29, 0x7F, UNKNOWN),
        (0x29, 0x80, "power on, reset, or bus device reset occurred (vendor specific qualifier)"),
        # assigned although vendor specific by its value
        (0x5D, 0xFF, "failure prediction threshold exceeded (false)"),
        (0x5D, 0xFE, "failure prediction threshold exceeded (vendor specific qualifier)"),
        # obsolete codes keep their former words
        (0x20, 0x05, "write type operation while in read capable state (obsolete)"),
        (0x24, 0x00, "invalid field in CDB"),
        (0x2A, 0x11, "data encryption parameters changed by another I_T nexus"),
    ],
)
def test_ranges_vendor_specific_and_unknown_codes(asc: int, ascq: int, text: str) -> None:
    assert additional_sense(asc, ascq) == text


def test_every_code_has_a_text() -> None:
    unknown = [(asc, ascq) for asc in range(256) for ascq in range(256) if additional_sense(asc, ascq) in ("", UNKNOWN)]
    assert unknown
    assert all(asc < 0x80 for asc, _ in unknown)
    assert not set(unknown) & (_codes_of_t10() | set(LATER))


@pytest.mark.parametrize(
    ("codes_of_sense", "text"),
    [
        ((0x3, 0x11, 0x00), "MEDIUM ERROR, unrecovered read error (3/11/00)"),
        ((0xB, 0x47, 0x7F), "ABORTED COMMAND, some commands cleared by iSCSI protocol event (B/47/7F)"),
        ((0x2, 0x04, 0x0A), "NOT READY, logical unit not accessible, asymmetric access state transition (2/04/0A)"),
        ((0x0, 0x00, 0x00), "NO SENSE, no additional sense information (0/00/00)"),
    ],
)
def test_sense_data_in_words_and_hexadecimal(codes_of_sense: tuple[int, int, int], text: str) -> None:
    assert sense_text(*codes_of_sense) == text
