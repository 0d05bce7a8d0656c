"""System calls that a kernel splits into commands, and the command window that bounds how many are in flight.

```text
  call  |== command ==|== command ==|= rest =|     how many at once: MaxCmdSN (RFC 7143, section 4.2.2.1)
```
"""

from __future__ import annotations

from dataclasses import replace

from iscsitrace.errors import InputInvalid
from iscsitrace.model.setting import Setting


def in_commands(setting: Setting, call_bytes: int | None, command_window: int | None) -> Setting:
    """The setting of system calls of ``call_bytes``, split into commands of its block size, with at most
    ``command_window`` commands of the session in flight; None for either: no calls, no limit.

    The queue depth of ``setting`` counts calls. InputInvalid for reads with held statuses of which a part is in flight:
    which of them find data to ride with depends on when each command is sent.
    """
    calls = setting.queue_depth * setting.connections
    return of_session(replace(setting, queue_depth=calls), call_bytes, command_window)


def of_session(setting: Setting, call_bytes: int | None, command_window: int | None) -> Setting:
    """The same where the queue depth of ``setting`` counts the calls of all its connections together.

    Commands in flight are spread evenly over the connections: the nearest whole number on each, and none on
    connections beyond the commands.
    """
    calls = setting.queue_depth
    commands = 1 if call_bytes is None else -(-call_bytes // setting.block_bytes)
    in_flight = min(calls * commands, command_window or calls * commands)
    if call_bytes is None or commands == 1:
        block = setting.block_bytes if call_bytes is None else call_bytes
        return replace(setting, block_bytes=block, queue_depth=in_flight).dealt()
    is_read = setting.operation == "read"
    data_pdu = setting.data_pdu_bytes and min(setting.data_pdu_bytes, setting.block_bytes)
    if is_read and in_flight == calls * commands:
        # the commands of a call are sent together, and their data arrive as one block in parts
        part = min(setting.block_bytes, setting.part_bytes or setting.block_bytes)
        whole = replace(setting, block_bytes=call_bytes, queue_depth=calls, part_bytes=part, data_pdu_bytes=data_pdu)
        return whole.dealt()
    if is_read and setting.is_status_held and in_flight > 1:
        raise InputInvalid(
            f"a command window of {in_flight} of {calls * commands} commands is not covered where statuses are held"
        )
    return replace(
        setting,
        # of commands of unequal sizes the mean
        block_bytes=call_bytes // commands,
        queue_depth=in_flight,
        # the commands of several calls overlap, so that none waits for the end of a call
        call_bytes=call_bytes if calls == 1 else None,
        data_pdu_bytes=data_pdu,
    ).dealt()
