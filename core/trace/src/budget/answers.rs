//! When commands end for the initiator.

use crate::tables::{Cycles, NULL_NS};

/// When a command ends for the initiator, as far as the tap shows: with its status; or with the ACK of the status, where
/// it, or data before it, had to be retransmitted. None if neither is known.
pub(super) fn answered_ns(cycles: &Cycles, row: usize) -> Option<i64> {
    let status_ns = cycles.status_ns[row];
    let is_stuck = cycles.is_read[row] && cycles.has_retransmission[row];
    match status_ns {
        NULL_NS => None,
        // beside the target a status is seen when it is sent, and an outage when the data before it is not acknowledged
        _ if is_stuck && cycles.data_acked_ns[row] == NULL_NS => None,
        // null is the smallest instant of all
        _ => Some(status_ns.max(cycles.status_acked_ns[row])),
    }
}

/// When a command ends, at the latest at `end_ns` if it has no answer.
pub(super) fn ended_ns(cycles: &Cycles, ends_ns: &[i64], row: usize, end_ns: i64) -> i64 {
    answered_ns(cycles, row).unwrap_or_else(|| {
        ends_ns.get(row).copied().filter(|&ended_ns| ended_ns != NULL_NS).unwrap_or(end_ns).min(end_ns)
    })
}
