//! Captures of two taps, made packet by packet.

use std::io::Cursor;

use crate::reader::sequence::Input;
use crate::tables::taps::Joined;
use crate::taps::{Pair, join};

pub(super) const MS: i64 = 1_000_000;
pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

/// Clock of tap b less clock of tap a, in these captures.
pub(super) const OFFSET_NS: i64 = 7_000 * MS;

/// One packet on the wire.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) to_target: bool,
    pub(super) flags: u8,
    pub(super) sequence_number: u32,
    pub(super) acknowledgment_number: u32,
    pub(super) payload_bytes: u32,
    pub(super) identification: u16,
    /// TSval; 0: no timestamps.
    pub(super) timestamp: u32,
    /// TSecr.
    pub(super) echo: u32,
    pub(super) sack: Vec<(u32, u32)>,
    pub(super) is_sack_permitted: bool,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

impl Sent {
    pub(super) fn data(sequence_number: u32, payload_bytes: u32, identification: u16) -> Self {
        Self {
            to_target: true,
            flags: ACK,
            sequence_number,
            acknowledgment_number: 900,
            payload_bytes,
            identification,
            timestamp: 0,
            echo: 0,
            sack: Vec::new(),
            is_sack_permitted: false,
            hop_limit: 64,
            traffic_class: 0,
        }
    }

    pub(super) fn ack(acknowledgment_number: u32, identification: u16) -> Self {
        Self { to_target: false, acknowledgment_number, ..Self::data(900, 0, identification) }
    }

    pub(super) fn with_flags(self, flags: u8) -> Self {
        Self { flags, ..self }
    }

    pub(super) fn with_timestamp(self, timestamp: u32) -> Self {
        Self { timestamp, ..self }
    }

    pub(super) fn with_sack(self, sack: &[(u32, u32)]) -> Self {
        Self { sack: sack.to_vec(), ..self }
    }

    fn frame(&self, ports: (u16, u16)) -> Vec<u8> {
        let mut options = Vec::new();
        if self.timestamp != 0 {
            options.extend([1, 1, 8, 10]);
            options.extend(self.timestamp.to_be_bytes());
            options.extend(self.echo.to_be_bytes());
        }
        if self.is_sack_permitted {
            options.extend([1, 1, 4, 2]);
        }
        if !self.sack.is_empty() {
            options.extend([1, 1, 5, 2 + 8 * self.sack.len() as u8]);
            for (left, right) in &self.sack {
                options.extend(left.to_be_bytes());
                options.extend(right.to_be_bytes());
            }
        }
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (source, destination) = if self.to_target { (client, server) } else { (server, client) };
        let (source_port, destination_port) = if self.to_target { ports } else { (ports.1, ports.0) };
        // a super-segment has an IP length of 0
        let length = u16::try_from(40 + options.len() as u32 + self.payload_bytes).unwrap_or(0);
        let mut frame = vec![0x45, self.traffic_class];
        frame.extend(length.to_be_bytes());
        frame.extend(self.identification.to_be_bytes());
        frame.extend([0x40, 0, self.hop_limit, 6, 0, 0]);
        frame.extend(source);
        frame.extend(destination);
        frame.extend(source_port.to_be_bytes());
        frame.extend(destination_port.to_be_bytes());
        frame.extend(self.sequence_number.to_be_bytes());
        frame.extend(self.acknowledgment_number.to_be_bytes());
        frame.extend([(20 + options.len() as u8) << 2, self.flags, 1, 0, 0, 0, 0, 0]);
        frame.extend(options);
        frame
    }
}

/// Two captures by headers, and what they hold. Times are those of tap a's clock.
#[derive(Debug, Clone, Default)]
pub(super) struct Captures {
    pub(super) packets: [Vec<(i64, Sent)>; 2],
}

impl Captures {
    /// A packet passes a tap.
    pub(super) fn pass(&mut self, tap: usize, time_ns: i64, sent: &Sent) {
        self.packets[tap].push((time_ns, sent.clone()));
    }

    /// A packet passes both taps, 5 ms apart.
    pub(super) fn pass_both(&mut self, time_ns: i64, sent: &Sent) {
        let (first, second) = if sent.to_target { (0, 1) } else { (1, 0) };
        self.pass(first, time_ns, sent);
        self.pass(second, time_ns + 5 * MS, sent);
    }

    /// A packet passes the sender's tap alone.
    pub(super) fn pass_sender(&mut self, time_ns: i64, sent: &Sent) {
        self.pass(usize::from(!sent.to_target), time_ns, sent);
    }

    /// A packet passes the receiver's tap alone, 5 ms after it was sent.
    pub(super) fn pass_receiver(&mut self, time_ns: i64, sent: &Sent) {
        self.pass(usize::from(sent.to_target), time_ns + 5 * MS, sent);
    }

    fn input(&self, tap: usize) -> Input {
        let mut bytes = Vec::new();
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 101] {
            bytes.extend(word.to_le_bytes());
        }
        let mut packets = self.packets[tap].clone();
        packets.sort_by_key(|&(time_ns, _)| time_ns);
        for (time_ns, sent) in &packets {
            let time_ns = time_ns + 1_000_000_000_000 + if tap == 1 { OFFSET_NS } else { 0 };
            let frame = sent.frame(if tap == 0 { (5000, 3260) } else { (6000, 3260) });
            let wire = frame.len() as u32 + sent.payload_bytes;
            let words = [(time_ns / 1_000_000_000) as u32, (time_ns % 1_000_000_000) as u32, frame.len() as u32, wire];
            words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            bytes.extend(frame);
        }
        Input::Reader { name: format!("tap {tap}"), reader: Box::new(Cursor::new(bytes)) }
    }

    /// Joins the two captures of one connection.
    pub(super) fn join(&self) -> Joined {
        let pair = Pair { connections: [0, 0], is_client_target: [false, false] };
        let inputs = [vec![self.input(0)], vec![self.input(1)]];
        join(inputs, &[pair], OFFSET_NS, |_| Ok::<(), ()>(())).unwrap_or_else(|error| panic!("{error:?}"))
    }
}

/// Verdicts in the words of the schema, with the bytes, to the target or not.
pub(super) fn losses(joined: &Joined) -> Vec<(bool, i64, i64, &'static str)> {
    const WORDS: [&str; 4] = ["lost_in_network", "missing_at_a", "missing_at_b", "cannot_tell"];
    let losses = &joined.path_losses;
    let mut rows: Vec<_> = (0..losses.pair.len())
        .map(|row| {
            let verdict = WORDS[usize::from(losses.verdict[row])];
            (losses.to_target[row], losses.first_offset_bytes[row], losses.last_offset_bytes[row], verdict)
        })
        .collect();
    rows.sort_unstable();
    rows
}
