//! What stands where in each stream; everything else is zero. Whose packets they are, and where their bytes belong.
//!
//! The first pass makes it, the second reads it. Memory grows with PDUs, about 70 bytes for each, and never with packets.

use rustc_hash::FxHashMap;

/// A segment further from the stream does not belong to it: no window is larger (RFC 7323 section 2.3).
const WINDOW_MAX_BYTES: i64 = 1 << 30;

/// Bytes at a stream offset.
#[derive(Debug, Clone, Copy)]
struct Piece {
    offset: i64,
    /// Where they are kept.
    at: usize,
    length: u32,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct Stream {
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
    longest: i64,
    /// Sequence number of offset 0; and until which frame it was another, and the offset that was reached then.
    base: Option<u32>,
    earlier: Vec<Earlier>,
    /// The second pass: the highest offset so far.
    highest: i64,
    /// The second pass: how many of the earlier beginnings are over.
    passed: usize,
}

/// Before this frame the stream had another beginning.
#[derive(Debug, Clone, Copy)]
struct Earlier {
    frame: u64,
    base: Option<u32>,
    offset: i64,
}

impl Stream {
    /// Puts bytes at a stream offset.
    pub fn put(&mut self, offset: i64, bytes: &[u8]) {
        let Ok(length) = u32::try_from(bytes.len()) else { return };
        if length > 0 {
            self.pieces.push(Piece { offset, at: self.bytes.len(), length });
            self.bytes.extend_from_slice(bytes);
            self.longest = self.longest.max(i64::from(length));
        }
    }

