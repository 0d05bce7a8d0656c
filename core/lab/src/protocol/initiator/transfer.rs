//! Data-In, R2T and status of SCSI commands: their validation, and their effects on the command.

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::breach::InitiatorRule;
use super::connection::{Burst, Incoming};
use super::event::Outcome;
use super::receive::or_zero;
use super::session::Session;
use super::task::{Direction, Kind};
use super::violation::Violation;

/// Data of an R2T that is not sent (D9).
const SHORT_BYTES: u32 = 512;

impl Session {
    pub(super) fn begin_data_in(&mut self, now_ns: i64, index: usize, header: Bhs<'_>) -> Result<Incoming, Violation> {
        let (opcode, keys) = (Opcode::DataIn, &self.connections[index].parameters);
        let tag = or_zero(header.initiator_task_tag());
        let Some(task) = self.tasks.get_mut(tag).filter(|task| task.is_sent || task.kind == Kind::Ghost) else {
            return Err(Violation::UnknownTask { opcode, tag });
        };
        match task.kind {
            Kind::Ghost => return Ok(Incoming::Skip),
            Kind::Scsi => {}
            _ => return Err(Violation::UnknownTask { opcode, tag }),
        }
        if usize::from(task.connection) != index {
            return Err(Violation::Allegiance { opcode, tag, found: index as u16, expected: task.connection });
        }
        if task.command.direction != Direction::Read {
            return Err(Violation::WrongDirection { opcode, tag, section: "11.3.1" });
        }
        if header.is_acknowledge_requested() == Some(true) && keys.error_recovery_level == 0 {
            return Err(Violation::AcknowledgeRequested { tag });
        }
        let is_final = header.is_final() == Some(true);
        if header.has_status() == Some(true) && !is_final {
            return Err(Violation::StatusWithoutFinal { tag });
        }
        let (found, expected) = (or_zero(header.data_sn()), task.next_sn);
        if found != expected {
            return Err(Violation::DataSn { tag, found, expected });
        }
        task.next_sn = expected.next();
        let (offset, length) = (or_zero(header.buffer_offset()), or_zero(header.data_segment_length()));
        if length > 0 {
            let end = u64::from(offset) + u64::from(length);
            let expected_data_transfer_length = task.command.length_bytes;
            if end > u64::from(expected_data_transfer_length) {
                return Err(Violation::BeyondBuffer { tag, end, expected_data_transfer_length });
            }
            if keys.data_pdu_in_order && keys.data_sequence_in_order {
                if offset != task.transferred {
                    return Err(Violation::BufferOffset { tag, found: offset, expected: task.transferred });
                }
            } else if !task.ranges.add(offset, offset + length) {
                return Err(Violation::Overlap { tag, offset });
            }
            task.sequence_bytes += u64::from(length);
            if task.sequence_bytes > u64::from(keys.max_burst_length) {
                // real targets do it, and it is harmless: reported once
                if !self.has_long_bursts {
                    self.has_long_bursts = true;
                    let (length, max_burst_length) = (task.sequence_bytes, keys.max_burst_length);
                    self.remarks.push(Violation::BurstTooLong { tag, length, max_burst_length }.to_string());
                }
            }
            task.transferred += length;
            task.first_data_ns.get_or_insert(now_ns);
        }
        if is_final {
            task.sequence_bytes = 0;
        }
        Ok(Incoming::Task { tag, offset })
    }

    /// Section 11.4.7: sense data, after its length, without the response data.
    pub(super) fn sense(&self, index: usize) -> Result<Vec<u8>, Violation> {
        let (opcode, segment) = (Opcode::ScsiResponse, &self.connections[index].segment);
        let Some((length, rest)) = segment.split_first_chunk::<2>() else {
            let is_empty = segment.is_empty();
            let short = Violation::ShortData { opcode, length: segment.len(), needed: 2, section: "11.4.7" };
            return if is_empty { Ok(Vec::new()) } else { Err(short) };
        };
        let needed = usize::from(u16::from_be_bytes(*length));
        let short = Violation::ShortData { opcode, length: segment.len(), needed: needed + 2, section: "11.4.7" };
        rest.get(..needed).map(<[u8]>::to_vec).ok_or(short)
    }

