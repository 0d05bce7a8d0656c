//! The data of one write: unsolicited data, R2Ts, and checks of Data-Out PDUs.
//!
//! ```text
//!   0        immediate     unsolicited        R2T          R2T     length
//!   |----------------|-----------------|-------------|-------------|
//!                       up to FirstBurstLength   each up to MaxBurstLength
//! ```
//!
//! It counts bytes and holds none.

use iscsitrace_wire::bhs::RESERVED_TAG;

use super::settings::R2tOrder;
use crate::protocol::keys::Parameters;
use crate::scsi::{Sense, SenseKey};

/// Errors that end a write with CHECK CONDITION (RFC 7143 section 11.4.7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// Unexpected or too much unsolicited data.
    UnexpectedUnsolicitedData,
    /// A wrong amount of data.
    IncorrectAmountOfData,
    /// A Data-Out had a wrong digest, or is missing.
    ProtocolServiceCrcError,
}

impl Condition {
    /// Sense key ABORTED COMMAND, with the additional sense code and qualifier of the RFC's table.
    pub(super) fn sense(self) -> Sense {
        let (code, qualifier) = match self {
            Self::UnexpectedUnsolicitedData => (0x0c, 0x0c),
            Self::IncorrectAmountOfData => (0x0c, 0x0d),
            Self::ProtocolServiceCrcError => (0x47, 0x05),
        };
        Sense::new(SenseKey::AbortedCommand, code, qualifier)
    }
}

/// The judgement of a Data-Out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Its data is expected.
    Good,
    /// A Data-Out before it is missing, or the write has failed; its data is dropped.
    Gap,
    /// It is invalid; its data is dropped, and it is rejected.
    Wrong,
    /// Its Target Transfer Tag is unknown.
    Unknown,
}

/// Fields of a Data-Out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub target_transfer_tag: u32,
    pub data_sn: u32,
    pub buffer_offset: u32,
    pub length: u32,
    pub is_final: bool,
}

/// A sequence of Data-Out: unsolicited, or for one R2T.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sequence {
    tag: u32,
    offset: u32,
    length: u32,
    received: u32,
    data_sn: u32,
}

/// An R2T to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadyToTransfer {
    pub target_transfer_tag: u32,
    pub r2t_sn: u32,
    pub buffer_offset: u32,
    pub desired_data_transfer_length: u32,
}

/// The data of one write.
#[derive(Debug, Default)]
pub(super) struct DataOut {
    expected: u32,
    /// Incomplete sequences; the unsolicited one has the reserved tag.
    open: Vec<Sequence>,
    /// End of the unsolicited data received without gaps.
    unsolicited: u32,
    /// Data length of the command.
    length: u32,
    /// Bursts requested, R2TSN of the next R2T.
    asked: u32,
    /// Stride of the shuffled order: coprime to the number of bursts.
    stride: u32,
    received: u64,
    condition: Option<Condition>,
}

impl DataOut {
    /// Starts a write with `immediate` bytes; without `is_final`, unsolicited Data-Out follow. Reuses its memory.
    pub(super) fn begin(&mut self, expected: u32, immediate: u32, is_final: bool, parameters: &Parameters) {
        let mut open = std::mem::take(&mut self.open);
        open.clear();
        *self = Self { expected, open, unsolicited: immediate, received: immediate.into(), ..Self::default() };
        let limit = expected.min(parameters.first_burst_length);
        // RFC 7143 sections 13.11 and 13.14
        if immediate > 0 && (!parameters.immediate_data || immediate > limit) {
            self.condition = Some(Condition::UnexpectedUnsolicitedData);
        }
        let length = limit.saturating_sub(immediate);
        if !is_final && length > 0 {
            // RFC 7143 section 13.10
            if parameters.initial_r2t {
                self.condition = Some(Condition::UnexpectedUnsolicitedData);
            }
            self.open.push(Sequence { tag: RESERVED_TAG, offset: immediate, length, received: 0, data_sn: 0 });
        }
    }

    /// Sets the data length of the command: the smaller of it and Expected Data Transfer Length is requested.
    pub(super) fn set_length(&mut self, length: u64, random: u32) {
        self.length = u32::try_from(length).unwrap_or(u32::MAX).min(self.expected);
        self.stride = random;
    }

    /// Forgets the unsolicited data: it is requested (D7).
    pub(super) fn forget_unsolicited(&mut self) {
        self.unsolicited = 0;
    }

    /// Whether R2Ts can ask for unsolicited data.
    pub(super) fn has_unsolicited_only(&self) -> bool {
        self.asked == 0 && self.unsolicited > 0 && self.open.is_empty()
    }

    /// End of the unsolicited data, also of what is still to come.
    pub(super) fn unsolicited_end(&self) -> u32 {
        let open = self.open.iter().find(|sequence| sequence.tag == RESERVED_TAG);
        open.map_or(self.unsolicited, |sequence| sequence.offset + sequence.length)
    }

    /// Bytes that the command takes.
    pub(super) fn length(&self) -> u32 {
        self.length
    }

    /// Bytes received.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Number of R2Ts.
    pub(super) fn r2t_count(&self) -> u32 {
        self.asked
    }

    /// The error, if any.
    pub(super) fn condition(&self) -> Option<Condition> {
        self.condition
    }

    /// Records an error; the first one is kept.
    pub(super) fn fail(&mut self, condition: Condition) {
        self.condition.get_or_insert(condition);
    }

