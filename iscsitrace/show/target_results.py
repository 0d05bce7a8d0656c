"""Reports what a target served, as text."""

from __future__ import annotations

from iscsitrace.show.terminal import show_line

_UNUSUAL = (
    *("refused_connections", "refused_logins", "rejects", "ignored_cmd_sns", "data_digest_errors"),
    *("stray_data_outs", "wrong_data_outs", "wrong_exp_stat_sns", "faults"),
)


def show(counters: dict[str, int]) -> None:
    """Shows how much was served, and every unusual event that occurred."""
    show_line(
        f"served {counters['commands']} commands of {counters['sessions']} sessions over {counters['connections']} "
        f"connections: {counters['data_in_bytes']} bytes read, {counters['data_out_bytes']} bytes written"
    )
    for name in _UNUSUAL:
        if counters[name]:
            show_line(f"{name.replace('_', ' ')}: {counters[name]}")