    /// The status of a command, from a Data-In or a SCSI Response.
    pub(super) fn end_status(
        &mut self,
        opcode: Opcode,
        tag: u32,
        header: Bhs<'_>,
        sense: Vec<u8>,
    ) -> Result<(), Violation> {
        if self.tasks.get(tag).is_none_or(|task| task.kind != Kind::Scsi) {
            return Ok(());
        }
        let count = i64::from(or_zero(header.residual_count()));
        let residual = match (header.is_overflow() == Some(true), header.is_underflow() == Some(true)) {
            (true, true) => return Err(Violation::BothResiduals { opcode, tag }),
            (true, false) => count,
            (false, true) => -count,
            (false, false) => 0,
        };
        let response = if opcode == Opcode::ScsiResponse { or_zero(header.response()) } else { 0 };
        let outcome = match response {
            0 => Outcome::Status(or_zero(header.status())),
            failure => Outcome::TargetFailure(failure),
        };
        self.complete(tag, outcome, residual, sense, false);
        Ok(())
    }

    pub(super) fn end_r2t(&mut self, now_ns: i64, index: usize, tag: u32, header: Bhs<'_>) -> Result<(), Violation> {
        let opcode = Opcode::ReadyToTransfer;
        if !self.expect(index, opcode, tag, |kind| kind == Kind::Scsi)? {
            return Ok(());
        }
        let connection = &mut self.connections[index];
        let keys = &connection.parameters;
        let Some(task) = self.tasks.get_mut(tag) else { return Ok(()) };
        if task.command.direction != Direction::Write {
            return Err(Violation::WrongDirection { opcode, tag, section: "11.8" });
        }
        let (found, expected) = (or_zero(header.r2t_sn()), task.next_sn);
        if found != expected {
            return Err(Violation::R2tSn { tag, found, expected });
        }
        let target_transfer_tag = or_zero(header.target_transfer_tag());
        if target_transfer_tag == RESERVED_TAG {
            return Err(Violation::R2tWithoutTag { tag });
        }
        let (offset, length) = (or_zero(header.buffer_offset()), or_zero(header.desired_data_transfer_length()));
        if length == 0 {
            return Err(Violation::R2tEmpty { tag });
        }
        if length > keys.max_burst_length {
            return Err(Violation::R2tTooLong { tag, length, max_burst_length: keys.max_burst_length });
        }
        let end = u64::from(offset) + u64::from(length);
        let expected_data_transfer_length = task.command.length_bytes;
        if end > u64::from(expected_data_transfer_length) {
            return Err(Violation::R2tBeyondBuffer { tag, end, expected_data_transfer_length });
        }
        if keys.data_sequence_in_order {
            if offset < task.granted {
                return Err(Violation::R2tOverlap { tag, offset });
            }
            if offset != task.granted {
                return Err(Violation::R2tOffset { tag, found: offset, expected: task.granted });
            }
        } else if !task.ranges.add(offset, offset + length) {
            return Err(Violation::R2tOverlap { tag, offset });
        }
        if u32::from(task.outstanding_r2t_count) >= keys.max_outstanding_r2t {
            return Err(Violation::TooManyR2ts { tag, max_outstanding_r2t: keys.max_outstanding_r2t });
        }
        task.next_sn = expected.next();
        task.outstanding_r2t_count += 1;
        task.granted += length;
        task.first_data_ns.get_or_insert(now_ns);
        let breaches = &self.settings.breaches;
        let is_short = length > SHORT_BYTES && breaches.breaks(InitiatorRule::D9);
        let is_waiting = |burst: &Burst| burst.tag == tag && burst.data_sn == SerialNumber(0);
        let earlier = connection.bursts.iter().position(is_waiting);
        let place = earlier.filter(|_| breaches.breaks(InitiatorRule::D11)).unwrap_or(connection.bursts.len());
        let burst = Burst {
            tag,
            target_transfer_tag,
            // Section 11.7.4: Data-Out returns the LUN of the R2T with its tag.
            lun: or_zero(header.lun()),
            offset,
            end: offset + length - if is_short { SHORT_BYTES } else { 0 },
            is_exchanged: false,
            data_sn: SerialNumber(0),
        };
        let other = (0..self.connections.len()).find(|other| *other != index && self.is_usable(*other));
        let carrier = other.filter(|_| self.settings.breaches.breaks(InitiatorRule::T8)).unwrap_or(index);
        let bursts = &mut self.connections[carrier].bursts;
        bursts.insert(place.min(bursts.len()), burst);
        Ok(())
    }
}
