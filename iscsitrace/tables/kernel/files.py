"""Files of samples of TCP_INFO -> their text, as the core reads it: a time and a line of ``ss -tinOH``.

Lines of JSON (``t local lport peer pport`` and values of TCP_INFO, an object a line) become such lines. Nothing is
interpreted here beyond that.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from iscsitrace.errors import InputInvalid

_GZIP = b"\x1f\x8b"
# names that differ from the words of ss; the others are the same
_WORDS = {"snd_mss": "mss"}
_WHOLE = (
    *("snd_mss", "cwnd", "ssthresh", "bytes_sent", "bytes_retrans", "bytes_acked", "bytes_received", "unacked"),
    *("lost", "sacked", "notsent", "snd_wnd"),
)
_MILLISECONDS = {"min_rtt_us": "minrtt:{}", "busy_us": "busy:{}ms"} | {
    f"{name}_us": f"{name}:{{}}ms" for name in ("rwnd_limited", "sndbuf_limited")
}


def read(paths: Iterable[str | os.PathLike[str]]) -> list[tuple[str, str]]:
    """Name and text of each file, plain or compressed by gzip. InputInvalid for a file that cannot be read."""
    return [(os.fspath(path), _text(Path(path))) for path in paths]


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise InputInvalid(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    text = content.decode(errors="replace")
    if not text.lstrip().startswith("{"):
        return text
    return "\n".join(map(_line, text.splitlines()))


def _line(text: str) -> str:
    """A JSON line as a time and a line of ss; "" for any other, such as one cut short."""
    try:
        sample: dict[str, Any] = json.loads(text)
        ends = " ".join(
            f"[{sample[address]}]:{sample[port]}" for address, port in (("local", "lport"), ("peer", "pport"))
        )
        words = [f"{float(sample['t']):.9f} 0 0 {ends} {sample.get('cc', '')}"]
        if sample.get("rtt_us"):
            words.append(f"rtt:{sample['rtt_us'] / 1000}/{sample.get('rttvar_us', 0) / 1000}")
        words += [f"{_WORDS.get(name, name)}:{sample[name]}" for name in _WHOLE if name in sample]
        words += [form.format(sample[name] / 1000) for name, form in _MILLISECONDS.items() if name in sample]
        if "total_retrans" in sample:
            words.append(f"retrans:0/{sample['total_retrans']}")
        if "delivery_rate_Bps" in sample:
            words.append(f"delivery_rate {8 * sample['delivery_rate_Bps']}bps")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return " ".join(words)
