"""An example of each finding: the sentence of the headline for a capture that has it.

The words are held against such a capture by the tests; the numbers are those of one.
"""

from __future__ import annotations

from typing import Final

EXAMPLES: Final = {
    "path_mtu": (
        "Sessions 0 to 2: 15,928 bytes to the initiator never arrived, while smaller packets did, "
        "for 26.2 s: the path MTU is too small, or a hop drops long packets. The bytes are missing before the"
        " tap on 2 connections, and the receiver never acknowledged them. The largest segment that arrived "
        "there had 1448 bytes. Both sides announced an MSS of 1460. No ICMP message reports it."
    ),
    "task_timeout": (
        "Sessions 1 and 2: 1 READ command to LUN 0 had no answer for 14.1 s, from 12.64 s on. The initiator sent "
        "ABORT TASK at 23.72 s (no response). The initiator closed the connection at 26.77 s. It logged in again at "
        "29.81 s. I/O resumed at 29.84 s. In the meantime the target answered 2 NOP-Outs: this points to the storage "
        "behind LUN 0."
    ),
    "io_outage": (
        "Session 0 had no I/O for 3.2 s, from 1.02 s to 4.26 s: 1 READ command waited. TCP retransmitted 5 "
        "packets to the target without an ACK: the path or the target was down. I/O resumed on the same "
        "connection."
    ),
    "connection_lost": (
        "Sessions 0 and 1 lost their connection for 2.0 s, from 1.00 s to 3.00 s. The target reset the connection at "
        "1.00 s. 1 command had no status. The initiator logged in again 2.0 s later, and I/O resumed."
    ),
    "login_failed": (
        "The login of session 0 to iqn.2025-01.org.iscsitrace:memory failed at 0.00 s: authorization failure "
        "(status 0x0202). No later login succeeded in the capture."
    ),
    "portal_unreachable": (
        "10.71.0.1 cannot reach the portal 10.71.0.2:3261: 1 connect (3 SYNs) from 2.12 s to 5.16 s: no "
        "answer. SendTargets or a redirect named this portal."
    ),
    "duplicate_initiator": (
        "A second host may use the InitiatorName iqn.2025-01.org.iscsitrace:guest and ISID 00023d000001 of "
        "sessions 1 to 3: the target closed a healthy connection 2 times, took the next login at once, and "
        "had given out other TSIHs between (here: 1, 3 and 5). The capture cannot tell: it shows one host. A "
        "capture at the target shows the other one."
    ),
    "command_errors": (
        "Session 0: 951 of 1621 READ commands to LUN 0 ended in MEDIUM ERROR, "
        "unrecovered read error (3/11/00), from 1.02 s to 3.01 s, at LBA 3584 to 34015. No retry succeeded: "
        "these are I/O errors."
    ),
    "reservation_conflict": (
        "Session 1: 1 of 62 READ commands to LUN 0, at 25.06 s, ended in RESERVATION CONFLICT. Session 2 "
        "(iqn.2025-01.org.iscsitrace:other) took the reservation at 25.01 s (frame 1694)."
    ),
    "target_busy": (
        "Session 0: 646 of 1316 READ commands to LUN 0, from 1.02 s to 3.01 s, ended in BUSY. The queue depth"
        " was 1. No retry succeeded in the capture."
    ),
    "ats_miscompare": (
        "Session 0: 1 of 5 READ commands to LUN 0, at 0.05 s, at LBA 128 to 159, ended in MISCOMPARE. It was "
        "not followed by a success within 5.0 s."
    ),
    "discovery_only": (
        "Session 0 did nothing but discovery: no SendTargets was captured. The initiator logged out at 0.00 s."
    ),
    "no_io": (
        "Nothing was read or written in session 0: 1 command of a device scan (INQUIRY). The initiator logged"
        " out at 0.00 s."
    ),
    "unaligned_io": (
        "20 of 20 reads and writes of LUN 0 are unaligned: they begin or end within a physical block of 4 "
        "KiB. Its cost cannot be told: too few commands of the same size are aligned."
    ),
    "queue_depth_low": "It issues one 128 KiB read at a time (queue depth 1).",
    "block_size_small": (
        "The commands in flight take 856 µs on the line, the RTT is 8.0 ms: 32 KiB I/O is small for this "
        "path, and 99.21 % of the commands are sequential."
    ),
    "held_for_ack": "The status of 63 reads waited for the ACK of the preceding data, median 48.0 ms.",
    "r2t_rounds": (
        "A 256 KiB write needs 4 R2Ts, one after another, for bursts of 64 KiB (MaxBurstLength=65536, "
        "MaxOutstandingR2T=1)."
    ),
    "r2t_late": "16 of 16 R2Ts were late: median 20.0 ms beyond the RTT, at most 20.0 ms.",
    "unsolicited_data_unused": (
        "64 of 64 writes sent no data before the first R2T (InitialR2T=Yes, ImmediateData=No, FirstBurstLength=65536)."
    ),
    "receive_window_small": "The initiator's receive window held the target for 2.1 s; it is at most 128 KiB.",
    "receiver_stalled": "The initiator's receive window shrank to 56 bytes: it reads its socket late.",
    "restart_after_idle": "The target's TCP went back to slow start 15 times after idle periods.",
    "congestion_window_small": (
        "The sender is the target, with 205 losses, after which it reduced its window as Reno does."
    ),
    "send_buffer_small": (
        "The target was send-buffer-limited: its bytes in flight stopped at the same level, at most 128 KiB, "
        "without losses, below the receive window; the bandwidth-delay product is 299 KiB (38.3 MB/s x 8.0 "
        "ms)."
    ),
    "loss": (
        "46 losses to the initiator (48 retransmissions, 0.83 % of the packets) cost 725.6 ms; the longest recovery "
        "took 25.0 ms, with 0 retransmission timeouts."
    ),
    "ack_loss": (
        "Session 0: ACKs of the initiator were lost, and no data; the target retransmitted 2 packets that had arrived, "
        "after timers in 1 recovery, and stalled for 719.3 ms. The ACKs passed the tap: they were lost between the tap "
        "and the target. The initiator had the data before the retransmissions: it reported it as received twice "
        "(D-SACK)."
    ),
    "delayed_ack_in_recovery": (
        "The initiator held back 1 ACK while the target waited with one segment in flight, in a recovery or slow "
        "start: 40.0 ms on average, 40.0 ms in all."
    ),
    "reordering": (
        "The path reorders packets: 575 of 11,603 to the initiator arrived out of order, at most 3.0 ms late. "
        "TCP retransmitted 4 packets for nothing, and took that for a loss once."
    ),
    "line_saturated": (
        "The line is busy at its rate of 38.3 MB/s (320 Mbit/s with headers); data waited 11.7 ms in its "
        "queue (median)."
    ),
    "line_shared": (
        "The line is shared by 2 sessions (0, 1), which together fill its rate of 38.3 MB/s (320 Mbit/s with "
        "headers); data waited 25.6 ms in its queue (median)."
    ),
    "uneven_connections": (
        "Connection 0 carried 2.6 MB, connection 1 0.3 MB at the same time; 2 streams of one job, Jain's "
        "fairness index 0.63: the last finishes 967 µs after the first, and runs alone for 4 % of the job."
    ),
    "path_imbalance": (
        "100 % of the bytes of LUN 0 of iqn.2024-01.example.target:0 (13.1 MB) went over a non-optimized path"
        " while an optimized path was in service: session 0 (active/optimized) 0.0 MB; session 1 "
        "(active/non-optimized) 13.1 MB."
    ),
    "mirror_waits_for_farthest": "Sessions 0 and 1 are a mirror whose writes wait for session 1.",
    "slow_target": (
        "Every command in flight was stalled for 321.3 ms, at most 5.0 ms at a time; the median service time "
        "is 5.1 ms (64 reads)."
    ),
    "initiator_think_time": ("The initiator was idle 63 times within its I/O (no commands in flight), median 5.0 ms."),
    "slow_initiator": "The initiator answered R2Ts late: median 5.0 ms from R2T to first Data-Out (16 R2Ts).",
    "slow_operation": (
        "UNMAP takes 902.1 ms (median of 3), at most 908.6 ms; reads and writes take 8.9 ms (median). It held"
        " up no reads or writes."
    ),
    "slow_lun": (
        "LUN 1 takes 21.0 ms (median of 20), at most 21.0 ms; the other LUNs take 2.0 ms (median of 20 reads "
        "and writes)."
    ),
    "command_window_closed": (
        "1016 of 1027 commands waited for the command window to open (MaxCmdSN), with at most 8 commands in flight."
    ),
    "digest_errors": "1 data digest error in PDUs of the target.",
    "nop_timeout": "1 NOP-Out without an answer for 5.0 s.",
    "task_aborts": "The initiator aborted commands: LOGICAL UNIT RESET (1).",
    "capture_poor": (
        "17 % of the time cannot be attributed; only 98 % of the stream bytes are decoded; only 95 % of the "
        "PDUs were captured."
    ),
}
"""By the name of the problem."""
