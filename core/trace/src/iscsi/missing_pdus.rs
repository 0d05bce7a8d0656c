//! How many PDUs of a connection are missing from the capture, by sequence numbers, and how many bytes of its streams they
//! are. The bytes that were not decoded limit what can be missing: what a task lacks at the end of a capture may come after
//! it.

use super::session::missing_commands::{DataCarriers, HEADER_BYTES};
use serde::{Deserialize, Serialize};

/// The bytes of one direction that are of no decoded PDU.
#[derive(Debug, Default, Clone, Copy)]
pub struct UnreadBytes {
    /// All of them.
    pub bytes: u64,
    /// Those before the first header, if the start of the stream is missing.
    pub at_start: Option<u64>,
    /// Those after the last one, where the position of the next header is unknown.
    pub at_end: Option<u64>,
}

/// The missing PDUs of a connection, by direction (to the target first).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPdus {
    /// Their number.
    pub count: [u64; 2],
    /// Those whose bytes were not decoded.
    unread: [u64; 2],
    /// Those of them that are R2Ts.
    r2ts: u64,
    /// Those of them with data, and the data bytes that ended tasks lack.
    data: [u64; 2],
    data_bytes: [u64; 2],
}

impl MissingPdus {
    /// Adds PDUs of which no number tells whether they have data: statuses. Here and below, what came late after all is less
    /// than 0.
    pub fn add_bare(&mut self, direction: usize, count: i64) {
        add(&mut self.count[direction], count);
        add(&mut self.unread[direction], count);
    }

    /// Adds R2Ts, which have no data.
    pub fn add_r2ts(&mut self, count: i64) {
        self.add_bare(1, count);
        add(&mut self.r2ts, count);
    }

    /// Adds PDUs with data; [`MissingPdus::add_data_bytes`] follows at the end of their task.
    pub fn add_data(&mut self, direction: usize, count: i64) {
        self.add_bare(direction, count);
        add(&mut self.data[direction], count);
    }

    /// Adds the data bytes that an ended task lacks.
    pub fn add_data_bytes(&mut self, direction: usize, bytes: i64) {
        add(&mut self.data_bytes[direction], bytes);
    }

    /// Adds a PDU whose header is missing, while its bytes count as decoded.
    pub fn add_explained(&mut self, direction: usize) {
        self.count[direction] += 1;
    }

    /// A PDU that an ended task lacks turns out to be one whose header is missing, while its bytes count as decoded.
    pub fn explain(&mut self, direction: usize, data_bytes: Option<u32>) {
        if self.unread[direction] == 0 {
            self.add_explained(direction);
            return;
        }
        add(&mut self.unread[direction], -1);
        add(&mut self.data[direction], -i64::from(data_bytes.is_some()));
        add(&mut self.data_bytes[direction], -i64::from(data_bytes.unwrap_or(0)));
    }

    /// At the end: adds what is missing at the start and at the end of the stream, and removes data PDUs that do not fit
    /// into the bytes that were not decoded. Returns the bytes of other PDUs among these, and how many these are at least.
    pub fn settle(&mut self, direction: usize, unread: UnreadBytes, carriers: &DataCarriers) -> (u64, u64) {
        let explained = self.count[direction] - self.unread[direction];
        let (data, lacking) = (self.data[direction], self.data_bytes[direction]);
        let missing = DataCarriers { count: data, bytes: lacking, uncounted: data, ..DataCarriers::default() };
        let longest = HEADER_BYTES + carriers.longest_bytes.max(lacking.checked_div(data).unwrap_or(0));
        let mut bytes = unread.bytes;
        if let Some(at_start) = unread.at_start {
            // the end of a PDU
            self.count[direction] += 1;
            bytes = bytes.saturating_sub(at_start.min(longest));
        }
        if let Some(at_end) = unread.at_end {
            self.add_bare(direction, 1);
            let usual = carriers.bytes.checked_div(carriers.count).unwrap_or(0);
            self.data_bytes[direction] += at_end.saturating_sub(HEADER_BYTES).min(usual);
        }
        let known = self.unread[direction] * HEADER_BYTES + self.data_bytes[direction];
        self.count[direction] -= missing.uncounted_in(known.saturating_sub(bytes)).min(data);
        // commands that are missing are counted later, by the numbers of all connections
        let is_bound = direction == 1 && longest > HEADER_BYTES && unread.bytes >= HEADER_BYTES;
        let r2ts = self.r2ts.min(self.unread[direction]);
        let others = unread.bytes.saturating_sub(r2ts * HEADER_BYTES).div_ceil(longest);
        let least = if is_bound { explained + r2ts + others } else { 0 };
        (bytes.saturating_sub(known), least.saturating_sub(self.count[direction]))
    }
}

