//! When the bytes of each stream passed a tap. Knows no PDUs.

/// Bytes of a stream that passed the tap first in one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Brought {
    start: u64,
    end: u64,
    time_ns: i64,
}

/// One direction of a connection, at a tap.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// In the order of the stream, without overlaps.
    brought: Vec<Brought>,
    /// Acknowledgment numbers that advanced, as stream offsets, in the order of time.
    acknowledged: Vec<(u64, i64)>,
}

impl Stream {
    /// A packet with the bytes from `start` to `end` passed; for bytes that passed before, the first time counts.
    pub fn record(&mut self, start: u64, end: u64, time_ns: i64) {
        let mut place = self.brought.partition_point(|brought| brought.end <= start);
        let mut from = start;
        while from < end {
            let next = self.brought.get(place).map_or(end, |brought| brought.start.min(end));
            if from < next {
                self.brought.insert(place, Brought { start: from, end: next, time_ns });
                place += 1;
            }
            let Some(known) = self.brought.get(place) else { return };
            from = known.end;
            place += 1;
        }
    }

    /// An acknowledgment of all bytes below `offset` passed.
    pub fn acknowledge(&mut self, offset: u64, time_ns: i64) {
        if self.acknowledged.last().is_none_or(|&(last, _)| last < offset) {
            self.acknowledged.push((offset, time_ns));
        }
    }

    /// When the byte at `offset` passed first.
    pub(super) fn first(&self, offset: u64) -> Option<i64> {
        let place = self.brought.partition_point(|brought| brought.end <= offset);
        self.brought.get(place).filter(|brought| brought.start <= offset).map(|brought| brought.time_ns)
    }

    /// When the last of the bytes from `start` to `end` passed; none when one never did.
    pub(super) fn last(&self, start: u64, end: u64) -> Option<i64> {
        let place = self.brought.partition_point(|brought| brought.end <= start);
        let (mut from, mut time_ns) = (start, None);
        for brought in self.brought.get(place..)?.iter().take_while(|brought| brought.start < end) {
            if brought.start > from {
                return None;
            }
            from = brought.end;
            time_ns = time_ns.max(Some(brought.time_ns));
        }
        time_ns.filter(|_| from >= end)
    }

    /// When an acknowledgment of all bytes below `offset` passed first.
    pub(super) fn acknowledged(&self, offset: u64) -> Option<i64> {
        let place = self.acknowledged.partition_point(|&(acknowledged, _)| acknowledged < offset);
        self.acknowledged.get(place).map(|&(_, time_ns)| time_ns)
    }
}

/// The packets of a tap: per connection both directions, to the target first.
#[derive(Debug, Clone, Default)]
pub struct Tap {
    pub(super) connections: Vec<[Stream; 2]>,
}

impl Tap {
    /// A direction of a connection.
    pub fn stream(&mut self, connection: usize, to_target: bool) -> &mut Stream {
        if self.connections.len() <= connection {
            self.connections.resize_with(connection + 1, Default::default);
        }
        &mut self.connections[connection][usize::from(!to_target)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stream_equals_a_byte_by_byte_model(
            packets in prop::collection::vec((0u64..40, 1u64..12), 1..30),
            ranges in prop::collection::vec((0u64..45, 1u64..12), 10),
        ) {
            let mut stream = Stream::default();
            let mut times = [None; 64];
            for (time_ns, &(start, length)) in (0i64..).zip(&packets) {
                stream.record(start, start + length, time_ns);
                for time in &mut times[start as usize..(start + length) as usize] {
                    time.get_or_insert(time_ns);
                }
            }
            for (start, length) in ranges {
                let bytes = &times[start as usize..(start + length) as usize];
                prop_assert_eq!(stream.first(start), bytes[0]);
                let last = bytes.iter().copied().collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
                prop_assert_eq!(stream.last(start, start + length), last);
            }
        }
    }
}