    /// Copies what stands at `offset` into zeros.
    fn fill(&self, offset: i64, zeros: &mut [u8]) {
        let end = offset + zeros.len() as i64;
        let first = self.pieces.partition_point(|piece| piece.offset <= offset - self.longest);
        for piece in self.pieces[first..].iter().take_while(|piece| piece.offset < end) {
            let bytes = &self.bytes[piece.at..piece.at + piece.length as usize];
            let (from, to) = (piece.offset.max(offset), (piece.offset + i64::from(piece.length)).min(end));
            if from < to {
                let source = &bytes[(from - piece.offset) as usize..(to - piece.offset) as usize];
                zeros[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
    }

    /// The offset of a sequence number in a frame; none if it is of another stream. Frames come in order.
    fn offset(&mut self, frame: u64, sequence_number: u32, length: u32) -> Option<i64> {
        while let Some(earlier) = self.earlier.get(self.passed).filter(|earlier| earlier.frame <= frame) {
            self.highest = earlier.offset;
            self.passed += 1;
        }
        let base = self.earlier.get(self.passed).map_or(self.base, |earlier| earlier.base)?;
        let distance = i64::from(sequence_number.wrapping_sub(base.wrapping_add(self.highest as u32)) as i32);
        if distance.abs() > WINDOW_MAX_BYTES {
            return None;
        }
        let offset = self.highest + distance;
        self.highest = self.highest.max(offset + i64::from(length));
        Some(offset)
    }
}

/// The streams of a connection.
#[derive(Debug, Default)]
pub struct Streams {
    /// To the target, to the initiator.
    by_direction: [Stream; 2],
    is_client_initiator: bool,
}

/// The streams of all iSCSI connections.
#[derive(Debug, Default)]
pub struct Plan {
    connections: FxHashMap<u32, Streams>,
    /// Restarts of streams whose connection is not closed yet, by TCP direction.
    restarts: FxHashMap<u32, Vec<(usize, Earlier)>>,
}

impl Plan {
    /// A stream of a connection.
    pub fn stream(&mut self, connection: u32, to_target: bool) -> &mut Stream {
        &mut self.connections.entry(connection).or_default().by_direction[usize::from(!to_target)]
    }

    /// From this frame on, the stream of a TCP direction has another sequence number for offset 0, and continues at
    /// `offset`.
    pub fn restart(&mut self, connection: u32, direction: usize, frame: u64, base: Option<u32>, offset: i64) {
        self.restarts.entry(connection).or_default().push((direction, Earlier { frame, base, offset }));
    }

    /// A connection was closed; these are the sequence numbers of its offsets 0, from the client and from the server.
    pub fn close(&mut self, connection: u32, is_client_initiator: bool, bases: [Option<u32>; 2]) {
        let streams = self.connections.entry(connection).or_default();
        streams.is_client_initiator = is_client_initiator;
        for (direction, base) in bases.into_iter().enumerate() {
            streams.of_tcp(direction).base = base;
        }
        for (direction, earlier) in self.restarts.remove(&connection).unwrap_or_default() {
            streams.of_tcp(direction).earlier.push(earlier);
        }
    }

    /// Puts the bytes of each stream in order.
    pub fn complete(&mut self) {
        self.restarts = FxHashMap::default();
        for stream in self.connections.values_mut().flat_map(|streams| &mut streams.by_direction) {
            // of the same offset the last one counts
            stream.pieces.sort_by_key(|piece| piece.offset);
            stream.pieces.shrink_to_fit();
            stream.bytes.shrink_to_fit();
        }
    }

    /// Number of iSCSI connections.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Whether a connection is iSCSI.
    pub fn has(&self, connection: u32) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Fills zeros with what stands in a packet's payload of `length` bytes. Packets come in order of their frames.
    pub fn fill(
        &mut self,
        (connection, direction): (u32, usize),
        frame: u64,
        sequence_number: u32,
        length: u32,
        zeros: &mut [u8],
    ) {
        let Some(streams) = self.connections.get_mut(&connection) else { return };
        let stream = streams.of_tcp(direction);
        if let Some(offset) = stream.offset(frame, sequence_number, length) {
            stream.fill(offset, zeros);
        }
    }
}

impl Streams {
    fn of_tcp(&mut self, direction: usize) -> &mut Stream {
        &mut self.by_direction[if self.is_client_initiator { direction } else { 1 - direction }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A plan of one connection whose client begins at sequence number 100.
    fn plan(pieces: &[(i64, &[u8])]) -> Plan {
        let mut plan = Plan::default();
        pieces.iter().for_each(|(offset, bytes)| plan.stream(0, true).put(*offset, bytes));
        plan.close(0, true, [Some(100), None]);
        plan.complete();
        plan
    }

    fn filled(plan: &mut Plan, frame: u64, sequence_number: u32, length: usize) -> Vec<u8> {
        let mut zeros = vec![0; length];
        plan.fill((0, 0), frame, sequence_number, length as u32, &mut zeros);
        zeros
    }

    proptest! {
        /// However packets cut the stream, and however often they repeat it, the bytes are those of the plan.
        #[test]
        fn packets_cut_pieces_anywhere(
            pieces in prop::collection::vec((0_i64..400, prop::collection::vec(1_u8.., 1..60)), 0..12),
            packets in prop::collection::vec((0_usize..450, 1_usize..120), 0..20),
        ) {
            let mut expected = vec![0; 600];
            let mut sorted = pieces.clone();
            sorted.sort_by_key(|(offset, _)| *offset);
            for (offset, bytes) in &sorted {
                expected[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
            }
            let pieces: Vec<(i64, &[u8])> = pieces.iter().map(|(offset, bytes)| (*offset, &bytes[..])).collect();
            let mut plan = plan(&pieces);
            for (from, length) in packets {
                prop_assert_eq!(filled(&mut plan, 1, 100 + from as u32, length), &expected[from..from + length]);
            }
        }
    }

    #[test]
    fn sequence_numbers_wrap_and_strange_ones_have_no_bytes() {
        let long: Vec<u8> = vec![7; 10];
        let mut plan = plan(&[(1 << 31, &long), (1 << 33, &long)]);
        for step in 0..=8_i64 {
            // the stream reaches 8 GiB
            for quarter in 0..4 {
                filled(&mut plan, 1, 100_u32.wrapping_add(((step << 30) + (quarter << 28)) as u32), 1);
            }
        }
        assert_eq!(filled(&mut plan, 1, 100, 10), long, "2^33 is the nearest");
        assert_eq!(filled(&mut plan, 1, 100 + (1 << 31), 10), [0; 10]);
    }

    #[test]
    fn a_stream_continues_elsewhere_from_a_frame_on() {
        let mut plan = Plan::default();
        plan.stream(0, true).put(0, &[1; 4]);
        plan.stream(0, true).put(4, &[2; 4]);
        plan.restart(0, 0, 10, Some(100), 4);
        plan.close(0, true, [Some(9_000_000 - 4), None]);
        plan.complete();
        assert_eq!(filled(&mut plan, 5, 100, 4), [1; 4]);
        assert_eq!(filled(&mut plan, 9, 2_000_000_000, 4), [0; 4]);
        assert_eq!(filled(&mut plan, 11, 9_000_000, 4), [2; 4]);
        assert!(plan.has(0) && !plan.has(1));
    }
}
