//! PDUs, and the SCSI commands that they belong to.

use super::declaration::table;
use super::id::Id;

/// The id of a command.
pub type CycleId = Id<Cycles>;
/// The id of an R2T and its burst.
pub type RoundId = Id<Rounds>;

table! {
    /// one iSCSI PDU whose header was read, in stream order
    Pdus PduRow "pdus" {
        /// the connection
        connection: u32;
        /// direction
        to_target: bool;
        /// frame with its first byte
        frame_first: u64;
        /// frame that completed it
        frame_last: u64 = null;
        /// capture time of frame_first
        time_first_ns: i64 [ns];
        /// capture time of frame_last, the latest of its packets; null if a later byte was never captured
        time_last_ns: i64 [ns] = null;
        /// offset of its first byte in the stream; the first byte after the SYN is 0
        stream_offset_bytes: i64 [bytes];
        /// bytes of the 48-byte basic header segment that were captured
        header_bytes: u8 [bytes] = 48;
        /// opcode without the I bit
        opcode: u8, "RFC 7143 section 11.2.1.2";
        /// I bit
        is_immediate: bool, "RFC 7143 section 11.2.1.1";
        /// F bit; Login PDUs have the T bit in its place
        is_final: bool, "RFC 7143 section 11.2.1.3";
        /// whether it is a SCSI Response or a Data-In with the S bit
        has_status: bool;
        /// whether some of its bytes are missing from the capture
        has_capture_gap: bool;
        /// logical unit, decoded like tshark's scsi.lun (the raw 64 bits for other addressing methods)
        lun: u64 = null, "RFC 7143 section 11.2.1.7";
        /// Initiator Task Tag
        initiator_task_tag: u32 = masked, "RFC 7143 section 11.2.1.8";
        /// Target Transfer Tag
        target_transfer_tag: u32 = masked;
        /// CmdSN
        cmd_sn: u32 = masked;
        /// StatSN
        stat_sn: u32 = masked;
        /// ExpStatSN
        exp_stat_sn: u32 = masked;
        /// ExpCmdSN
        exp_cmd_sn: u32 = masked;
        /// MaxCmdSN
        max_cmd_sn: u32 = masked;
        /// DataSN of Data-In and Data-Out, R2TSN of R2T
        data_sn: u32 = masked;
        /// Buffer Offset
        buffer_offset: u32 [bytes] = masked;
        /// DataSegmentLength
        data_segment_length: u32 [bytes], "RFC 7143 section 11.2.1.6";
        /// Expected Data Transfer Length of a command, Desired Data Transfer Length of an R2T
        expected_data_transfer_length: u32 [bytes] = masked;
        /// SCSI status
        status: u8 = null, "RFC 7143 section 11.4.2";
        /// 1: the header digest matches; 0: it does not; null: no digest, or not captured
        header_digest_ok: u8 = null;
        /// 1: the data digest matches; 0: it does not; null: no digest, or not captured
        data_digest_ok: u8 = null;
        /// row of its command in cycles
        cycle: u32(cycle) = null;
    }
}

