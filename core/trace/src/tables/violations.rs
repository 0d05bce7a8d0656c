//! Violations of RFC 7143.

use super::declaration::table;

table! {
    /// one violation of a rule of RFC 7143; of many equal ones on a connection the last row has the count
    Violations Violation "violations" {
        /// the rule
        rule: u8(rule);
        /// who broke it
        side: u8(side);
        /// the connection
        connection: u32;
        /// row in cycles of its command
        cycle: u32(cycle) = null;
        /// Initiator Task Tag
        initiator_task_tag: u32 = null;
        /// when the PDU that shows it began
        time_ns: i64 [ns] = null;
        /// frame with the start of that PDU
        frame: u64 = null;
        /// when the last violation in this row began
        last_time_ns: i64 [ns] = null;
        /// frame of the last violation in this row
        last_frame: u64 = null;
        /// what the rule expects, if it is a number
        expected: u64 = null;
        /// what the PDU has, if it is a number
        seen: u64 = null;
        /// violations in this row
        count: u64;
    }
}
