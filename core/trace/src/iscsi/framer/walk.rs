//! The walk through one PDU: its parts, digests and end.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::digest;

use super::Framer;
use super::listener::Listener;
use super::progress::HEADER_WALK_BYTES;
use crate::counters::Counter;
use crate::iscsi::digest_use::DigestUse;
use crate::iscsi::pdu::{KEPT_DATA_MAX, Pdu};
use crate::iscsi::synchroniser::Fit;
use crate::stream::chunk::Chunk;
use crate::stream::stamp::Stamp;

impl Framer {
    /// Walks one part of the PDU; returns how much of the chunk is used then.
    #[inline]
    pub(super) fn walk(&mut self, chunk: &Chunk<'_>, used: u32, stamp: Stamp, listener: &mut impl Listener) -> u32 {
        if self.pdu.position < LENGTH_BYTES as u64 {
            return self.walk_header(chunk, used, stamp, listener);
        }
        self.pdu.note(stamp, chunk.is_late);
        let position = self.pdu.position;
        if position < self.pdu.data_end {
            self.pdu.data_last_ns = self.pdu.data_last_ns.max(stamp.time_ns);
        }
        let boundary = if position < self.pdu.ahs_end {
            self.pdu.ahs_end
        } else if position < self.pdu.data_start {
            self.pdu.data_start
        } else if position < self.pdu.data_end {
            self.pdu.data_packets.note(stamp.frame);
            self.pdu.data_end
        } else if position < self.pdu.digest_start {
            self.pdu.digest_start
        } else {
            self.pdu.end
        };
        let length = (boundary - position).min(u64::from(chunk.length - used)) as u32;
        let (from, to) = (used as usize, (used + length) as usize);
        let known = chunk.captured.get(from..to.min(chunk.captured.len())).unwrap_or_default();
        self.take_body(known, length as usize);
        self.pdu.position += u64::from(length);
        if self.pdu.position == boundary {
            self.end_part(chunk, used + length, listener);
        }
        used + length
    }

    /// Processes bytes of AHS, data or digests (`known` can be shorter than `length`).
    #[inline]
    fn take_body(&mut self, known: &[u8], length: usize) {
        let pdu = &mut self.pdu;
        let is_known = known.len() == length;
        if pdu.position < pdu.ahs_end || (pdu.position >= pdu.data_start && pdu.position < pdu.digest_start) {
            if pdu.wants_crc {
                pdu.crc = if is_known { pdu.crc.map(|crc| digest::append(crc, known)) } else { None };
            }
            let data_position = pdu.position.wrapping_sub(pdu.data_start) as usize;
            if pdu.keep > pdu.kept.len()
                && pdu.position >= pdu.data_start
                && pdu.position < pdu.data_end
                && data_position == pdu.kept.len()
            {
                let wanted = (pdu.keep - pdu.kept.len()).min(known.len());
                pdu.kept.extend_from_slice(&known[..wanted]);
            }
        } else {
            let digest_start = if pdu.position < pdu.data_start { pdu.ahs_end } else { pdu.digest_start };
            let from = (pdu.position - digest_start) as usize;
            match pdu.digest.get_mut(from..from + length) {
                Some(digest) if is_known => digest.copy_from_slice(known),
                _ => pdu.crc = None,
            }
        }
    }

    /// At the end of a part: infers and verifies digests, and completes the PDU.
    #[inline]
    fn end_part(&mut self, chunk: &Chunk<'_>, used: u32, listener: &mut impl Listener) {
        if self.pdu.position == self.pdu.ahs_end && self.pdu.position < self.pdu.data_start {
            return;
        }
        if self.pdu.position == self.pdu.data_start {
            if self.pdu.data_start > self.pdu.ahs_end {
                self.pdu.header_digest_ok = self.pdu.crc.map(|crc| digest::to_wire(crc) == self.pdu.digest);
            }
            self.start_data_crc();
        }
        if self.data_digest == DigestUse::Unknown
            && self.pdu.position == self.pdu.digest_start
            && self.pdu.data_end > self.pdu.data_start
        {
            self.infer_data_digest(chunk, used);
        }
        if self.pdu.position == self.pdu.end {
            if self.pdu.end > self.pdu.digest_start {
                self.pdu.data_digest_ok = self.pdu.crc.map(|crc| digest::to_wire(crc) == self.pdu.digest);
            }
            self.complete(listener);
        }
    }

    #[inline]
    fn start_data_crc(&mut self) {
        let has_data = self.pdu.data_end > self.pdu.data_start;
        self.pdu.wants_crc =
            has_data && self.data_digest != DigestUse::Known(false) && self.data_digest != DigestUse::Inferred(false);
        self.pdu.crc = self.pdu.wants_crc.then_some(0);
    }

