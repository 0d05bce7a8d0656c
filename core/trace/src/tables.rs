//! The tables of a pass, one struct of column vectors each. `iscsitrace/tables/schema/` documents every column, and a
//! test compares the two.
//!
//! A null is the largest value of an unsigned type, the smallest of a signed type, and "" for text. Nothing is computed
//! here.

/// Null in an `i64` column.
pub const NULL_NS: i64 = i64::MIN;
/// Null in a `u8` column.
pub const NULL_U8: u8 = u8::MAX;
/// Null in a `u16` column.
pub const NULL_U16: u16 = u16::MAX;
/// Null in a `u32` column.
pub const NULL_U32: u32 = u32::MAX;
/// Null in a `u64` column.
pub const NULL_U64: u64 = u64::MAX;

/// One column, moved out of a table.
#[derive(Debug)]
pub enum Column {
    /// Truth values.
    Bool(Vec<bool>),
    /// Codes and small numbers.
    U8(Vec<u8>),
    /// Ports, tags of 16 bits.
    U16(Vec<u16>),
    /// Numbers, tags, lengths.
    U32(Vec<u32>),
    /// Frames, byte counts.
    U64(Vec<u64>),
    /// Instants and stream offsets.
    I64(Vec<i64>),
    /// Names.
    Text(Vec<String>),
}

macro_rules! column_from {
    ($($variant:ident $type:ty),*) => { $(
        impl From<Vec<$type>> for Column {
            fn from(values: Vec<$type>) -> Self {
                Self::$variant(values)
            }
        }
    )* };
}
column_from!(Bool bool, U8 u8, U16 u16, U32 u32, U64 u64, I64 i64, Text String);