    /// Outstanding Target Transfer Tags, without the reserved one.
    pub(super) fn tags(&self) -> impl Iterator<Item = u32> {
        self.open.iter().map(|sequence| sequence.tag).filter(|tag| *tag != RESERVED_TAG)
    }

    /// Whether unsolicited data is expected.
    pub(super) fn is_unsolicited_open(&self) -> bool {
        self.open.iter().any(|sequence| sequence.tag == RESERVED_TAG)
    }

    /// Whether all data has arrived.
    pub(super) fn is_complete(&self, max_burst_length: u32) -> bool {
        self.open.is_empty() && (self.condition.is_some() || self.asked >= self.burst_count(max_burst_length))
    }

    /// Takes the header of a Data-Out.
    pub(super) fn take(&mut self, piece: Piece, parameters: &Parameters) -> Fit {
        let Some(place) = self.open.iter().position(|sequence| sequence.tag == piece.target_transfer_tag) else {
            return Fit::Unknown;
        };
        let sequence = &mut self.open[place];
        let end = u64::from(piece.buffer_offset) + u64::from(piece.length);
        let sequence_end = u64::from(sequence.offset) + u64::from(sequence.length);
        let is_inside = piece.buffer_offset >= sequence.offset && end <= sequence_end;
        let mut fit = if !is_inside || sequence.received + piece.length > sequence.length {
            Fit::Wrong
        } else if piece.data_sn != sequence.data_sn || self.condition.is_some() {
            // RFC 7143 section 7.9: a Data-Out before it was lost
            Fit::Gap
        } else if parameters.data_pdu_in_order && piece.buffer_offset != sequence.offset + sequence.received {
            // RFC 7143 section 13.18
            Fit::Wrong
        } else {
            Fit::Good
        };
        sequence.data_sn = piece.data_sn.wrapping_add(1);
        if fit == Fit::Good {
            sequence.received += piece.length;
            self.received += u64::from(piece.length);
            if !piece.is_final && sequence.received == sequence.length {
                // RFC 7143 section 11.7.1: the last of a sequence has the F bit
                fit = Fit::Wrong;
            }
        }
        let sequence = *sequence;
        match fit {
            Fit::Gap => self.fail(Condition::ProtocolServiceCrcError),
            Fit::Wrong => self.fail(Condition::IncorrectAmountOfData),
            Fit::Good | Fit::Unknown => {}
        }
        if piece.is_final || sequence.received == sequence.length {
            self.open.swap_remove(place);
            self.end_sequence(sequence, parameters);
        }
        fit
    }

    /// RFC 7143 section 11.4.7.2: checks the amount of a completed sequence.
    fn end_sequence(&mut self, sequence: Sequence, parameters: &Parameters) {
        let is_short = sequence.received < sequence.length;
        if sequence.tag == RESERVED_TAG {
            self.unsolicited = sequence.offset + sequence.received;
            // the rest of a write that FirstBurstLength would have allowed is requested
            if is_short && self.expected > parameters.first_burst_length {
                self.fail(Condition::IncorrectAmountOfData);
            }
        } else if is_short {
            self.fail(Condition::IncorrectAmountOfData);
        }
    }

    fn burst_count(&self, max_burst_length: u32) -> u32 {
        self.length.saturating_sub(self.unsolicited).div_ceil(max_burst_length.max(1))
    }

    /// The next R2T, if one more may be outstanding.
    pub(super) fn next_r2t(
        &mut self,
        parameters: &Parameters,
        order: R2tOrder,
        target_transfer_tag: impl FnOnce() -> u32,
    ) -> Option<ReadyToTransfer> {
        let (max_burst_length, count) = (parameters.max_burst_length, self.burst_count(parameters.max_burst_length));
        let is_full = self.open.len() as u64 >= u64::from(parameters.max_outstanding_r2t);
        if self.asked >= count || is_full || self.is_unsolicited_open() || self.condition.is_some() {
            return None;
        }
        // RFC 7143 section 13.19
        let order = if parameters.data_sequence_in_order { R2tOrder::InOrder } else { order };
        let burst = match order {
            R2tOrder::InOrder => self.asked,
            R2tOrder::Reverse => count - 1 - self.asked,
            R2tOrder::Shuffled => self.shuffled(count),
        };
        let buffer_offset = self.unsolicited + burst * max_burst_length;
        let desired_data_transfer_length = (self.length - buffer_offset).min(max_burst_length);
        let r2t = ReadyToTransfer {
            target_transfer_tag: target_transfer_tag(),
            r2t_sn: self.asked,
            buffer_offset,
            desired_data_transfer_length,
        };
        self.open.push(Sequence {
            tag: r2t.target_transfer_tag,
            offset: buffer_offset,
            length: desired_data_transfer_length,
            received: 0,
            data_sn: 0,
        });
        self.asked += 1;
        Some(r2t)
    }

    /// Order of the bursts in strides modulo their number: each once, because the stride is coprime.
    fn shuffled(&self, count: u32) -> u32 {
        let (count, random) = (u64::from(count), u64::from(self.stride));
        let mut stride = random % count;
        while greatest_common_divisor(stride, count) != 1 {
            stride = (stride + 1) % count;
            if count == 1 {
                break;
            }
        }
        ((random / count + u64::from(self.asked) * stride) % count) as u32
    }
}

fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

#[cfg(test)]
mod tests;