fn add(value: &mut u64, by: i64) {
    *value = value.saturating_add_signed(by);
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
        assert_eq!(missing.settle(1, unread(3 * 48 + 2 * 1048 + 1096), &CARRIERS), (1096, 0));
        assert_eq!(missing.count, [0, 6]);
    }

    #[test]
    fn bytes_are_of_at_least_as_many_pdus_as_the_longest_need() {
        // all Data-In have a status, and nothing that was read later skips its number
        let carriers = DataCarriers { uncounted: 0, ..CARRIERS };
        for (bytes, count) in [(0, 0), (48, 1), (1048, 1), (1049, 2), (5 * 1048, 5)] {
            assert_eq!(MissingPdus::default().settle(1, unread(bytes), &carriers), (bytes, count));
        }
        // those whose bytes count as decoded are others
        let mut missing = MissingPdus::default();
        missing.add_explained(1);
        assert_eq!(missing.settle(1, unread(1049), &carriers), (1049, 2));
        assert_eq!(missing.count, [0, 1]);
    }

    #[test]
    fn r2ts_are_headers_alone() {
        let carriers = DataCarriers { uncounted: 0, ..CARRIERS };
        for (bytes, others) in [(2 * 48 + 1048, 1), (2 * 48 + 1049, 2), (2 * 48, 0)] {
            let mut missing = MissingPdus::default();
            missing.add_r2ts(2);
            let (_, least) = missing.settle(1, unread(bytes), &carriers);
            assert_eq!((missing.count, least), ([0, 2], others), "{bytes} bytes");
        }
    }

    #[test]
    fn a_pdu_whose_header_is_missing_counts_once() {
        for was_counted in [true, false] {
            let mut missing = MissingPdus::default();
            if was_counted {
                missing.add_data(0, 1);
                missing.add_data_bytes(0, 1000);
            }
            missing.explain(0, Some(1000));
            missing.settle(0, unread(0), &CARRIERS);
            assert_eq!(missing.count, [1, 0]);
        }
    }

    #[test]
    fn no_more_data_is_missing_than_bytes_are() {
        for (bytes, count) in [(5 * 1048 + 48, 6), (3 * 1048 + 48, 4), (48, 1), (0, 1)] {
            let mut missing = MissingPdus::default();
            missing.add_bare(0, 1);
            missing.add_data(0, 5);
            missing.add_data_bytes(0, 5000);
            assert_eq!(missing.settle(0, unread(bytes), &CARRIERS), (0, 0), "{bytes} bytes");
            assert_eq!(missing.count, [count, 0], "{bytes} bytes");
        }
    }

    #[test]
    fn a_stream_without_its_start_begins_with_the_end_of_a_pdu() {
        for (at_start, count) in [(1, 1), (1048, 1), (1049, 2), (2097, 3)] {
            let mut missing = MissingPdus::default();
            let start = UnreadBytes { at_start: Some(at_start), ..unread(at_start) };
            let (_, least) = missing.settle(1, start, &CARRIERS);
            assert_eq!(missing.count[1] + least, count, "{at_start} bytes");
        }
        // the data of a known task may be among these bytes
        let mut missing = MissingPdus::default();
        missing.add_data(1, 5);
        missing.add_data_bytes(1, 5000);
        let start = UnreadBytes { at_start: Some(6 * 1048), ..unread(6 * 1048) };
        assert_eq!(missing.settle(1, start, &DataCarriers::default()).1, 0);
        assert_eq!(missing.count, [0, 6]);
    }

    #[test]
    fn commands_are_counted_by_their_numbers() {
        let mut missing = MissingPdus::default();
        assert_eq!(missing.settle(0, unread(3 * 48), &CARRIERS), (3 * 48, 0));
        assert_eq!(missing.count, [0, 0]);
    }

    #[test]
    fn without_any_header_the_tasks_tell_how_long_its_pdus_are() {
        let mut missing = MissingPdus::default();
        missing.add_data(1, 11);
        missing.add_data_bytes(1, 11_000);
        let (_, least) = missing.settle(1, unread(12 * 1048 + 1), &DataCarriers::default());
        assert_eq!((missing.count[1], least), (11, 2));
    }
}