/// A table whose columns can be moved out by name.
pub trait Columns {
    /// Its name in the schema.
    const NAME: &'static str;
    /// Rows.
    fn row_count(&self) -> usize;
    /// Every column in order; the table is empty afterwards.
    fn take_columns(&mut self) -> Vec<(&'static str, Column)>;
}

macro_rules! table {
    ($(#[$doc:meta])* $table:ident $row:ident $name:literal { $($column:ident: $type:ty = $null:expr,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default, Clone)]
        #[allow(missing_docs)]
        pub struct $table { $(pub $column: Vec<$type>,)* }

        #[doc = concat!("One row of `", $name, "`; the default is all null, zero or false.")]
        #[derive(Debug, Clone)]
        #[allow(missing_docs)]
        pub struct $row { $(pub $column: $type,)* }

        impl Default for $row {
            fn default() -> Self {
                Self { $($column: $null,)* }
            }
        }

        impl $table {
            /// Appends the rows of `other`, and leaves it empty. The longer table keeps its memory: one connection can
            /// hold most rows of a pass.
            pub fn append(&mut self, other: &mut Self) {
                if self.row_count() < other.row_count() {
                    std::mem::swap(self, other);
                    $(self.$column.splice(0..0, other.$column.drain(..));)*
                } else {
                    $(self.$column.append(&mut other.$column);)*
                }
            }

            /// Appends copies of these rows of another table; missing rows are skipped.
            pub fn copy_rows(&mut self, other: &Self, rows: &[usize]) {
                $(self.$column.extend(rows.iter().filter_map(|&row| other.$column.get(row).cloned()));)*
            }

            /// Keeps the rows whose flag is set.
            pub fn retain(&mut self, is_kept: &[bool]) {
                $({
                    let mut places = is_kept.iter();
                    self.$column.retain(|_| places.next().copied().unwrap_or(true));
                })*
            }

            /// Removes the first rows.
            pub fn drop_first(&mut self, count: usize) {
                $(self.$column.drain(..count.min(self.$column.len()));)*
            }

            /// Appends a row and returns its number.
            #[inline]
            pub fn push(&mut self, row: $row) -> usize {
                let number = self.row_count();
                $(self.$column.push(row.$column);)*
                number
            }
        }

        impl Columns for $table {
            const NAME: &'static str = $name;

            #[inline]
            fn row_count(&self) -> usize {
                let columns = [$(self.$column.len(),)*];
                columns[0]
            }

            fn take_columns(&mut self) -> Vec<(&'static str, Column)> {
                vec![$((stringify!($column), Column::from(std::mem::take(&mut self.$column))),)*]
            }
        }
    };
}

table! {
    /// One TCP connection a row.
    Connections Connection "connections" {
        connection: u32 = 0, session: u32 = NULL_U32, cid: u16 = NULL_U16, is_iscsi: bool = false,
        initiator_address: String = String::new(), initiator_port: u16 = 0,
        target_address: String = String::new(), target_port: u16 = 0, roles_from: u8 = NULL_U8,
        frame_first: u64 = 0, frame_last: u64 = 0, time_first_ns: i64 = 0, time_last_ns: i64 = 0,
        has_syn: bool = false, has_fin: bool = false, has_rst: bool = false,
        is_sack_permitted: bool = false, has_timestamps: bool = false,
        handshake_rtt_to_target_ns: i64 = NULL_NS, handshake_rtt_to_initiator_ns: i64 = NULL_NS,
        rtt_to_target_min_ns: i64 = NULL_NS, rtt_to_initiator_min_ns: i64 = NULL_NS,
        header_digest: u8 = NULL_U8, data_digest: u8 = NULL_U8, digest_source: u8 = NULL_U8,
        packets_to_target: u64 = 0, stream_bytes_to_target: u64 = 0, captured_bytes_to_target: u64 = 0,
        gap_bytes_to_target: u64 = 0, cut_bytes_to_target: u64 = 0, explained_bytes_to_target: u64 = 0,
        pdu_count_to_target: u64 = 0, missing_pdu_count_to_target: u64 = 0,
        retransmitted_packets_to_target: u64 = 0, retransmitted_bytes_to_target: u64 = 0,
        reordered_packets_to_target: u64 = 0, copied_packets_to_target: u64 = 0,
        mss_bytes_to_target: u16 = NULL_U16, window_scale_to_target: u8 = NULL_U8,
        packets_to_initiator: u64 = 0, stream_bytes_to_initiator: u64 = 0, captured_bytes_to_initiator: u64 = 0,
        gap_bytes_to_initiator: u64 = 0, cut_bytes_to_initiator: u64 = 0, explained_bytes_to_initiator: u64 = 0,
        pdu_count_to_initiator: u64 = 0, missing_pdu_count_to_initiator: u64 = 0,
        retransmitted_packets_to_initiator: u64 = 0, retransmitted_bytes_to_initiator: u64 = 0,
        reordered_packets_to_initiator: u64 = 0, copied_packets_to_initiator: u64 = 0,
        mss_bytes_to_initiator: u16 = NULL_U16, window_scale_to_initiator: u8 = NULL_U8,
    }
}

table! {
    /// One iSCSI session a row.
    Sessions Session "sessions" {
        session: u32 = 0, session_type: u8 = 2,
        initiator_name: String = String::new(), initiator_alias: String = String::new(),
        target_name: String = String::new(), target_alias: String = String::new(),
        isid: String = String::new(), tsih: u16 = NULL_U16, target_portal_group_tag: u32 = NULL_U32,
        auth_method: String = String::new(), connection_count: u32 = 0, is_login_captured: bool = false,
        login_status: u16 = NULL_U16, end: u8 = 5, time_first_ns: i64 = NULL_NS, time_last_ns: i64 = NULL_NS,
        cycle_count: u64 = 0, read_bytes: u64 = 0, write_bytes: u64 = 0, queue_depth_max: u32 = 0,
    }
}

table! {
    /// One login key of one connection a row.
    Parameters Parameter "parameters" {
        connection: u32 = 0, session: u32 = NULL_U32, key: String = String::new(),
        initiator_value: String = String::new(), target_value: String = String::new(),
        effective_initiator: String = String::new(), effective_target: String = String::new(), source: u8 = NULL_U8,
    }
}

table! {
    /// One PDU a row.
    Pdus PduRow "pdus" {
        connection: u32 = 0, to_target: bool = false, frame_first: u64 = 0, frame_last: u64 = NULL_U64,
        time_first_ns: i64 = 0, time_last_ns: i64 = NULL_NS, stream_offset_bytes: i64 = 0, header_bytes: u8 = 48,
        opcode: u8 = 0, is_immediate: bool = false, is_final: bool = false, has_status: bool = false,
        has_capture_gap: bool = false, lun: u64 = NULL_U64, initiator_task_tag: u32 = 0,
        target_transfer_tag: u32 = 0, cmd_sn: u32 = 0, stat_sn: u32 = 0, exp_stat_sn: u32 = 0, exp_cmd_sn: u32 = 0,
        max_cmd_sn: u32 = 0, data_sn: u32 = 0, buffer_offset: u32 = 0, data_segment_length: u32 = 0,
        expected_data_transfer_length: u32 = 0, status: u8 = NULL_U8, header_digest_ok: u8 = NULL_U8,
        data_digest_ok: u8 = NULL_U8, cycle: u32 = NULL_U32,
    }
}

table! {
    /// One SCSI command a row.
    Cycles CycleRow "cycles" {
        cycle: u32 = 0, session: u32 = NULL_U32, connection: u32 = 0, lun: u64 = NULL_U64,
        initiator_task_tag: u32 = 0, cmd_sn: u32 = NULL_U32, max_cmd_sn: u32 = NULL_U32, operation: u8 = NULL_U8,
        cdb_opcode: u8 = NULL_U8, is_read: bool = false, is_write: bool = false, lba: u64 = NULL_U64, block_count: u32 = NULL_U32, bytes: u32 = NULL_U32,
        data_bytes: u32 = 0, command_first_ns: i64 = 0, command_last_ns: i64 = NULL_NS,
        r2t_first_ns: i64 = NULL_NS, data_first_ns: i64 = NULL_NS, data_last_ns: i64 = NULL_NS,
        data_acked_ns: i64 = NULL_NS, status_ns: i64 = NULL_NS, next_command_ns: i64 = NULL_NS, queue_depth: u32 = 0,
        data_pdu_count: u32 = 0, data_pdu_bytes_min: u32 = NULL_U32, data_pdu_bytes_max: u32 = NULL_U32,
        r2t_count: u32 = 0, immediate_bytes: u32 = 0, unsolicited_bytes: u32 = 0, solicited_bytes: u32 = 0,
        status: u8 = NULL_U8, response: u8 = NULL_U8, residual_bytes: i64 = 0, sense_key: u8 = NULL_U8,
        asc: u8 = NULL_U8, ascq: u8 = NULL_U8, command_frame: u64 = 0, data_first_frame: u64 = NULL_U64,
        data_last_frame: u64 = NULL_U64, status_frame: u64 = NULL_U64, is_complete: bool = false,
        is_status_in_data: bool = false, is_aborted: bool = false, has_capture_gap: bool = false,
        has_retransmission: bool = false,
    }
}

table! {
    /// One R2T and its burst a row.
    Rounds Round "rounds" {
        cycle: u32 = 0, r2t_sn: u32 = 0, target_transfer_tag: u32 = 0, buffer_offset: u32 = 0,
        desired_data_transfer_length: u32 = 0, bytes: u32 = 0, data_pdu_count: u32 = 0, r2t_ns: i64 = NULL_NS,
        data_first_ns: i64 = NULL_NS, data_last_ns: i64 = NULL_NS, r2t_frame: u64 = NULL_U64,
        data_first_frame: u64 = NULL_U64, data_last_frame: u64 = NULL_U64,
    }
}

table! {
    /// One Login Request and its response a row.
    Logins Login "logins" {
        connection: u32 = 0, request_ns: i64 = NULL_NS, response_ns: i64 = NULL_NS, request_frame: u64 = NULL_U64,
        response_frame: u64 = NULL_U64, current_stage: u8 = NULL_U8, next_stage: u8 = NULL_U8,
        is_transit: bool = false, status_class: u8 = NULL_U8, status_detail: u8 = NULL_U8,
        status_text: String = String::new(),
    }
}

table! {
    /// One Task Management Function Request and its response a row.
    TaskManagements TaskManagement "task_management" {
        connection: u32 = 0, request_ns: i64 = NULL_NS, response_ns: i64 = NULL_NS, request_frame: u64 = NULL_U64,
        response_frame: u64 = NULL_U64, function: u8 = 0, function_text: String = String::new(),
        initiator_task_tag: u32 = 0, referenced_task_tag: u32 = 0, referenced_cycle: u32 = NULL_U32,
        lun: u64 = NULL_U64, response: u8 = NULL_U8,
    }
}

table! {
    /// One NOP-Out or NOP-In and its answer a row.
    Nops Nop "nops" {
        connection: u32 = 0, request_ns: i64 = NULL_NS, response_ns: i64 = NULL_NS, request_frame: u64 = NULL_U64,
        response_frame: u64 = NULL_U64, is_from_initiator: bool = false, is_ping: bool = false,
        initiator_task_tag: u32 = NULL_U32, target_transfer_tag: u32 = NULL_U32,
    }
}

table! {
    /// One Text Request and its response a row.
    Texts TextRow "texts" {
        connection: u32 = 0, request_ns: i64 = NULL_NS, response_ns: i64 = NULL_NS, request_frame: u64 = NULL_U64,
        response_frame: u64 = NULL_U64, initiator_task_tag: u32 = 0, request_text: String = String::new(),
        response_text: String = String::new(),
    }
}

table! {
    /// One Logout Request and its response a row.
    Logouts Logout "logouts" {
        connection: u32 = 0, request_ns: i64 = NULL_NS, response_ns: i64 = NULL_NS, request_frame: u64 = NULL_U64,
        response_frame: u64 = NULL_U64, reason: u8 = 0, cid: u16 = NULL_U16, response: u8 = NULL_U8,
    }
}

table! {
    /// One Reject a row.
    Rejects Reject "rejects" {
        connection: u32 = 0, time_ns: i64 = NULL_NS, frame: u64 = NULL_U64, reason: u8 = 0,
        reason_text: String = String::new(), rejected_opcode: u8 = NULL_U8,
        rejected_initiator_task_tag: u32 = NULL_U32,
    }
}

table! {
    /// One Asynchronous Message a row.
    Asyncs Async "asyncs" {
        connection: u32 = 0, time_ns: i64 = NULL_NS, frame: u64 = NULL_U64, event: u8 = 0,
        event_text: String = String::new(), vendor_code: u8 = 0, parameter1: u16 = 0, parameter2: u16 = 0,
        parameter3: u16 = 0, lun: u64 = NULL_U64,
    }
}

table! {
    /// One SNACK Request a row.
    Snacks Snack "snacks" {
        connection: u32 = 0, time_ns: i64 = NULL_NS, frame: u64 = NULL_U64, snack_type: u8 = 0,
        initiator_task_tag: u32 = 0, target_transfer_tag: u32 = 0, begin_run: u32 = 0, run_length: u32 = 0,
    }
}

table! {
    /// One TCP packet of an iSCSI connection a row.
    Segments SegmentRow "segments" {
        connection: u32 = 0, to_target: bool = false, frame: u64 = 0, time_ns: i64 = 0, stream_offset_bytes: i64 = 0,
        payload_bytes: u32 = 0, ack_offset_bytes: i64 = NULL_NS, window_bytes: u32 = 0, flags: u8 = 0,
        segment_class: u8 = NULL_U8,
    }
}

table! {
    /// One block of a selective acknowledgment a row.
    Sacks Sack "sacks" {
        connection: u32 = 0, to_target: bool = false, frame: u64 = 0, time_ns: i64 = 0, left_offset_bytes: i64 = 0,
        right_offset_bytes: i64 = 0, is_duplicate: bool = false,
    }
}

table! {
    /// One change of a sender's bytes in flight a row.
    Windows Window "window" {
        connection: u32 = 0, to_target: bool = false, time_ns: i64 = 0, frame: u64 = 0, owin_bytes: i64 = 0,
        pipe_bytes: i64 = 0, cwnd_estimate_bytes: i64 = NULL_NS, is_valid: bool = false, rwnd_bytes: i64 = NULL_NS,
    }
}

table! {
    /// One RTT sample a row.
    RoundTrips RoundTrip "round_trips" {
        connection: u32 = 0, to_target: bool = false, frame: u64 = 0, time_ns: i64 = 0, rtt_ns: i64 = 0,
        is_handshake: bool = false,
    }
}

table! {
    /// One retransmission a row.
    Retransmissions Retransmission "retransmissions" {
        connection: u32 = 0, to_target: bool = false, frame: u64 = 0, time_ns: i64 = 0, stream_offset_bytes: i64 = 0,
        payload_bytes: u32 = 0, cause: u8 = 3, is_spurious: bool = false, original_frame: u64 = NULL_U64,
        original_ns: i64 = NULL_NS,
    }
}

table! {
    /// One recovery from a loss a row.
    Recoveries Recovery "recoveries" {
        connection: u32 = 0, to_target: bool = false, cause: u8 = 3, time_first_ns: i64 = 0,
        time_last_ns: i64 = NULL_NS, frame_first: u64 = 0, frame_last: u64 = NULL_U64,
        retransmitted_packets: u32 = 0, retransmitted_bytes: u64 = 0, pipe_before_bytes: i64 = 0,
        pipe_after_bytes: i64 = NULL_NS,
    }
}

table! {
    /// One run of payload packets without a pause a row.
    Flights Flight "flights" {
        connection: u32 = 0, to_target: bool = false, frame_first: u64 = 0, frame_last: u64 = 0,
        time_first_ns: i64 = 0, time_last_ns: i64 = 0, bytes: u64 = 0, packet_count: u32 = 0,
        pause_ns: i64 = NULL_NS, release: u8 = 4, owin_before_bytes: i64 = 0, rwnd_before_bytes: i64 = NULL_NS,
        is_within_pdu: bool = false, is_in_recovery: bool = false, has_retransmission: bool = false,
    }
}

table! {
    /// One direction of one connection a row.
    Senders SenderRow "senders" {
        connection: u32 = 0, to_target: bool = false, rtt_min_ns: i64 = NULL_NS, rtt_median_ns: i64 = NULL_NS,
        rtt_p95_ns: i64 = NULL_NS, rtt_count: u64 = 0, segment_bytes: u32 = NULL_U32,
        has_super_segments: bool = false, window_scale: u8 = NULL_U8, is_window_scale_inferred: bool = false,
        owin_max_bytes: i64 = 0, rwnd_min_bytes: i64 = NULL_NS, rwnd_max_bytes: i64 = NULL_NS,
        window_full_ns: i64 = 0, zero_window_ns: i64 = 0, fast_retransmit_count: u32 = 0, timeout_count: u32 = 0,
        tail_probe_count: u32 = 0, unknown_retransmit_count: u32 = 0, spurious_count: u32 = 0,
        recovery_count: u32 = 0, recovery_ns: i64 = 0, ssthresh_guess_bytes: i64 = NULL_NS,
        restart_after_idle_count: u32 = 0, delayed_ack_max_ns: i64 = NULL_NS, bytes_per_ack: u32 = NULL_U32,
        line_bytes_per_s: i64 = NULL_NS, is_line_from_acks: bool = false,
    }
}

table! {
    /// The start of the data of one write a row.
    WriteStarts WriteStart "write_starts" {
        cycle: u32 = 0, bytes: u8 = 0, crc32c: u32 = 0,
    }
}

table! {
    /// One span of the time breakdown a row.
    Budget BudgetRow "budget" {
        session: u32 = NULL_U32, connection: u32 = NULL_U32, time_first_ns: i64 = 0, time_last_ns: i64 = 0,
        part: u8 = 9, cycle: u32 = NULL_U32, frame: u64 = NULL_U64,
    }
}

table! {
    /// One counter above zero a row.
    CounterRows CounterRow "counters" {
        name: String = String::new(), connection: u32 = NULL_U32, severity: u8 = 0, count: u64 = 0,
        first_frame: u64 = NULL_U64, meaning: String = String::new(), advice: String = String::new(),
    }
}

/// Codes of `budget.part`.
pub mod budget_part {
    /// Payload passes the tap.
    pub const TRANSFER: u8 = 0;
    /// Network RTT.
    pub const PROPAGATION: u8 = 1;
    /// Target service time.
    pub const TARGET_SERVICE: u8 = 2;
    /// The initiator has no commands in flight.
    pub const INITIATOR_THINK: u8 = 3;
    /// An R2T waits for its Data-Out.
    pub const INITIATOR_SERVICE: u8 = 4;
    /// A segment that is not full waits until all earlier data is acknowledged (Nagle's algorithm).
    pub const ACK_WAIT: u8 = 5;
    /// The sender is receive-window-limited.
    pub const RECEIVE_WINDOW: u8 = 6;
    /// The sender is cwnd-limited.
    pub const CONGESTION_WINDOW: u8 = 7;
    /// Recovery from a loss.
    pub const LOSS_RECOVERY: u8 = 8;
    /// The capture does not show the cause.
    pub const UNKNOWN: u8 = 9;
}

/// All tables of a pass.
#[derive(Debug, Default, Clone)]
#[allow(missing_docs)]
pub struct Tables {
    pub connections: Connections,
    pub sessions: Sessions,
    pub parameters: Parameters,
    pub pdus: Pdus,
    pub cycles: Cycles,
    pub rounds: Rounds,
    pub write_starts: WriteStarts,
    pub logins: Logins,
    pub task_management: TaskManagements,
    pub nops: Nops,
    pub texts: Texts,
    pub logouts: Logouts,
    pub rejects: Rejects,
    pub asyncs: Asyncs,
    pub snacks: Snacks,
    pub segments: Segments,
    pub sacks: Sacks,
    pub window: Windows,
    pub round_trips: RoundTrips,
    pub retransmissions: Retransmissions,
    pub recoveries: Recoveries,
    pub flights: Flights,
    pub senders: Senders,
    pub budget: Budget,
    pub counters: CounterRows,
    /// Which of the tables on request are wanted.
    pub wanted: Wanted,
}

macro_rules! wanted {
    ($($table:ident)*) => {
        /// The tables that a pass fills only on request.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub struct Wanted { $(pub $table: bool,)* }

        impl Wanted {
            /// All of them.
            pub const ALL: Self = Self { $($table: true,)* };

            /// Adds the table of this name, if it is one of these.
            pub fn add(&mut self, name: &str) {
                match name {
                    $(stringify!($table) => self.$table = true,)*
                    _ => {}
                }
            }
        }
    };
}
wanted!(pdus write_starts segments sacks window round_trips retransmissions recoveries flights senders budget);

impl Wanted {
    /// Whether any table about the senders' behaviour is wanted.
    pub fn has_dynamics(self) -> bool {
        Self { pdus: false, write_starts: false, segments: false, ..self } != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Sack, Sacks, Wanted};

    fn sacks(frames: std::ops::Range<u64>) -> Sacks {
        let mut table = Sacks::default();
        frames.for_each(|frame| {
            table.push(Sack { frame, time_ns: 10 * frame as i64, ..Sack::default() });
        });
        table
    }

    #[test]
    fn rows_of_another_table_come_behind_whichever_is_longer() {
        for middle in 0..=9 {
            let (mut table, mut other) = (sacks(0..middle), sacks(middle..9));
            table.append(&mut other);
            assert_eq!(table.frame, (0..9).collect::<Vec<_>>());
            assert_eq!(table.time_ns, (0..9).map(|frame| 10 * frame).collect::<Vec<_>>());
            assert!(other.frame.is_empty() && other.is_duplicate.is_empty());
        }
    }

    #[test]
    fn tables_that_need_no_analysis_of_the_senders_do_not_start_it() {
        let wanted = |name: &str| {
            let mut wanted = Wanted::default();
            wanted.add(name);
            wanted.has_dynamics()
        };
        assert_eq!(["pdus", "segments", "write_starts", "cycles"].map(wanted), [false; 4]);
        assert_eq!(["window", "senders", "budget", "flights"].map(wanted), [true; 4]);
    }
}
