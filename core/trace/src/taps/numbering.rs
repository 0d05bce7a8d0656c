//! Numbers connections as the pass does (Wireshark's `tcp.stream`), by headers alone.
//!
//! A connection is never closed: memory grows with connections. Beyond the pass's limit of open connections the two
//! number differently.

use iscsitrace_wire::frame::Segment;

use crate::stream::table::{ConnectionTable, Endpoint};

#[derive(Debug, Clone, Copy)]
struct Known {
    ends: [Endpoint; 2],
    /// By direction: the sequence number before the first byte.
    initial: [Option<u32>; 2],
    is_ended: bool,
}

/// The connections of one input.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    table: ConnectionTable,
    known: Vec<Known>,
}

impl Numbering {
    /// Number of the segment's connection, and its direction: 0 from the client, which is the sender of the SYN, or
    /// else of the first packet.
    #[inline]
    pub(super) fn place(&mut self, segment: &Segment<'_>) -> (u32, usize) {
        let source = Endpoint { address: segment.source, port: segment.source_port };
        let destination = Endpoint { address: segment.destination, port: segment.destination_port };
        let flags = segment.flags;
        let is_opening = flags.is_syn() && !flags.is_ack();
        let found = self.table.find(source, destination);
        let number = match found {
            Some(number) if !is_opening || !self.is_reused(number, source, segment) => number,
            _ => self.open(source, destination, flags.is_syn() && flags.is_ack()),
        };
        let Some(known) = self.known.get_mut(number as usize) else { return (number, 0) };
        let direction = usize::from(known.ends[0] != source);
        if known.initial[direction].is_none() || known.initial[1 - direction].is_none() {
            let before = segment.sequence_number.wrapping_sub(u32::from(!flags.is_syn()));
            known.initial[direction].get_or_insert(before);
            if flags.is_ack() {
                known.initial[1 - direction].get_or_insert(segment.acknowledgment_number.wrapping_sub(1));
            }
        }
        known.is_ended |= flags.is_fin() || flags.is_rst();
        (number, direction)
    }

    /// Client and server of a connection.
    pub(super) fn ends(&self, number: u32) -> Option<[Endpoint; 2]> {
        self.known.get(number as usize).map(|known| known.ends)
    }

    #[cold]
    fn is_reused(&self, number: u32, source: Endpoint, segment: &Segment<'_>) -> bool {
        let Some(known) = self.known.get(number as usize) else { return false };
        known.initial[usize::from(known.ends[0] != source)]
            .is_some_and(|initial| initial != segment.sequence_number || known.is_ended)
    }

    #[cold]
    fn open(&mut self, source: Endpoint, destination: Endpoint, is_syn_ack: bool) -> u32 {
        let number = self.known.len() as u32;
        let ends = if is_syn_ack { [destination, source] } else { [source, destination] };
        self.known.push(Known { ends, initial: [None; 2], is_ended: false });
        self.table.insert(source, destination, number);
        number
    }
}
