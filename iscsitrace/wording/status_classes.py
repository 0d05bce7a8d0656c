"""Classes of SCSI status: what a storage engineer calls the end of a command, how severe it is, and what to do.

The class of a status is found in command_status.py. Severities are those of findings: info, warning, error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INFO, WARNING, ERROR = "info", "warning", "error"
SEVERITIES: Final = (INFO, WARNING, ERROR)
"""The least severe first."""


@dataclass(frozen=True)
class StatusClass:
    """One class: its name in tables and JSON, words, severity and advice."""

    name: str
    label: str
    """In a sentence."""
    meaning: str
    severity: str
    """Of a command that reads or writes the medium."""
    severity_of_others: str
    """Of all other commands: many only probe what the target supports."""
    advice: tuple[str, ...]
    """First for any system, then for those that have a setting, command or message for it."""
    points_to: str | None = "the target or its storage"
    """Whose side it points to; None where the status cannot tell."""


UNIT_ATTENTION: Final = StatusClass(
    "unit_attention",
    "unit attention",
    "The target reports an event, such as a reset or a new capacity, once to each initiator instead of running the "
    "command.",
    INFO,
    INFO,
    (
        "No action: the initiator retries the command. After a login, a reset or a resize it is expected.",
        "After a change of capacity or LUNs, rescan. Linux: iscsiadm -m session --rescan, multipathd resize map NAME. "
        "ESXi: esxcli storage core adapter rescan --all. Windows: Update-HostStorageCache.",
    ),
)
UNSUPPORTED: Final = StatusClass(
    "unsupported",
    "unsupported command",
    "The target does not support this command or one of its fields.",
    ERROR,
    INFO,
    (
        "No action for optional commands: initiators send them to learn what the target supports. For reads and "
        "writes, compare the transfer length and flags (FUA, DPO, protection) with the target's block limits.",
        "Linux stops using WRITE SAME and UNMAP after the first refusal: see write_zeroes_max_bytes and "
        "discard_max_bytes in /sys/block/DEVICE/queue. ESXi: esxcli storage core device vaai status get.",
    ),
    "the initiator, which sent what the target does not support",
)
NO_SUCH_LUN: Final = StatusClass(
    "no_such_lun",
    "no such LUN",
    "The target has no logical unit at this LUN for this initiator.",
    ERROR,
    WARNING,
    (
        "Check on the target that the LUN exists and is mapped to this initiator's IQN; remove stale devices on the "
        "initiator.",
        "LIO: targetcli ls /iscsi, mapped LUNs of the ACL. tgt: tgtadm --lld iscsi --mode target --op show.",
        "Linux: echo 1 > /sys/block/DEVICE/device/delete removes a stale device. ESXi treats it as permanent device "
        "loss (PDL).",
    ),
    "the target, which has no such LUN for this initiator",
)
MEDIUM_ERROR: Final = StatusClass(
    "medium_error",
    "medium error",
    "The target could not read or write these blocks.",
    ERROR,
    ERROR,
    (
        "Check the target's disks and RAID (its kernel log, smartctl -a), and restore the blocks from a mirror or "
        "backup.",
        "multipath tries no other path: the error is of the medium. tgt answers 3/11/00 for any I/O error of its "
        "backing store, also of a write. Windows: event 7, source disk.",
    ),
)
HARDWARE_ERROR: Final = StatusClass(
    "hardware_error",
    "hardware error",
    "The target reports a failure of its hardware, or expects one.",
    ERROR,
    ERROR,
    (
        "Check the target's controllers, disks, temperature and firmware in its log.",
        "multipath tries no other path. ESXi treats 4/3E/01, 4/3E/03 and 4/4C/00 as permanent device loss (PDL). "
        "Windows: event 11, source disk.",
    ),
)
NOT_READY: Final = StatusClass(
    "not_ready",
    "not ready",
    "The logical unit cannot run commands now.",
    ERROR,
    WARNING,
    (
        "Check the backing device and the state of the logical unit on the target. Initiators retry while it becomes "
        "ready.",
        "LIO answers 2/08/00, communication failure, for any I/O error of its backing device: read dmesg of the "
        "target.",
    ),
)
WRITE_PROTECTED: Final = StatusClass(
    "write_protected",
    "write-protected",
    "The logical unit is write-protected.",
    ERROR,
    WARNING,
    (
        "Make the LUN writable on the target, then log in again or rescan; blockdev --getro DEVICE shows what Linux "
        "uses.",
        "LIO: write_protect of the mapped LUN in the ACL; without ACLs, targetcli /iscsi/IQN/tpg1 set attribute "
        "demo_mode_write_protect=0. tgt: tgtadm --mode logicalunit --op update --params readonly=0.",
    ),
    "the settings of the target",
)
SPACE_FULL: Final = StatusClass(
    "space_full",
    "out of space",
    "The target's thin-provisioned pool is full, or reached its threshold.",
    ERROR,
    ERROR,
    (
        "Extend the pool on the target (LVM: lvs -o +data_percent, lvextend), or free space with fstrim. At the "
        "threshold (38/07), extend it before it is full.",
        "LIO: targetcli shows the backing device, lvs its pool. multipath: no_path_retry does not help, the paths are "
        "healthy. ESXi pauses the virtual machine until there is space.",
    ),
)
ALUA: Final = StatusClass(
    "alua",
    "path not active (ALUA)",
    "The target port group of this path is in standby, unavailable or changing its asymmetric access state.",
    WARNING,
    INFO,
    (
        "Let the initiator use the active paths, and find out why the target changed the state.",
        'multipath: detect_prio yes or prio alua, path_grouping_policy group_by_prio, hardware_handler "1 alua". ESXi: '
        "SATP VMW_SATP_ALUA (esxcli storage nmp device list). Windows: mpclaim -s -d.",
        "LIO: alua_access_state of the group in targetcli /backstores/TYPE/NAME/alua.",
    ),
)
ABORTED: Final = StatusClass(
    "aborted",
    "aborted by the target",
    "The target aborted the command, by itself or for another initiator's reset.",
    WARNING,
    WARNING,
    (
        "Initiators retry the command. If there are many, read the target's log at that time and look for resets from "
        "other initiators.",
    ),
    None,
)
MISCOMPARE: Final = StatusClass(
    "miscompare",
    "miscompare",
    "COMPARE AND WRITE or VERIFY found other data than expected.",
    WARNING,
    WARNING,
    (
        "For COMPARE AND WRITE another host changed the block first: a few are normal where hosts share a datastore. "
        "For VERIFY compare the data on the target.",
        "ESXi: 'ATS Miscompare detected' in vmkernel.log; heartbeats can go without ATS: esxcli system settings "
        "advanced set -i 0 -o /VMFS3/UseATSForHBOnVMFS5.",
    ),
    "another initiator",
)
RESERVATION_CONFLICT: Final = StatusClass(
    "reservation_conflict",
    "reservation conflict",
    "Another initiator holds a reservation of the logical unit.",
    ERROR,
    WARNING,
    (
        "Find the holder, and release its reservation only if it no longer uses the LUN. Initiators do not retry.",
        "Linux: sg_persist --in --read-reservation DEVICE and --read-keys. multipath: reservation_key in "
        "multipath.conf, mpathpersist; fence_scsi and fence_mpath reserve on purpose.",
        "ESXi: vmkfstools -L lunreset /vmfs/devices/disks/DEVICE. Windows: Clear-ClusterDiskReservation.",
    ),
    "another initiator, or the cluster software",
)
BUSY: Final = StatusClass(
    "busy",
    "target busy",
    "The target cannot accept the command now.",
    WARNING,
    WARNING,
    (
        "Check the target's load, and lower the queue depth. Initiators retry after a pause.",
        "open-iscsi: node.session.queue_depth, node.session.cmds_max. ESXi: esxcli storage core device set "
        "--sched-num-req-outstanding.",
    ),
    "the target",
)
TASK_SET_FULL: Final = StatusClass(
    "task_set_full",
    "task set full",
    "The target's queue for this logical unit is full.",
    WARNING,
    WARNING,
    (
        "Lower the queue depth of the initiators together to what the target accepts.",
        "Linux lowers /sys/block/DEVICE/device/queue_depth by itself; the start is node.session.queue_depth. ESXi: "
        "esxcli storage core device set --queue-full-sample-size and --queue-full-threshold.",
    ),
    "the queue of the target, or too many commands in flight",
)
OUT_OF_RANGE: Final = StatusClass(
    "out_of_range",
    "LBA out of range",
    "The command addresses blocks beyond the end of the logical unit.",
    ERROR,
    WARNING,
    (
        "Compare the LUN's size on the target with blockdev --getsize64 DEVICE: it shrank, or the initiator's capacity "
        "is old.",
        "Linux: echo 1 > /sys/block/DEVICE/device/rescan, multipathd resize map NAME. Windows: "
        "Update-HostStorageCache.",
    ),
    "the initiator, or a logical unit that changed its size",
)
PROTECTION: Final = StatusClass(
    "protection",
    "protection information error",
    "Guard, application tag or reference tag (T10 DIF) does not match the block: the data changed on its way.",
    ERROR,
    ERROR,
    (
        "Find what changes the data: compare initiator, target and disk. multipath tries no other path.",
        "Linux: /sys/block/DEVICE/integrity. LIO: pi_prot_type and pi_prot_verify of the backstore.",
    ),
    None,
)
RECOVERED: Final = StatusClass(
    "recovered",
    "recovered",
    "The command succeeded; the target adds information, mostly on an error that it corrected.",
    INFO,
    INFO,
    ("No action for single ones. Many from one logical unit announce a failing disk: smartctl -a on the target.",),
)
OTHER: Final = StatusClass(
    "other",
    "command failed",
    "The status and sense data belong to no other class.",
    ERROR,
    WARNING,
    ("Read the target's log at that time.",),
)

STATUS_CLASSES: Final = (
    UNIT_ATTENTION, UNSUPPORTED, NO_SUCH_LUN, MEDIUM_ERROR, HARDWARE_ERROR, NOT_READY, WRITE_PROTECTED, SPACE_FULL,
    ALUA, ABORTED, MISCOMPARE, RESERVATION_CONFLICT, BUSY, TASK_SET_FULL, OUT_OF_RANGE, PROTECTION, RECOVERED, OTHER,
)  # fmt: skip
"""All classes of a status other than GOOD."""
