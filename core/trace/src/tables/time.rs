//! The time breakdown, and the irregularities of the input.

use super::declaration::table;
use budget_part::UNKNOWN;

table! {
    /// one interval of the time breakdown of a connection or a session, from first command to last status
    Budget BudgetRow "budget" {
        /// the session
        session: u32 = null;
        /// the connection; null: time of the session, all its connections as one
        connection: u32 = null;
        /// its start
        time_first_ns: i64 [ns];
        /// its end, which is the start of the next one
        time_last_ns: i64 [ns];
        /// part of the time breakdown that it is attributed to
        part: u8(budget_part) = UNKNOWN, "method 4";
        /// row in cycles of the command that waits, or whose data passes
        cycle: u32(cycle) = null;
        /// commands in flight for the initiator during it: data if one reads or writes, else flush, else other
        in_flight: u8(in_flight), "method 4";
        /// the frame at its end
        frame: u64 = null;
    }
}

table! {
    /// one irregularity of the input, of the whole capture (connection null) or of one connection
    CounterRows CounterRow "counters" {
        /// name
        name: String;
        /// the connection
        connection: u32 = null;
        /// effect on the results
        severity: u8(severity);
        /// number of occurrences, or bytes
        count: u64;
        /// frame of the first occurrence
        first_frame: u64 = null;
        /// what is counted
        meaning: String;
        /// what to do about it
        advice: String;
    }
}

/// Codes of `budget.in_flight`, the weakest first.
pub mod in_flight {
    use iscsitrace_wire::cdb::{Operation, Purpose};

    use super::super::commands::Cycles;

    /// No command.
    pub const NONE: u8 = 0;
    /// Commands that inspect or set up the device, as a scan does.
    pub const OTHER: u8 = 1;
    /// A command that makes earlier writes permanent: SYNCHRONIZE CACHE.
    pub const FLUSH: u8 = 2;
    /// A command that reads, writes or erases user data.
    pub const DATA: u8 = 3;

    /// What a command counts as: one that was cut off before its operation is taken for a read or write, and so is an
    /// unknown operation that transfers data.
    pub fn kind(cycles: &Cycles, row: usize) -> u8 {
        let operation = Operation::ALL.get(usize::from(cycles.operation[row]));
        let has_data = (cycles.is_read[row] || cycles.is_write[row]) && cycles.bytes[row] != 0;
        match operation.map_or(Purpose::Data, |operation| operation.purpose()) {
            Purpose::Data => DATA,
            Purpose::Flush => FLUSH,
            Purpose::Unknown if has_data => DATA,
            Purpose::Control | Purpose::Unknown => OTHER,
        }
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
    /// The send buffer of the sender is full.
    pub const SEND_BUFFER: u8 = 8;
    /// Recovery from a loss.
    pub const LOSS_RECOVERY: u8 = 9;
    /// Nothing progresses for a second or more.
    pub const OUTAGE: u8 = 10;
    /// The capture does not show the cause.
    pub const UNKNOWN: u8 = 11;
}
