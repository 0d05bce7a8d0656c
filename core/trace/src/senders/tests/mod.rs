//! Small conversations at a tap beside the client or far from it, with results computed by hand.

mod acks;
mod any;
mod black_hole;
mod delayed_acks;
mod flights;
mod gap;
mod line;
mod load;
mod loss;
mod lost_acks;
mod remembered;
mod rows;
mod rtt;
mod window;

use super::SenderPair;
use super::held;
use super::observation::Observation;
use crate::stream::class::SegmentClass;
use crate::tables::{Tables, Wanted, budget_part as part};
use iscsitrace_wire::frame::TcpFlags;

/// Its number.
const CONNECTION: u32 = 7;
const FIN: u8 = 0x01;
const ACK: u8 = 0x10;
const SYN: u8 = 0x02;
const MS: i64 = 1_000_000;
const SEGMENT: i64 = 1000;
/// RTT to the server from a tap beside the client.
const AWAY_NS: i64 = 20 * MS;

/// A connection whose packets are given in the order of the tap; the client sends the data.
struct Conversation {
    senders: SenderPair,
    frame: u64,
    window: u16,
    scale: Option<u8>,
    has_sack: Option<bool>,
    highest: i64,
}

impl Conversation {
    /// Both SYNs and the ACK: the server is 20 ms away, the client beside the tap.
    fn begin() -> Self {
        let mut talk = Self::without_syn();
        (talk.scale, talk.has_sack) = (Some(0), Some(true));
        let syn = talk.packet(-AWAY_NS, 0, 0, 0, None);
        talk.see(Observation { flags: TcpFlags(SYN), ..syn });
        let syn = talk.packet(0, 1, 0, 0, Some(0));
        talk.see(Observation { flags: TcpFlags(SYN | ACK), ..syn });
        let ack = talk.packet(0, 0, 0, 0, Some(0));
        talk.see(ack);
        talk
    }

    fn without_syn() -> Self {
        let senders = SenderPair::new(CONNECTION, Wanted::ALL);
        Self { senders, frame: 0, window: 60_000, scale: None, has_sack: None, highest: 0 }
    }

    fn packet(&mut self, time_ns: i64, direction: usize, offset: i64, length: u32, acks: Option<i64>) -> Observation {
        self.frame += 1;
        Observation {
            frame: self.frame,
            class: if length > 0 { SegmentClass::New } else { SegmentClass::Empty },
            offset,
            length,
            acknowledged: acks,
            window: self.window,
            window_scale: self.scale,
            segment_max: Some(SEGMENT as u16),
            is_sack_permitted: self.has_sack,
            ..Observation::bare(time_ns, direction)
        }
    }

    fn see(&mut self, seen: Observation) {
        self.senders.observe(&seen);
    }

    /// Full segments of new data.
    fn data(&mut self, time_ns: i64, count: i64) {
        for _ in 0..count {
            let seen = self.packet(time_ns, 0, self.highest, SEGMENT as u32, Some(0));
            self.highest += SEGMENT;
            self.see(seen);
        }
    }

    /// A retransmission of one segment.
    fn again(&mut self, time_ns: i64, segment: i64) {
        let seen = self.packet(time_ns, 0, segment * SEGMENT, SEGMENT as u32, Some(0));
        self.see(Observation { class: SegmentClass::Retransmission, ..seen });
    }

    /// An ACK of everything before this segment, with SACK blocks.
    fn ack(&mut self, time_ns: i64, segment: i64, sacks: &[(i64, i64)]) {
        let mut seen = self.packet(time_ns, 1, 0, 0, Some(segment * SEGMENT));
        for (place, &(left, right)) in sacks.iter().enumerate() {
            seen.sacks[place] = (left * SEGMENT, right * SEGMENT);
            seen.sack_count += 1;
        }
        self.see(seen);
    }

    /// A request of the server.
    fn request(&mut self, time_ns: i64, offset: i64, segment: i64) {
        let seen = self.packet(time_ns, 1, offset, 48, Some(segment * SEGMENT));
        self.see(seen);
    }

    /// New data of any length, within a PDU that lacks `left_of_pdu` more bytes.
    fn piece(&mut self, time_ns: i64, length: u32, left_of_pdu: Option<u32>, acknowledged: i64) {
        let seen = self.packet(time_ns, 0, self.highest, length, Some(acknowledged));
        self.highest += i64::from(length);
        self.see(Observation { left_of_pdu, ..seen });
    }

    /// When the client was limited, and by which part, in ms.
    fn limited(self) -> Vec<(i64, i64, u8)> {
        let timeline = Box::new(self.senders).finish(true, &mut Tables::default());
        timeline.limited[0].iter().map(|limited| (limited.from_ns / MS, limited.to_ns / MS, limited.part)).collect()
    }

    fn finish(self) -> Tables {
        let mut tables = Tables::default();
        let timeline = Box::new(self.senders).finish(true, &mut tables);
        held::settle(&mut [timeline], &tables.cycles, &mut tables.senders);
        tables
    }
}

/// Frames 4 to 13 carry ten segments, of which the third is lost; 14 to 17 report that, 18 repeats it, 19 acknowledges
/// all.
fn recovered_loss() -> Conversation {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 10);
    talk.ack(120 * MS, 2, &[]);
    talk.ack(121 * MS, 2, &[(3, 4)]);
    talk.ack(122 * MS, 2, &[(3, 5)]);
    talk.ack(123 * MS, 2, &[(3, 6)]);
    talk.again(123 * MS, 2);
    talk.ack(143 * MS, 10, &[]);
    talk
}
