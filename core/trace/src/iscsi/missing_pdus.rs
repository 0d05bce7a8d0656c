//! How many PDUs of a connection are missing from the capture, by sequence numbers, and how many bytes of its streams they
//! are. The bytes that were not decoded limit what can be missing: what a task lacks at the end of a capture may come after
//! it.

use super::session::missing_commands::{DataCarriers, HEADER_BYTES};

/// The bytes of one direction that are of no decoded PDU.
#[derive(Debug, Default, Clone, Copy)]
pub struct UnreadBytes {
    /// All of them.
    pub bytes: u64,
    /// Those before the first header, if the start of the stream is missing.
    pub at_start: Option<u64>,
    /// Those after the last one, where the position of the next header is unknown.
    pub at_end: Option<u64>,
    /// Whether no header was read.
    pub is_all: bool,
}

/// The missing PDUs of a connection, by direction (to the target first).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MissingPdus {
    /// Their number.
    pub count: [u64; 2],
    /// Those whose bytes were not decoded.
    unread: [u64; 2],
    /// Those of them with data, and the data bytes that ended tasks lack.
    data: [u64; 2],
    data_bytes: [u64; 2],
}

impl MissingPdus {
    /// Adds PDUs without data: statuses, R2Ts.
    pub fn add_bare(&mut self, direction: usize, count: u64) {
        self.count[direction] += count;
        self.unread[direction] += count;
    }

    /// Adds PDUs with data; [`MissingPdus::add_data_bytes`] follows at the end of their task.
    pub fn add_data(&mut self, direction: usize, count: u64) {
        self.add_bare(direction, count);
        self.data[direction] += count;
    }

    /// Adds the data bytes that an ended task lacks.
    pub fn add_data_bytes(&mut self, direction: usize, bytes: u64) {
        self.data_bytes[direction] += bytes;
    }

    /// Adds a PDU whose header is missing, while its bytes count as decoded.
    pub fn add_explained(&mut self, direction: usize) {
        self.count[direction] += 1;
    }

    /// A PDU that an ended task lacks turns out to be one whose header is missing, while its bytes count as decoded.
    pub fn explain(&mut self, direction: usize, data_bytes: Option<u32>) {
        let less = |value: &mut u64, by: u64| *value = value.saturating_sub(by);
        less(&mut self.unread[direction], 1);
        less(&mut self.data[direction], u64::from(data_bytes.is_some()));
        less(&mut self.data_bytes[direction], data_bytes.unwrap_or(0).into());
    }

    /// At the end: adds what is missing at the start and at the end of the stream, and removes data PDUs that do not fit
    /// into the bytes that were not decoded. Returns the bytes of other PDUs among these.
    pub fn settle(&mut self, direction: usize, unread: UnreadBytes, carriers: &DataCarriers) -> u64 {
        let mut bytes = unread.bytes;
        // at least one PDU each
        if let Some(at_start) = unread.at_start {
            self.count[direction] += carriers.parts_in(at_start).max(1);
            bytes = bytes.saturating_sub(at_start);
        }
        if let Some(at_end) = unread.at_end {
            self.add_bare(direction, 1);
            let usual = carriers.bytes.checked_div(carriers.count).unwrap_or(0);
            self.add_data_bytes(direction, at_end.saturating_sub(HEADER_BYTES).min(usual));
        }
        let data = self.data[direction];
        let lacking = self.data_bytes[direction];
        let usual = lacking.checked_div(data).unwrap_or(0);
        let missing = DataCarriers { count: data, bytes: lacking, longest_bytes: usual, uncounted: data };
        let known = self.unread[direction] * HEADER_BYTES + missing.bytes;
        self.count[direction] -= missing.uncounted_in(known.saturating_sub(bytes)).min(data);
        let left = bytes.saturating_sub(known);
        if unread.is_all && carriers.count == 0 {
            // no header of this direction was read: only the tasks tell how long its PDUs are
            self.count[direction] += missing.parts_in(left);
            return 0;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data-In of 1000 bytes, of which every other one had the status.
    const CARRIERS: DataCarriers = DataCarriers { count: 10, bytes: 10_000, longest_bytes: 1000, uncounted: 5 };

    fn unread(bytes: u64) -> UnreadBytes {
        UnreadBytes { bytes, ..UnreadBytes::default() }
    }

    #[test]
    fn bytes_of_no_known_pdu_are_of_others() {
        let mut missing = MissingPdus::default();
        missing.add_bare(1, 3);
        missing.add_data(1, 2);
        missing.add_data_bytes(1, 2000);
        missing.add_explained(1);
        // three headers, two Data-In, and one more of each
        assert_eq!(missing.settle(1, unread(3 * 48 + 2 * 1048 + 1096), &CARRIERS), 1096);
        assert_eq!(missing.count, [0, 6]);
    }

    #[test]
    fn no_more_data_is_missing_than_bytes_are() {
        for (bytes, count) in [(5 * 1048 + 48, 6), (3 * 1048 + 48, 4), (48, 1), (0, 1)] {
            let mut missing = MissingPdus::default();
            missing.add_bare(0, 1);
            missing.add_data(0, 5);
            missing.add_data_bytes(0, 5000);
            assert_eq!(missing.settle(0, unread(bytes), &CARRIERS), 0, "{bytes} bytes");
            assert_eq!(missing.count, [count, 0], "{bytes} bytes");
        }
    }

    #[test]
    fn the_start_of_a_stream_has_as_many_pdus_as_its_bytes_and_at_least_one() {
        for (at_start, count) in [(1, 1), (1048, 1), (1049, 2), (2097, 3), (4192, 4)] {
            let mut missing = MissingPdus::default();
            let start = UnreadBytes { at_start: Some(at_start), ..unread(at_start) };
            assert_eq!(missing.settle(1, start, &CARRIERS), 0);
            assert_eq!(missing.count, [0, count], "{at_start} bytes");
        }
    }

    #[test]
    fn without_any_header_the_tasks_tell_how_long_its_pdus_are() {
        let mut missing = MissingPdus::default();
        missing.add_data(1, 11);
        missing.add_data_bytes(1, 11_000);
        let all = UnreadBytes { is_all: true, ..unread(12 * 1048 + 1) };
        assert_eq!(missing.settle(1, all, &DataCarriers::default()), 0);
        assert_eq!(missing.count, [0, 13]);
    }
}