    /// Collects the header; at its end, computes the positions of the parts.
    #[inline]
    fn walk_header(&mut self, chunk: &Chunk<'_>, used: u32, stamp: Stamp, listener: &mut impl Listener) -> u32 {
        if self.data_digest == DigestUse::Unknown
            && self.had_data
            && self.pdu.position == 0
            && self.take_late_digest(chunk, used)
        {
            listener.late_digest(self.pdu.start - 4);
            return used + 4;
        }
        self.pdu.note(stamp, chunk.is_late);
        let position = self.pdu.position as usize;
        let length = (LENGTH_BYTES - position).min((chunk.length - used) as usize);
        let from = used as usize;
        let known = chunk.captured.get(from..(from + length).min(chunk.captured.len())).unwrap_or_default();
        if let Some(whole) = known.first_chunk() {
            // the usual case, without a call
            self.pdu.header = *whole;
            self.pdu.header_known = LENGTH_BYTES;
        } else if self.pdu.header_known == position {
            self.pdu.header[position..position + known.len()].copy_from_slice(known);
            self.pdu.header_known += known.len();
        }
        self.pdu.position += length as u64;
        let used = used + length as u32;
        if self.pdu.position < LENGTH_BYTES as u64 {
            return used;
        }
        self.end_header(chunk, used, stamp, listener)
    }

    /// At the end of the header: checks that it is one.
    #[inline]
    pub(super) fn end_header(
        &mut self,
        chunk: &Chunk<'_>,
        used: u32,
        stamp: Stamp,
        listener: &mut impl Listener,
    ) -> u32 {
        if self.pdu.header_known < HEADER_WALK_BYTES {
            return self.pass_cut_header(chunk, listener);
        }
        let known = self.pdu.header_known;
        let fit = listener.judge(Bhs::new(&self.pdu.header[..known]));
        if fit == Fit::No {
            listener.count(Counter::PduInvalid, stamp.frame, 1);
            listener.count(Counter::SyncLost, stamp.frame, 1);
            self.lose_sync(self.pdu.start, Some(chunk));
            return self.search(chunk, listener);
        }
        if known < LENGTH_BYTES {
            listener.count(Counter::PduHeaderCut, stamp.frame, 1);
        }
        if self.data_digest == DigestUse::Unknown && self.had_data && fit == Fit::Certain {
            // right behind data
            self.data_digest = DigestUse::Inferred(false);
        }
        self.start_body(chunk, used, listener);
        used
    }

    /// The header is complete: computes the parts that follow.
    #[inline]
    pub(super) fn start_body(&mut self, chunk: &Chunk<'_>, used: u32, listener: &mut impl Listener) {
        self.alignment = Some(self.pdu.start.rem_euclid(4));
        listener.begin(Bhs::new(&self.pdu.header[..self.pdu.header_known]), self.pdu.first);
        if self.header_digest == DigestUse::Unknown {
            self.infer_header_digest(chunk, used);
        }
        self.pdu.lay_out(self.header_digest.is_used(), self.data_digest.is_used());
        let known = self.pdu.header_known;
        self.pdu.keep = listener.keeps_data(Bhs::new(&self.pdu.header[..known])).min(KEPT_DATA_MAX);
        if self.header_digest.is_used() {
            self.pdu.wants_crc = true;
            self.pdu.crc = (known == LENGTH_BYTES).then(|| digest::crc32c(&self.pdu.header));
        } else {
            // the CRC of the data starts after the AHS
            self.pdu.wants_crc = false;
            if self.pdu.ahs_end == LENGTH_BYTES as u64 {
                self.start_data_crc();
            }
        }
        if self.pdu.position == self.pdu.end {
            self.complete(listener);
        }
    }

    /// Hands the PDU over and expects the next header.
    #[inline]
    pub(super) fn complete(&mut self, listener: &mut impl Listener) {
        let end = self.pdu.start + self.pdu.end as i64;
        self.had_data = self.pdu.data_end > self.pdu.data_start;
        self.emit(end, listener);
        self.pdu.begin(end);
    }

    #[inline]
    pub(super) fn emit(&mut self, end: i64, listener: &mut impl Listener) {
        let pdu = &mut self.pdu;
        let last = if pdu.position == pdu.end && !pdu.is_end_missing { pdu.last } else { None };
        self.explained_bytes += pdu.position;
        let frame = pdu.first.frame;
        for (is_ok, digest, counter) in [
            (&mut pdu.header_digest_ok, &mut self.header_digest, Counter::HeaderDigestError),
            (&mut pdu.data_digest_ok, &mut self.data_digest, Counter::DataDigestError),
        ] {
            match *is_ok {
                Some(true) if *digest == DigestUse::ByLength => *digest = DigestUse::Inferred(true),
                Some(false) if *digest == DigestUse::ByLength => (*is_ok, *digest) = (None, DigestUse::Unknown),
                Some(false) => {
                    self.digest_errors += 1;
                    listener.count(counter, frame, 1);
                }
                _ => {}
            }
        }
        let digests = listener.pdu(&Pdu {
            header: &pdu.header[..pdu.header_known],
            data: &pdu.kept,
            offset: pdu.start,
            end,
            data_end: pdu.start + pdu.data_end as i64,
            data_last_ns: pdu.data_last_ns,
            data_packets: pdu.data_packets,
            first: pdu.first,
            last,
            latest: pdu.last.unwrap_or(pdu.first),
            has_capture_gap: pdu.has_capture_gap,
            is_unfinished: pdu.position < pdu.end,
            is_late: pdu.is_late,
            header_digest_ok: pdu.header_digest_ok,
            data_digest_ok: pdu.data_digest_ok,
        });
        if let Some(digests) = digests {
            self.agree(digests);
        }
    }
}