table! {
    /// one SCSI command on the wire, from its SCSI Command PDU to its status, in order of issue
    Cycles CycleRow "cycles" {
        /// number, from 0
        cycle: u32(cycle);
        /// its session
        session: u32 = null;
        /// its connection
        connection: u32;
        /// logical unit, decoded like tshark's scsi.lun
        lun: u64(narrow) = null;
        /// Initiator Task Tag
        initiator_task_tag: u32;
        /// CmdSN of the command (2^32 - 1, a possible value, also stands for null)
        cmd_sn: u32 = null, "RFC 7143 section 4.2.2.1";
        /// MaxCmdSN of the status: the highest CmdSN that the target then accepted
        max_cmd_sn: u32 = null, "RFC 7143 section 4.2.2.1";
        /// SCSI operation without the length of the CDB (read, write, inquiry ...)
        operation: u8(operation) = null, "SPC-4, SBC-3, SSC-4";
        /// first byte of the CDB
        cdb_opcode: u8 = null;
        /// service action, of operation codes that have one: what a PERSISTENT RESERVE OUT, a MAINTENANCE IN ... does
        service_action: u16(sparse) = null, "SPC-4, SBC-3";
        /// PERSISTENT RESERVE OUT: TYPE of the reservation that it makes, releases or preempts
        reservation_type: u8(sparse) = null, "SPC-4";
        /// R bit
        is_read: bool, "RFC 7143 section 11.3.1";
        /// W bit
        is_write: bool, "RFC 7143 section 11.3.1";
        /// logical block address
        lba: u64(narrow) [blocks] = null;
        /// transfer length of the CDB
        block_count: u32 [blocks] = null;
        /// I/O size: the command's Expected Data Transfer Length (PDU block size)
        bytes: u32 [bytes] = null, "method 2";
        /// payload transferred: Data-In, or Data-Out and immediate data; what is repeated counts once
        data_bytes: u32 [bytes], "method 3";
        /// packet with the first byte of the command
        command_first_ns: i64 [ns], "method 3";
        /// packet that completed the command
        command_last_ns: i64 [ns] = null, "method 3";
        /// completion of the first R2T
        r2t_first_ns: i64 [ns] = null, "method 3";
        /// packet with the first byte of the first data PDU
        data_first_ns: i64 [ns] = null, "method 3";
        /// packet that completed the last data PDU
        data_last_ns: i64 [ns] = null, "method 3";
        /// packet that completed the last Data-Out without R2T
        unsolicited_last_ns: i64 [ns] = null, "method 3";
        /// first ACK that covers the last data byte
        data_acked_ns: i64 [ns] = null, "method 3";
        /// completion of the SCSI Response, or of the Data-In with the S bit
        status_ns: i64 [ns] = null, "method 3";
        /// first ACK that covers the status, where its sender retransmitted between both
        status_acked_ns: i64(sparse) [ns] = null, "method 4";
        /// when it ended, with or without a status; null while a live pass sees it in flight, and where it was not tracked
        end_ns: i64 [ns] = null, "method 3";
        /// what ended it
        ended_by: u8(ended_by) = null, "method 3";
        /// the session's next command, at queue depth 1
        next_command_ns: i64(sparse) [ns] = null, "method 3";
        /// time from command_first to end in which the line of its connection was idle: not transfer; null without table budget
        idle_ns: i64(sparse) [ns] = null, "method 4";
        /// commands of the session in flight when it was issued, itself included
        queue_depth: u32(sparse) [commands];
        /// Data-In or Data-Out PDUs with data
        data_pdu_count: u32 [PDUs];
        /// DataSegmentLength of the smallest of them
        data_pdu_bytes_min: u32 [bytes] = null;
        /// DataSegmentLength of the largest of them
        data_pdu_bytes_max: u32 [bytes] = null;
        /// packets that brought its data, immediate data included
        data_packet_count: u32 [packets], "method 3";
        /// R2Ts
        r2t_count: u32 [PDUs];
        /// data in the command PDU
        immediate_bytes: u32 [bytes];
        /// Data-Out bytes sent without R2T
        unsolicited_bytes: u32 [bytes];
        /// Data-Out bytes sent for R2Ts
        solicited_bytes: u32 [bytes];
        /// SCSI status
        status: u8 = null, "RFC 7143 section 11.4.2";
        /// iSCSI service response
        response: u8 = null, "RFC 7143 section 11.4.3";
        /// Residual Count: negative for underflow, positive for overflow
        residual_bytes: i64(sparse) [bytes], "RFC 7143 section 11.4.5";
        /// sense key
        sense_key: u8(sparse) = null, "SPC-4";
        /// additional sense code
        asc: u8(sparse) = null, "SPC-4";
        /// additional sense code qualifier
        ascq: u8(sparse) = null, "SPC-4";
        /// frame with the first byte of the command
        command_frame: u64(narrow);
        /// frame of data_first_ns
        data_first_frame: u64(narrow) = null;
        /// frame of data_last_ns
        data_last_frame: u64(narrow) = null;
        /// frame of status_ns
        status_frame: u64(narrow) = null;
        /// whether the status, to its end, and all data that it accounts for were captured
        is_complete: bool;
        /// whether the status came with the last Data-In (S bit)
        is_status_in_data: bool;
        /// whether task management ended it: its ABORT TASK, or a reset that covers it
        is_aborted: bool;
        /// whether it never got a status, and never will: something else ended it, and the capture lacks nothing of it
        is_lost: bool;
        /// whether bytes or PDUs of the command are missing from the capture
        has_capture_gap: bool;
        /// whether bytes of the command were retransmitted or arrived late
        has_retransmission: bool;
    }
}

/// Codes of `cycles.ended_by`.
pub mod ended_by {
    /// Its status. Where `status_ns` is null the capture lacks it.
    pub const STATUS: u8 = 0;
    /// Its ABORT TASK.
    pub const ABORT: u8 = 1;
    /// A reset that covers it: ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET, I_T NEXUS RESET.
    pub const RESET: u8 = 2;
    /// Its connection was closed, reset, logged out or reinstated.
    pub const CONNECTION_END: u8 = 3;
    /// Its session was logged out or reinstated.
    pub const SESSION_END: u8 = 4;
    /// Nothing that the capture shows: it was in flight with the last packet of its connection.
    pub const CAPTURE_END: u8 = 5;
    /// A Reject of its SCSI Command PDU.
    pub const REJECTED: u8 = 6;
}

table! {
    /// one R2T and the Data-Out burst sent for it
    Rounds Round "rounds" {
        /// row of its command in cycles
        cycle: u32(cycle);
        /// R2TSN
        r2t_sn: u32 = null, "RFC 7143 section 11.8.2";
        /// Target Transfer Tag
        target_transfer_tag: u32 = null;
        /// Buffer Offset
        buffer_offset: u32 [bytes] = null;
        /// bytes requested by the R2T
        desired_data_transfer_length: u32 [bytes] = null;
        /// bytes sent
        bytes: u32 [bytes];
        /// Data-Out PDUs
        data_pdu_count: u32 [PDUs];
        /// completion of the R2T
        r2t_ns: i64 [ns] = null;
        /// first byte of the burst
        data_first_ns: i64 [ns] = null;
        /// completion of the burst
        data_last_ns: i64 [ns] = null;
        /// frame of the R2T
        r2t_frame: u64 = null;
        /// frame of data_first_ns
        data_first_frame: u64 = null;
        /// frame of data_last_ns
        data_last_frame: u64 = null;
    }
}

table! {
    /// the beginning of one write's data, where it was captured: enough to tell whether two writes carry the same data
    WriteStarts WriteStart "write_starts" {
        /// row of its command in cycles
        cycle: u32(cycle);
        /// captured bytes from the start of the data, at most 64
        bytes: u8 [bytes];
        /// CRC32C of these bytes, computed like a data digest
        crc32c: u32, "method 9";
    }
}
