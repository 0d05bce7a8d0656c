"""From where on a finding is one: every threshold, with its reason. It computes nothing."""

from __future__ import annotations

from typing import Final

MILLISECOND_NS: Final = 1_000_000

WORTH_A_CHANGE: Final = 0.05
"""Share of the jobs' time: what a remedy can win is at most what the disease costs, and under a twentieth two runs of
the same job differ by as much."""

WARNING: Final = 0.20
"""Share of the jobs' time from which a finding is a warning, no longer a note: a fifth is felt without measuring."""

LOSS: Final = 0.01
"""Share of the jobs' time that repairs may take: a loss also makes the congestion window smaller for long after the
repair, so it costs more than the repair itself shows."""

MIN_TASKS: Final = 8
"""Tasks that have to show a habit, of block size, R2Ts or waits: fewer are a start, or chance."""

MOST: Final = 0.5
"""Share of the tasks that have to do something for it to be said of all."""

SEQUENTIAL: Final = 0.5
"""Share of the tasks that begin where another ended, from which larger blocks can carry the same: blocks anywhere on
the disk cannot be joined."""

LARGE_BLOCK_BYTES: Final = 1 << 20
"""A PDU block that is no longer called small: Linux's own default is 1280 KiB a request (max_sectors_kb)."""

REPEATED: Final = 0.8
"""Share of the system calls that have to come out at one size for it to be inferred; the rest are ends of files."""

FULL_PIECES: Final = 0.25
"""Share of the tasks that have to have the size of a full piece: a cut call has one rest at most, so its full pieces
are half of all or more; half of that leaves room for other tasks."""

SYSTEM_CALLS: Final = 4
"""Times that the size has to come out: less repeats by chance."""

SYSTEM_CALL_MAX_BYTES: Final = 64 << 20
"""No system call of a program in its senses is longer; runs of one length that go on for so long are a stream."""

LATE_R2T_NS: Final = MILLISECOND_NS
"""What a target may take to grant, beyond the path, without being late: memory is free at once, and a scheduler's time
slice is milliseconds."""

UNEVEN: Final = 0.25
"""Share of the time that connections used together lose because one carried more than the rest: 1 - mean / most. At a
quarter, one of two carries twice what the other does; those dealt to by turn stay far below."""

TOGETHER: Final = 0.5
"""Share of the shorter one's tasks' time for which two connections have to have run at once to be used together."""

RESTARTS: Final = 4
"""Times that a sender began anew with a small window: the first ones may be the start of a job."""

NOP_TIMEOUT_NS: Final = 5_000 * MILLISECOND_NS
"""How long a ping may be without its echo: open-iscsi's default of node.conn[0].timeo.noop_out_timeout."""

COMMAND_WINDOW_TASKS: Final = 0.1
"""Share of the commands that came only once the target had opened its command window: one in ten has waited for it."""

PROMPT_NS: Final = MILLISECOND_NS
"""How long before a command its window has to have been closed for the command to have waited: a thread that is woken
by the PDU that makes room needs less."""

COVERAGE: Final = 0.98
"""Share of stream bytes, and of PDUs, that has to be explained: with more than one in fifty missing, what is missing
can be what matters (a lost PDU is a lost phase)."""

UNKNOWN: Final = 0.05
"""Share of the jobs' time without an owner that is said; as WORTH_A_CHANGE."""

MODEL: Final = 0.25
"""How far the model may be from the throughput as measured for it to say what a change would win: beyond that
something else decides."""

SHOWN_FRAMES: Final = 12
"""Frames that a finding shows: three tasks with the four frames of each."""
