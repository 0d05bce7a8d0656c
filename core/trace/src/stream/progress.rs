//! When new data of commands passed the tap: what an outage interrupts.

use serde::{Deserialize, Serialize};
/// The shortest outage: a second without progress. Shorter ones are losses that TCP recovers from, or slow commands.
pub const OUTAGE_MIN_NS: i64 = 1_000_000_000;

/// A packet with one PDU and no data is no longer than this: a header with its digest.
const LONE_PDU_BYTES_MAX: u32 = 52;

/// The times of progress, as spans that are at least an outage apart.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Progress {
    spans: Vec<(i64, i64)>,
}

impl Progress {
    /// Whether a packet with this payload has data of a command: a lone header has none. A PDU of several packets does.
    #[inline]
    pub fn is_data(length: u32, is_within_pdu: bool) -> bool {
        is_within_pdu || length > LONE_PDU_BYTES_MAX
    }

    /// Notes new data, or a status.
    #[inline]
    pub fn note(&mut self, time_ns: i64) {
        match self.spans.last_mut() {
            Some(last) if time_ns.saturating_sub(last.1) < OUTAGE_MIN_NS => {
                last.0 = last.0.min(time_ns);
                last.1 = last.1.max(time_ns);
            }
            _ => self.spans.push((time_ns, time_ns)),
        }
    }

    /// The spans.
    pub fn spans(&self) -> &[(i64, i64)] {
        &self.spans
    }

    /// Removes spans from before, except the last of them: an outage may have begun with it.
    pub fn forget(&mut self, before_ns: i64) {
        let count = self.spans.iter().take_while(|span| span.1 < before_ns).count();
        self.spans.drain(..count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_at_least_an_outage_apart() {
        let mut progress = Progress::default();
        for time_ns in [5, 900, OUTAGE_MIN_NS + 899, 2 * OUTAGE_MIN_NS + 899, 3] {
            progress.note(time_ns);
        }
        assert_eq!(progress.spans(), [(5, OUTAGE_MIN_NS + 899), (3, 2 * OUTAGE_MIN_NS + 899)]);
    }

    #[test]
    fn a_lone_header_is_no_data() {
        assert!(!Progress::is_data(48, false));
        assert!(!Progress::is_data(52, false));
        assert!(Progress::is_data(53, false));
        assert!(Progress::is_data(48, true));
    }

    #[test]
    fn the_last_span_before_is_never_forgotten() {
        let mut progress = Progress::default();
        for time_ns in [0, 2 * OUTAGE_MIN_NS, 4 * OUTAGE_MIN_NS] {
            progress.note(time_ns);
        }
        progress.forget(3 * OUTAGE_MIN_NS);
        assert_eq!(progress.spans().first(), Some(&(2 * OUTAGE_MIN_NS, 2 * OUTAGE_MIN_NS)));
        progress.forget(3 * OUTAGE_MIN_NS);
        assert_eq!(progress.spans().len(), 2);
        progress.forget(i64::MAX);
        assert_eq!(progress.spans().len(), 1);
    }
}
