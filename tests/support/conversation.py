"""Scripted iSCSI sessions in virtual time: they are captured, and every PDU is known.

    conversation = Conversation(Path(one_way_delay_ns=4_000_000))
    session = conversation.session(Session(header_digest=True))
    session.login().read(count=20, block_bytes=65536).nop().logout()
    capture = conversation.run()

Initiator and target follow RFC 7143 as far as a capture shows it: login, reads and writes within the negotiated limits,
NOPs, logout, several connections, digests. The packets are never parsed here: the truth is what was written, and the
header layouts come from the RFC's figures, independent of the program under test.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.support.pdu import (
    BLOCK_BYTES,
    DATA_IN,
    DATA_OUT,
    LOGIN_REQUEST,
    LOGIN_RESPONSE,
    LOGOUT_REQUEST,
    LOGOUT_RESPONSE,
    NOP_IN,
    NOP_OUT,
    R2T,
    RESERVED_TAG,
    SCSI_COMMAND,
    SCSI_RESPONSE,
    Pdu,
    Task,
    crc32c,
    sectors,
)
from tests.support.scan import Said
from tests.support.transport import Clock, Endpoint, Packet, Path, connect_ends


@dataclass(frozen=True)
class Session:
    """Negotiated parameters, and the behaviour of the target."""

    connection_count: int = 1
    header_digest: bool = False
    data_digest: bool = False
    initiator_max_recv_data_segment_length: int = 262_144
    target_max_recv_data_segment_length: int = 262_144
    max_burst_length: int = 262_144
    first_burst_length: int = 65_536
    is_initial_r2t: bool = True
    is_immediate_data: bool = True
    is_status_in_data: bool = True
    """the status of a read is in its last Data-In; otherwise in a SCSI Response."""
    service_ns: int = 100_000
    status_delay_ns: int = 0
    """wait before a SCSI Response."""
    think_ns: int = 20_000
    """think time of the initiator between a status and the next command."""
    tag_count: int = 128
    """Initiator Task Tags are reused in turn, as by the kernel initiator."""
    payload: str = "sectors"
    """sectors (each has its number), zeros, random, or headers (each sector looks like iSCSI headers)."""
    first_cmd_sn: int = 1


@dataclass
class TaskRecord:
    """An executed task."""

    number: int
    session: int
    connection: int
    initiator_task_tag: int
    task: Task
    pdus: list[Pdu] = field(default_factory=list)


@dataclass(frozen=True)
class Capture:
    """All packets at the tap, and all PDUs that were sent."""

    path: Path
    packets: list[Packet]
    pdus: list[Pdu]
    tasks: list[TaskRecord]
    login_end_ns: int
    """time at the tap of the first packet after the last login."""

    def without_login(self) -> list[Packet]:
        """The packets of a capture that started after the login."""
        return [packet for packet in self.packets if packet.time_ns >= self.login_end_ns]


class Conversation:
    """One clock, one tap, and the sessions at it."""

    def __init__(self, path: Path | None = None, *, seed: int = 1, start_ns: int = 1_700_000_000_000_000_000) -> None:
        self.path = path or Path()
        self.random = random.Random(seed)  # noqa: S311 (repeatable, not secret)
        self.clock = Clock(start_ns)
        self.tap: list[Packet] = []
        self.pdus: list[Pdu] = []
        self.tasks: list[TaskRecord] = []
        self.sessions: list[Actors] = []
        self.connection_count = 0
        self.first_command_ns: int | None = None

    def session(self, settings: Session | None = None, path: Path | None = None) -> Actors:
        """Adds a session; `path` if it differs from the conversation's (tap and link type must be the same)."""
        actors = Actors(self, settings or Session(), path or self.path, len(self.sessions))
        self.sessions.append(actors)
        return actors

    def run(self) -> Capture:
        """Runs all steps."""
        for session in self.sessions:
            session.start()
        self.clock.run()
        for session in self.sessions:
            assert session.is_finished, "the conversation came to a stop"
        return Capture(self.path, self.tap, self.pdus, self.tasks, self.first_command_ns or 0)


