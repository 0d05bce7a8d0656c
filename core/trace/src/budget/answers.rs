//! When commands end for the initiator.

use crate::stream::progress::OUTAGE_MIN_NS;
use crate::tables::{Cycles, NULL_NS};

/// When a command ends for the initiator, as far as the tap shows: with its status, or when data arrived that had to be
/// retransmitted for long. None if neither is known.
pub(super) fn answered_ns(cycles: &Cycles, row: usize) -> Option<i64> {
    let status_ns = cycles.status_ns[row];
    let acked_ns = cycles.data_acked_ns[row];
    let is_stuck = cycles.is_read[row] && cycles.has_retransmission[row];
    match status_ns {
        NULL_NS => None,
        // beside the target a status is seen when it is sent, and an outage when the data before it is not acknowledged
        _ if is_stuck && acked_ns == NULL_NS => None,
        _ if is_stuck && acked_ns.saturating_sub(status_ns) >= OUTAGE_MIN_NS => Some(acked_ns),
        _ => Some(status_ns),
    }
}

/// When a command ends, at the latest at `end_ns` if it has no answer.
pub(super) fn ended_ns(cycles: &Cycles, ends_ns: &[i64], row: usize, end_ns: i64) -> i64 {
    answered_ns(cycles, row).unwrap_or_else(|| {
        ends_ns.get(row).copied().filter(|&ended_ns| ended_ns != NULL_NS).unwrap_or(end_ns).min(end_ns)
    })
}
