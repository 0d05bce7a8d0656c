"""Writes core/wire/src/sense_codes.tsv: T10's additional sense codes (asc-num.txt) and their texts.

``python -m tools.sense_codes`` reads the list in libsgutils2 of sg3_utils (Debian: sg3-utils), which has the list of
2020-08-17, adds the codes that T10 assigned later, and removes those that T10's list does not have. Ranges (such as
40h/NNh) and vendor specific codes are rules in iscsitrace/wording/sense.py. tests/wording/test_sense.py compares the
file with the library, with tshark and with T10's list.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "core/wire/src/sense_codes.tsv"
LATER = {(0x00, 0x23): "overlapping atomic command in progress"}
"""Assigned since the library's list, up to T10's list of 2023-03-25."""
NOT_T10 = {(0x30, 0x0B)}
"""Codes of the library that T10's list does not have."""
_SPELLED = """
ACA ACK/NAK ACL ACS ATA CD CDB CIRC CRC ECC eCRC ESN I/O I_T ID INQUIRY IP iSCSI ISRC iuCRC L-EC LBA LU LUN LUNs LVD
MGMT NAK NN ORWRITE PCIe RAM RDZ RMA/PMA RMZ ROD RPL SA SCSI ST TLP Ultra-DMA/32 UPC/EAN WORM XCDB
"""
_ABBREVIATIONS = {word.casefold(): word for word in _SPELLED.split()}
_HEAD = """\
# The additional sense codes of T10's list (www.t10.org/lists/asc-num.txt) as of 2023-03-25: ASC, ASCQ, text.
# Generated from libsgutils2 by `python -m tools.sense_codes`; do not edit.
"""


class _Code(ctypes.Structure):
    """``struct sg_lib_asc_ascq_t`` of sg3_utils."""

    _fields_ = (("asc", ctypes.c_ubyte), ("ascq", ctypes.c_ubyte), ("text", ctypes.c_char_p))


def of_library() -> dict[tuple[int, int], str]:
    """ASC and ASCQ to text, as libsgutils2 has it. Raises FileNotFoundError without the library."""
    found = sorted(file for folder in ("lib*", "lib*/*") for file in Path("/usr").glob(f"{folder}/libsgutils2*.so*"))
    if not found:
        raise FileNotFoundError("libsgutils2 is missing: install sg3-utils")
    library = ctypes.CDLL(str(found[0]))
    return {(code.asc, code.ascq): code.text.decode() for code in _codes(library)}


def _codes(library: ctypes.CDLL) -> Iterator[_Code]:
    """The array ``sg_lib_asc_ascq``, which ends with a null pointer."""
    entry = ctypes.pointer(_Code.in_dll(library, "sg_lib_asc_ascq"))
    number = 0
    while entry[number].text:
        yield entry[number]
        number += 1


def in_words(text: str) -> str:
    """T10's text, which is all capitals, in lower case but for abbreviations: ``invalid field in CDB``."""
    text = re.sub(r"\(obs\)$", "(obsolete)", text.lower())
    return re.sub(r"[^\s,()]+", lambda word: _ABBREVIATIONS.get(word[0], word[0]), text)


def text() -> str:
    """The content of the file."""
    codes = {code: in_words(words) for code, words in of_library().items() if code not in NOT_T10} | LATER
    return _HEAD + "".join(f"{asc:02X}\t{ascq:02X}\t{words}\n" for (asc, ascq), words in sorted(codes.items()))


if __name__ == "__main__":
    FILE.write_text(text())
