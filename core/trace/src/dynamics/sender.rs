//! One direction of a connection as its sender sees it: outstanding data, window, losses, congestion window.

use super::Rows;
use super::observation::Observation;
use crate::tables::SenderRow;

/// The sender after its last packet that passed the tap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderState {
    /// Highest byte sent less last byte acknowledged, as the sender knew it.
    pub owin: i64,
    /// Of these, what is still thought to be under way (RFC 6675, section 4).
    pub pipe: i64,
    /// The advertised window, as the sender knew it.
    pub rwnd: Option<i64>,
    /// Whether a loss is being repaired.
    pub is_in_recovery: bool,
    /// The last ACK that the sender had when it sent the packet.
    pub last_ack: Option<LastAck>,
}

/// An ACK that let a sender go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastAck {
    /// When its answer could pass the tap first: its capture time, and the round trip from the tap to the sender.
    pub answer_ns: i64,
    /// Whether it acknowledged new data.
    pub is_advance: bool,
    /// Whether it opened a window that had been too small for a full segment.
    pub has_opened_window: bool,
    /// What was outstanding after it.
    pub owin: i64,
}

/// The sender of one direction.
#[derive(Debug)]
pub struct Sender {
    connection: u32,
    is_from_client: bool,
    state: SenderState,
    sent: i64,
    acknowledged: i64,
    due: std::collections::VecDeque<(i64, i64, i64)>,
}

impl Sender {
    /// A sender of which nothing is known.
    pub fn new(connection: u32, is_from_client: bool) -> Self {
        Self {
            connection,
            is_from_client,
            state: SenderState::default(),
            sent: 0,
            acknowledged: 0,
            due: Default::default(),
        }
    }

    /// After its last packet.
    pub fn state(&self) -> SenderState {
        self.state
    }

    /// One of its packets, with payload, passed the tap.
    pub fn transmit(&mut self, seen: &Observation, _rows: &mut Rows) {
        while let Some(&(answer_ns, acknowledged, rwnd)) = self.due.front()
            && answer_ns <= seen.time_ns
        {
            self.due.pop_front();
            let is_advance = acknowledged > self.acknowledged;
            self.acknowledged = self.acknowledged.max(acknowledged);
            self.state.owin = self.sent - self.acknowledged;
            self.state.rwnd = Some(rwnd);
            if is_advance {
                self.state.last_ack =
                    Some(LastAck { answer_ns, is_advance, has_opened_window: false, owin: self.state.owin });
            }
        }
        self.sent = self.sent.max(seen.end());
        self.state.owin = self.sent - self.acknowledged;
        self.state.pipe = self.state.owin;
    }

    /// A packet to it passed the tap; `rtt_ns` is the least round trip from the tap to it.
    pub fn acknowledge(&mut self, seen: &Observation, rtt_ns: Option<i64>, _rows: &mut Rows) {
        let Some(acknowledged) = seen.acknowledged else { return };
        self.due.push_back((
            seen.time_ns.saturating_add(rtt_ns.unwrap_or(0)),
            acknowledged,
            i64::from(seen.window) << seen.window_scale.unwrap_or(0),
        ));
    }

    /// The end of the direction: its row.
    pub fn finish(&mut self, _rows: &mut Rows) -> SenderRow {
        SenderRow { connection: self.connection, to_target: self.is_from_client, ..SenderRow::default() }
    }
}