@dataclass
class _Connection:
    number: int
    initiator: Endpoint
    target: Endpoint
    stat_sn: int = 1000
    """Of the next status that the target sends."""
    exp_stat_sn: int = 1000
    """Of the next status that reaches the initiator."""
    has_digests: bool = False
    received: dict[bool, list[tuple[int, Callable[[], None]]]] = field(default_factory=lambda: {True: [], False: []})


class Actors:
    """The initiator and the target of one session. Each step of the script ends before the next one starts."""

    def __init__(self, conversation: Conversation, settings: Session, path: Path, number: int) -> None:
        self.conversation, self.settings, self.path, self.number = conversation, settings, path, number
        self.clock = conversation.clock
        self.is_finished = False
        self._steps: list[Callable[[], None]] = []
        self._connections: list[_Connection] = []
        self._cmd_sn = settings.first_cmd_sn
        self._exp_cmd_sn = settings.first_cmd_sn
        self._tag = self._transfer_tag = 0
        self._next_connection = 0
        for _ in range(settings.connection_count):
            number = conversation.connection_count
            conversation.connection_count += 1
            rng = conversation.random
            ends = [
                Endpoint(self.clock, path, number, to_target, rng.getrandbits(32), rng.getrandbits(16), port)
                for to_target, port in ((True, 40_000 + number), (False, path.target_port))
            ]
            connect_ends(ends[0], ends[1], conversation.tap)
            connection = _Connection(number, ends[0], ends[1])
            # what the target received is what the initiator sent, and the other way round
            ends[0].on_bytes = lambda length, c=connection: self._deliver(c, False, length)  # type: ignore[misc]
            ends[1].on_bytes = lambda length, c=connection: self._deliver(c, True, length)  # type: ignore[misc]
            self._connections.append(connection)

    # --- the script

    def login(self, *, texts: dict[str, str] | None = None) -> Actors:
        """Connects and logs in all connections, one after another; `texts` are further keys offered."""
        for place in range(len(self._connections)):
            self._steps.append(lambda p=place: self._login(self._connections[p], p, texts or {}))  # type: ignore[misc]
        return self

    def tasks(self, tasks: list[Task], *, queue_depth: int = 1) -> Actors:
        """Executes tasks in order, at most `queue_depth` at once, over the connections in turn."""
        self._steps.append(lambda: self._run_tasks(list(tasks), queue_depth))
        return self

    def read(
        self, *, count: int, block_bytes: int = 65_536, queue_depth: int = 1, lba: int = 0, lun: int = 0
    ) -> Actors:
        """Sequential reads."""
        blocks = block_bytes // BLOCK_BYTES
        tasks = [Task("read", lba + place * blocks, blocks, lun) for place in range(count)]
        return self.tasks(tasks, queue_depth=queue_depth)

    def write(
        self, *, count: int, block_bytes: int = 65_536, queue_depth: int = 1, lba: int = 0, lun: int = 0
    ) -> Actors:
        """Sequential writes."""
        blocks = block_bytes // BLOCK_BYTES
        tasks = [Task("write", lba + place * blocks, blocks, lun) for place in range(count)]
        return self.tasks(tasks, queue_depth=queue_depth)

    def nop(self) -> Actors:
        """The initiator pings, the target answers."""
        self._steps.append(self._nop)
        return self

    def pause(self, pause_ns: int) -> Actors:
        """Sends nothing for this time."""
        self._steps.append(lambda: self.clock.after(pause_ns, self._step))
        return self

    def logout(self) -> Actors:
        """Logs out and closes all connections."""
        for place in range(len(self._connections)):
            self._steps.append(lambda p=place: self._logout(self._connections[p], p))  # type: ignore[misc]
        return self

    def start(self) -> None:
        """Starts the first step."""
        self.clock.at(self.clock.now_ns, self._step)

    def _step(self) -> None:
        if self._steps:
            self._steps.pop(0)()
        else:
            self.is_finished = True

    # --- PDUs into streams

    def _send(
        self,
        connection: _Connection,
        opcode: int,
        flags: int,
        rest: bytes,
        then: Callable[[], None],
        *,
        initiator_task_tag: int,
        lun: int = 0,
        data: bytes = b"",
        is_immediate: bool = False,
        task: TaskRecord | None = None,
        is_solicited: bool = False,
        fields: dict[str, int] | None = None,
    ) -> None:
        """Writes one PDU; calls `then` when the other end has it. `rest` is bytes 20 to 47 of the header."""
        to_target = opcode < 0x20
        header = bytes([opcode | 0x40 * is_immediate, flags]) + rest[:2] + struct.pack("!I", len(data))
        assert len(rest) == 30
        # a single-level LUN below 256: peripheral device addressing
        header += struct.pack("!H6x", lun) if opcode not in (LOGIN_REQUEST, LOGIN_RESPONSE) else bytes(8)
        header += struct.pack("!I", initiator_task_tag) + rest[2:]
        assert len(header) == 48
        return self._send_raw(
            connection,
            header,
            data,
            then,
            Pdu(
                connection.number,
                to_target,
                opcode,
                initiator_task_tag,
                0,
                0,
                len(data),
                self.settings.header_digest and connection.has_digests,
                self.settings.data_digest and connection.has_digests and len(data) > 0,
                bool(flags & 0x80),
                None if task is None else task.number,
                is_solicited,
                opcode == SCSI_RESPONSE or (opcode == DATA_IN and bool(flags & 1)),
                fields or {},
            ),
            task,
        )

    def _send_raw(
        self,
        connection: _Connection,
        header: bytes,
        data: bytes,
        then: Callable[[], None],
        pdu: Pdu,
        task: TaskRecord | None,
    ) -> None:
        out = header + (crc32c(header) if pdu.has_header_digest else b"")
        padded = data + bytes(-len(data) % 4)
        out += padded + (crc32c(padded) if pdu.has_data_digest else b"")
        end = connection.initiator if pdu.to_target else connection.target
        pdu = replace(pdu, stream_offset=len(end.stream), length=len(out))
        self.conversation.pdus.append(pdu)
        if task is not None:
            task.pdus.append(pdu)

        def arrived() -> None:
            if pdu.has_status or pdu.opcode in (LOGIN_RESPONSE, NOP_IN, LOGOUT_RESPONSE):
                connection.exp_stat_sn = int.from_bytes(header[24:28]) + 1
            then()

        connection.received[pdu.to_target].append((pdu.stream_offset + pdu.length, arrived))
        end.write(out, [0])

    def _deliver(self, connection: _Connection, to_target: bool, length: int) -> None:
        waiting = connection.received[to_target]
        while waiting and waiting[0][0] <= length:
            waiting.pop(0)[1]()

    def _target_numbers(self, connection: _Connection, *, is_advancing: bool) -> bytes:
        stat_sn = connection.stat_sn
        connection.stat_sn += is_advancing
        return struct.pack("!III", stat_sn, self._exp_cmd_sn % 2**32, (self._exp_cmd_sn + 127) % 2**32)

    # --- login, NOP, logout

    def _login(self, connection: _Connection, place: int, texts: dict[str, str]) -> None:
        settings = self.settings
        yes_no = {True: "Yes", False: "No"}
        shared = {
            "HeaderDigest": "CRC32C" if settings.header_digest else "None",
            "DataDigest": "CRC32C" if settings.data_digest else "None",
        }
        session_wide = {
            "InitialR2T": yes_no[settings.is_initial_r2t],
            "ImmediateData": yes_no[settings.is_immediate_data],
            "MaxBurstLength": str(settings.max_burst_length),
            "FirstBurstLength": str(settings.first_burst_length),
            "MaxOutstandingR2T": "1",
            "MaxConnections": str(settings.connection_count),
            "ErrorRecoveryLevel": "0",
        }
        if place == 0:
            shared |= session_wide
        offer = {
            "InitiatorName": f"iqn.2024-01.example.initiator:{self.number}",
            "TargetName": f"iqn.2024-01.example.target:{self.number}",
            "SessionType": "Normal",
            **shared,
            **texts,
            "MaxRecvDataSegmentLength": str(settings.initiator_max_recv_data_segment_length),
        }
        answer = {
            "TargetPortalGroupTag": "1",
            **shared,
            **{key: value for key, value in texts.items() if key in shared},
            "MaxRecvDataSegmentLength": str(settings.target_max_recv_data_segment_length),
        }
        isid = bytes([0x80, 0, 0, 1]) + self.number.to_bytes(2, "big")
        # T, current stage operational (1), next stage full feature (3)
        flags = 0x80 | 1 << 2 | 3

        def request() -> None:
            tsih = 0 if place == 0 else self.number + 1
            exp_stat_sn = connection.exp_stat_sn if place else 0
            rest = b"\0\0" + struct.pack("!HHII16x", place, 0, self._cmd_sn % 2**32, exp_stat_sn)
            self._send_login(connection, LOGIN_REQUEST, flags, isid, tsih, rest, offer, respond)

        def respond() -> None:
            rest = b"\0\0" + struct.pack("!I", 0) + self._target_numbers(connection, is_advancing=True)
            rest += bytes(12)
            self._send_login(connection, LOGIN_RESPONSE, flags, isid, self.number + 1, rest, answer, done)

        def done() -> None:
            connection.has_digests = True
            self.clock.after(settings.think_ns, self._step)

        connection.initiator.connect(request)

    def _send_login(
        self,
        connection: _Connection,
        opcode: int,
        flags: int,
        isid: bytes,
        tsih: int,
        rest: bytes,
        keys: dict[str, str],
        then: Callable[[], None],
    ) -> None:
        data = b"".join(f"{key}={value}".encode() + b"\0" for key, value in keys.items())
        header = bytes([opcode | (0x40 if opcode == LOGIN_REQUEST else 0), flags]) + rest[:2]
        header += struct.pack("!I", len(data)) + isid + struct.pack("!HI", tsih, 0) + rest[2:]
        assert len(header) == 48
        to_target = opcode == LOGIN_REQUEST
        # bit 7 is T here (RFC 7143 section 11.12.1): a login PDU has no F bit
        pdu = Pdu(connection.number, to_target, opcode, 0, 0, 0, len(data), False, False, False)
        self._send_raw(connection, header, data, then, pdu, None)

    def _nop(self) -> None:
        connection = self._connections[0]
        tag = self._take_tag()
        cmd_sn = self._take_cmd_sn()

        def echo() -> None:
            self._exp_cmd_sn = max(self._exp_cmd_sn, cmd_sn + 1)
            rest = b"\0\0" + struct.pack("!I", RESERVED_TAG) + self._target_numbers(connection, is_advancing=True)
            self._send(connection, NOP_IN, 0x80, rest + bytes(12), self._step, initiator_task_tag=tag, data=b"ping")

        rest = b"\0\0" + struct.pack("!III16x", RESERVED_TAG, cmd_sn % 2**32, connection.exp_stat_sn)
        self._send(connection, NOP_OUT, 0x80, rest, echo, initiator_task_tag=tag, data=b"ping")

    def _logout(self, connection: _Connection, place: int) -> None:
        tag = self._take_tag()
        # reason 1: close this connection; 0, for the last: close the session
        reason = 0 if place == len(self._connections) - 1 else 1
        cmd_sn = self._take_cmd_sn()

        def respond() -> None:
            self._exp_cmd_sn = max(self._exp_cmd_sn, cmd_sn + 1)
            rest = (
                b"\0\0"
                + bytes(4)
                + self._target_numbers(connection, is_advancing=True)
                + struct.pack("!IHHI", 0, 2, 0, 0)
            )
            self._send(connection, LOGOUT_RESPONSE, 0x80, rest, close, initiator_task_tag=tag)

        def close() -> None:
            connection.initiator.close()
            self.clock.after(self.settings.think_ns, self._step)

        rest = b"\0\0" + struct.pack("!HHII16x", place, 0, cmd_sn % 2**32, connection.exp_stat_sn)
        self._send(connection, LOGOUT_REQUEST, 0x80 | reason, rest, respond, initiator_task_tag=tag)

    # --- SCSI tasks

    def _run_tasks(self, tasks: list[Task], queue_depth: int) -> None:
        outstanding = 0

        def issue() -> None:
            nonlocal outstanding
            while tasks and outstanding < queue_depth:
                outstanding += 1
                self._command(tasks.pop(0), end)

        def end() -> None:
            nonlocal outstanding
            outstanding -= 1
            # the step ends once: when the last of its tasks does
            self.clock.after(self.settings.think_ns, issue if tasks or outstanding else self._step)

        issue()

    def _command(self, task: Task, end: Callable[[], None]) -> None:
        settings, conversation = self.settings, self.conversation
        if conversation.first_command_ns is None:
            # the command's packet passes the tap after this instant, all that came before it already has
            conversation.first_command_ns = self.clock.now_ns + 1
        connection = self._connections[self._next_connection % len(self._connections)]
        self._next_connection += 1
        tag = self._take_tag()
        record = TaskRecord(len(conversation.tasks), self.number, connection.number, tag, task)
        conversation.tasks.append(record)
        expected = task.expected_data_transfer_length
        immediate = unsolicited_end = 0
        if task.is_write:
            first_burst = min(expected, settings.first_burst_length)
            if settings.is_immediate_data:
                immediate = min(first_burst, settings.target_max_recv_data_segment_length)
            unsolicited_end = immediate if settings.is_initial_r2t else first_burst
        has_unsolicited = unsolicited_end > immediate
        flags = 0x80 * (not has_unsolicited) | 0x40 * task.is_read | 0x20 * task.is_write | 1
        cmd_sn = self._take_cmd_sn()
        rest = b"\0\0" + struct.pack("!III", expected, cmd_sn % 2**32, connection.exp_stat_sn) + task.cdb
        data = self._payload(task, 0, immediate)

        def received() -> None:
            self._exp_cmd_sn = max(self._exp_cmd_sn, cmd_sn + 1)
            if not task.is_write:
                service_ns = settings.service_ns if task.service_ns is None else task.service_ns
                self.clock.after(service_ns, lambda: self._answer_read(connection, record, end))
            elif not has_unsolicited:
                self.clock.after(settings.service_ns, lambda: self._want_data(connection, record, immediate, 0, end))

        self._send(
            connection,
            SCSI_COMMAND,
            flags,
            rest,
            received,
            initiator_task_tag=tag,
            lun=task.lun,
            data=data,
            task=record,
            fields={"cmd_sn": cmd_sn % 2**32, "expected_data_transfer_length": expected, "lun": task.lun},
        )
        if has_unsolicited:

            def all_received() -> None:
                self.clock.after(
                    settings.service_ns, lambda: self._want_data(connection, record, unsolicited_end, 0, end)
                )

            self._send_data_out(connection, record, immediate, unsolicited_end, RESERVED_TAG, all_received)

    def _answer_read(self, connection: _Connection, record: TaskRecord, end: Callable[[], None]) -> None:
        settings, task = self.settings, record.task
        expected = task.expected_data_transfer_length if task.status == 0 else 0
        has_status_in_data = settings.is_status_in_data and expected > 0
        offset = data_sn = 0
        while offset < expected:
            burst_end = min(expected, (offset // settings.max_burst_length + 1) * settings.max_burst_length)
            following = min(burst_end, offset + settings.initiator_max_recv_data_segment_length)
            is_last = following == expected
            has_status = is_last and has_status_in_data
            rest = bytes([0, task.status if has_status else 0]) + struct.pack("!I", RESERVED_TAG)
            # StatSN means nothing without a status; ExpCmdSN and MaxCmdSN always do
            numbers = self._target_numbers(connection, is_advancing=has_status)
            rest += (numbers if has_status else bytes(4) + numbers[4:]) + struct.pack("!III", data_sn, offset, 0)
            self._send(
                connection,
                DATA_IN,
                0x80 * (following == burst_end) | has_status,
                rest,
                end if has_status else _nothing,
                initiator_task_tag=record.initiator_task_tag,
                data=self._payload(task, offset, following),
                task=record,
                fields={"data_sn": data_sn, "buffer_offset": offset},
            )
            offset, data_sn = following, data_sn + 1
        if not has_status_in_data:
            self.clock.after(settings.status_delay_ns, lambda: self._respond(connection, record, data_sn, end))

    def _want_data(
        self, connection: _Connection, record: TaskRecord, offset: int, r2t_sn: int, end: Callable[[], None]
    ) -> None:
        settings, task = self.settings, record.task
        expected = task.expected_data_transfer_length
        if offset == expected:
            self.clock.after(settings.status_delay_ns, lambda: self._respond(connection, record, r2t_sn, end))
            return
        burst_end = min(expected, offset + settings.max_burst_length)
        self._transfer_tag += 1
        transfer_tag = self._transfer_tag

        def granted() -> None:
            self._send_data_out(connection, record, offset, burst_end, transfer_tag, burst_received)

        def burst_received() -> None:
            self.clock.after(
                settings.service_ns, lambda: self._want_data(connection, record, burst_end, r2t_sn + 1, end)
            )

        rest = b"\0\0" + struct.pack("!I", transfer_tag) + self._target_numbers(connection, is_advancing=False)
        rest += struct.pack("!III", r2t_sn, offset, burst_end - offset)
        self._send(
            connection,
            R2T,
            0x80,
            rest,
            granted,
            initiator_task_tag=record.initiator_task_tag,
            lun=task.lun,
            task=record,
            fields={
                "target_transfer_tag": transfer_tag,
                "data_sn": r2t_sn,
                "buffer_offset": offset,
                "expected_data_transfer_length": burst_end - offset,
                "lun": task.lun,
            },
        )

    def _send_data_out(
        self,
        connection: _Connection,
        record: TaskRecord,
        offset: int,
        burst_end: int,
        transfer_tag: int,
        all_received: Callable[[], None],
    ) -> None:
        data_sn = 0
        while offset < burst_end:
            following = min(burst_end, offset + self.settings.target_max_recv_data_segment_length)
            rest = b"\0\0" + struct.pack("!IIIIIII", transfer_tag, 0, connection.exp_stat_sn, 0, data_sn, offset, 0)
            self._send(
                connection,
                DATA_OUT,
                0x80 * (following == burst_end),
                rest,
                all_received if following == burst_end else _nothing,
                initiator_task_tag=record.initiator_task_tag,
                lun=record.task.lun,
                data=self._payload(record.task, offset, following),
                task=record,
                is_solicited=transfer_tag != RESERVED_TAG,
                fields={"target_transfer_tag": transfer_tag, "data_sn": data_sn, "buffer_offset": offset},
            )
            offset, data_sn = following, data_sn + 1

    def _respond(self, connection: _Connection, record: TaskRecord, exp_data_sn: int, end: Callable[[], None]) -> None:
        task = record.task
        data = b""
        if task.status == 2:
            # fixed format sense data: ILLEGAL REQUEST, LOGICAL BLOCK ADDRESS OUT OF RANGE
            sense = bytes([0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0])
            data = struct.pack("!H", len(sense)) + sense
        residual = task.expected_data_transfer_length if task.status else 0
        flags = 0x80 | 0x02 * (residual > 0)
        rest = bytes([0, task.status]) + bytes(4) + self._target_numbers(connection, is_advancing=True)
        rest += struct.pack("!III", exp_data_sn, 0, residual)
        self._send(
            connection,
            SCSI_RESPONSE,
            flags,
            rest,
            end,
            initiator_task_tag=record.initiator_task_tag,
            data=data,
            task=record,
        )

    # --- numbers and data

    def _take_tag(self) -> int:
        self._tag += 1
        return self._tag % self.settings.tag_count

    def _take_cmd_sn(self) -> int:
        # counted without end here; the wire has 32 bits of it
        self._cmd_sn += 1
        return self._cmd_sn - 1

    def _payload(self, task: Task, start: int, end: int) -> bytes:
        if isinstance(task, Said):
            return task.answer[start:end]
        if task.operation not in ("read", "write"):
            return bytes(end - start)
        return sectors(self.settings.payload, task.lun, task.lba, task.block_count)[start:end]


def _nothing() -> None:
    pass
