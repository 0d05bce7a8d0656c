//! Pending PDUs, and their encoding into the stream. Sequence numbers are assigned when a PDU is sent.

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, LENGTH_BYTES};
use iscsitrace_wire::serial::SerialNumber;

use super::ending::Ending;
use super::log::PortalLog;
use super::rule::TargetRule;
use crate::application::ConnectionNumber;
use crate::protocol::breach::Breaches;
use crate::protocol::pdu::{self, Digests};
use crate::protocol::pdu_log::PduRecord;

/// The StatSN of a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatSn {
    /// The next one, which it consumes: it is a status (RFC 7143 section 4.2.2.2).
    Taken,
    /// The next one, without consuming it.
    Shown,
    /// None.
    Absent,
}

/// The credit that a sent PDU returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Credit {
    /// None: it is no answer.
    None,
    /// One command of the command window.
    Window,
    /// One immediate command of the connection.
    Immediate,
}

/// The action after a PDU is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing.
    Nothing,
    /// The login is done: the negotiated parameters apply.
    LoggedIn,
    /// A task is done.
    Completed { record: Option<usize>, status: u8 },
    /// An R2T was sent.
    Asked { record: Option<usize> },
    /// The connection ends.
    EndConnection(Ending),
    /// The session ends, with all its connections.
    EndSession(Ending),
    /// All sessions with this target end.
    EndTarget(usize),
}

/// An injected digest error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    Header,
    Data,
}

/// A pending PDU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub header: [u8; LENGTH_BYTES],
    pub data: Vec<u8>,
    pub stat_sn: StatSn,
    pub credit: Credit,
    pub then: Then,
    pub damage: Option<Damage>,
}

impl Outgoing {
    /// A PDU that consumes a StatSN.
    pub fn status(header: BhsBuilder, data: Vec<u8>, credit: Credit, then: Then) -> Self {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let header = header.data_segment_length(length).build();
        Self { header, data, stat_sn: StatSn::Taken, credit, then, damage: None }
    }

    /// Whether no window bounds it: Rejects and pings. R2Ts are bounded by their tasks.
    pub fn is_unbidden(&self) -> bool {
        self.credit == Credit::None && !matches!(self.then, Then::Asked { .. })
    }

    /// A PDU that carries the next StatSN without consuming it.
    pub fn shown(header: BhsBuilder, data: Vec<u8>, then: Then) -> Self {
        Self { stat_sn: StatSn::Shown, ..Self::status(header, data, Credit::None, then) }
    }
}

/// The sequence numbers of every PDU of a target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub exp_cmd_sn: SerialNumber,
    pub max_cmd_sn: SerialNumber,
}

/// The stream to an initiator.
#[derive(Debug)]
pub(super) struct Stream {
    pub connection: ConnectionNumber,
    pub stat_sn: SerialNumber,
    pub digests: Digests,
    pub sent_bytes: u64,
    /// MaxCmdSN, from when it no longer increases.
    pub frozen_max_cmd_sn: Option<SerialNumber>,
}

impl Stream {
    /// Appends a PDU; `append` writes its data, which is padded with zeros to the length in the header.
    ///
    /// A digest error that this PDU cannot have is left for the next one.
    #[allow(clippy::too_many_arguments, reason = "what a PDU is made of")]
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        mut header: [u8; LENGTH_BYTES],
        stat_sn: StatSn,
        numbers: Numbers,
        damage: &mut Option<Damage>,
        breaches: &Breaches<TargetRule>,
        log: &mut PortalLog,
        append: impl FnOnce(&mut Vec<u8>),
    ) {
        let is_used = self.uses_stat_sn(Bhs::new(&header).opcode(), stat_sn, breaches);
        if stat_sn != StatSn::Absent {
            header[24..28].copy_from_slice(&self.stat_sn.0.to_be_bytes());
        }
        if is_used {
            self.stat_sn = self.stat_sn.next();
        }
        if breaches.breaks(TargetRule::S8) {
            self.frozen_max_cmd_sn.get_or_insert(numbers.max_cmd_sn);
        }
        let max_cmd_sn = self.frozen_max_cmd_sn.unwrap_or(numbers.max_cmd_sn);
        header[28..32].copy_from_slice(&numbers.exp_cmd_sn.0.to_be_bytes());
        header[32..36].copy_from_slice(&max_cmd_sn.0.to_be_bytes());
        breaches.spoil(&mut header);
        let start = out.len();
        pdu::encode(out, &header, &[], self.digests, append);
        // the last byte of a digest
        let damaged = match damage {
            Some(Damage::Header) if self.digests.header => Some(start + LENGTH_BYTES + 3),
            Some(Damage::Data) if self.digests.data && has_data(&header) => out.len().checked_sub(1),
            _ => None,
        };
        if let Some(byte) = damaged.and_then(|place| out.get_mut(place)) {
            *byte ^= 0xff;
            *damage = None;
        }
        if let Some(last) = self.digests.last_byte(start, out.len(), has_data(&header))
            && breaches.breaks(TargetRule::D21)
            && let Some(byte) = out.get_mut(last)
        {
            *byte ^= 0xff;
        }
        let pdu_length = (out.len() - start) as u64;
        log.counters.pdus_sent += 1;
        log.pdu(|| PduRecord::new(self.connection, false, self.sent_bytes, pdu_length, &header));
        self.sent_bytes += pdu_length;
    }
}

fn has_data(header: &[u8; LENGTH_BYTES]) -> bool {
    Bhs::new(header).data_segment_length() != Some(0)
}
