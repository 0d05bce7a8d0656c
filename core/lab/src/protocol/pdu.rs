//! Stream bytes <-> PDUs, at an initiator or a target.
//!
//! ```text
//!   | BHS 48 | AHS | header digest | data ... | padding | data digest |
//!            Piece::Header --------^ Piece::Data ...              ^-- Piece::End
//! ```
//!
//! Data is passed on in the pieces in which it arrived, never collected. It checks lengths and digests only; initiator
//! and target check the rest. RFC 7143 section 11.2.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::digest;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::text::LOGIN_DATA_SEGMENT_MAX_BYTES;

/// The digests in use, from the first PDU after the login on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    /// HeaderDigest=CRC32C.
    pub header: bool,
    /// DataDigest=CRC32C.
    pub data: bool,
}

impl Digests {
    /// Place of the last byte of a PDU's last digest, in a stream where the PDU is at `start..end`; none without one.
    #[must_use]
    pub fn last_byte(self, start: usize, end: usize, has_data: bool) -> Option<usize> {
        match self {
            Self { data: true, .. } if has_data => end.checked_sub(1),
            Self { header: true, .. } => Some(start + LENGTH_BYTES + 3),
            _ => None,
        }
    }
}

/// A part of a PDU.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Its header, available as [`Decoder::bhs`] and [`Decoder::ahs`] until the next.
    Header,
    /// The next bytes of its data segment.
    Data(&'a [u8]),
    /// Its end.
    End {
        /// Whether its data digest is correct or absent.
        is_data_digest_good: bool,
    },
}

/// Why the stream cannot be decoded: the connection has to be closed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// RFC 7143 section 7.8: without a correct header the next one cannot be found.
    #[error("header digest error (RFC 7143 section 7.8)")]
    HeaderDigest,
    /// A data segment longer than this side declared.
    #[error(
        "a data segment of {length_bytes} bytes where MaxRecvDataSegmentLength is {limit_bytes} (RFC 7143 section 13.12)"
    )]
    DataTooLong {
        /// Its DataSegmentLength.
        length_bytes: u32,
        /// MaxRecvDataSegmentLength of this side.
        limit_bytes: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    Ahs,
    HeaderDigest,
    Data,
    Padding,
    DataDigest,
}

/// Stream bytes of one direction -> PDUs.
#[derive(Debug)]
pub struct Decoder {
    digests: Digests,
    limit_bytes: u32,
    header: [u8; LENGTH_BYTES],
    ahs: Vec<u8>,
    part: Part,
    /// Missing bytes of the current part.
    remaining: usize,
    digest: [u8; 4],
    crc: u32,
    /// Stream offset of the next byte, and of the first byte of the PDU.
    offset: u64,
    start: u64,
}

/// Of a connection before its login: the default MaxRecvDataSegmentLength (RFC 7143 section 13.12), and no digests.
impl Default for Decoder {
    fn default() -> Self {
        Self::new(LOGIN_DATA_SEGMENT_MAX_BYTES as u32)
    }
}

impl Decoder {
    /// For a stream whose PDUs have at most `limit_bytes` of data.
    #[must_use]
    pub fn new(limit_bytes: u32) -> Self {
        Self {
            digests: Digests::default(),
            limit_bytes,
            header: [0; LENGTH_BYTES],
            ahs: Vec::new(),
            part: Part::Header,
            remaining: LENGTH_BYTES,
            digest: [0; 4],
            crc: 0,
            offset: 0,
            start: 0,
        }
    }

    /// Sets the digests and the longest data segment from the next PDU on.
    pub fn agree(&mut self, digests: Digests, limit_bytes: u32) {
        (self.digests, self.limit_bytes) = (digests, limit_bytes);
    }

    /// The header of the PDU that is being read.
    #[must_use]
    pub fn bhs(&self) -> Bhs<'_> {
        Bhs::new(&self.header)
    }

    /// Its additional header segments.
    #[must_use]
    pub fn ahs(&self) -> &[u8] {
        &self.ahs
    }

    /// Stream offset of its first byte.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Stream offset of the next byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of the next bytes that are data without a digest: they need not be read.
    #[must_use]
    pub fn passable(&self) -> usize {
        if self.part == Part::Data && !self.digests.data { self.remaining } else { 0 }
    }

    /// Skips up to `count` of these bytes; the next call of [`Decoder::next`] returns what they complete. Returns how
    /// many were skipped.
    pub fn pass(&mut self, count: usize) -> usize {
        let count = count.min(self.passable());
        self.offset += count as u64;
        self.remaining -= count;
        count
    }

    /// Decodes from the front of `input`; none when all of it is used.
    ///
    /// # Errors
    /// The stream cannot be decoded.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Unreadable> {
        loop {
            if self.remaining > 0 && input.is_empty() {
                return Ok(None);
            }
            let count = self.remaining.min(input.len());
            let (bytes, rest) = input.split_at(count);
            if self.part == Part::Header && self.remaining == LENGTH_BYTES {
                self.start = self.offset;
            }
            *input = rest;
            self.offset += count as u64;
            self.remaining -= count;
            match self.part {
                Part::Header => {
                    let at = LENGTH_BYTES - self.remaining - count;
                    self.header[at..at + count].copy_from_slice(bytes);
                }
                Part::Ahs => self.ahs.extend_from_slice(bytes),
                Part::HeaderDigest | Part::DataDigest => {
                    let at = 4 - self.remaining - count;
                    self.digest[at..at + count].copy_from_slice(bytes);
                }
                Part::Data | Part::Padding => {
                    if self.digests.data {
                        self.crc = digest::append(self.crc, bytes);
                    }
                }
            }
            let is_data = self.part == Part::Data && count > 0;
            let piece = if self.remaining == 0 { self.end_part()? } else { None };
            if is_data {
                return Ok(Some(Piece::Data(bytes)));
            }
            if piece.is_some() {
                return Ok(piece);
            }
        }
    }

    /// Advances to the next part.
    fn end_part<'a>(&mut self) -> Result<Option<Piece<'a>>, Unreadable> {
        let data_length = self.bhs().data_segment_length().unwrap_or(0);
        let has_data_digest = self.digests.data && data_length > 0;
        match self.part {
            Part::Header => {
                self.ahs.clear();
                if data_length > self.limit_bytes {
                    return Err(Unreadable::DataTooLong { length_bytes: data_length, limit_bytes: self.limit_bytes });
                }
                self.begin(Part::Ahs, self.bhs().total_ahs_length_bytes().unwrap_or(0) as usize);
                Ok(None)
            }
            Part::Ahs if self.digests.header => {
                self.begin(Part::HeaderDigest, 4);
                Ok(None)
            }
            Part::Ahs => {
                self.begin(Part::Data, data_length as usize);
                Ok(Some(Piece::Header))
            }
            Part::HeaderDigest => {
                if digest::to_wire(digest::append(digest::crc32c(&self.header), &self.ahs)) != self.digest {
                    return Err(Unreadable::HeaderDigest);
                }
                self.begin(Part::Data, data_length as usize);
                Ok(Some(Piece::Header))
            }
            Part::Data => {
                self.begin(Part::Padding, (data_length.next_multiple_of(4) - data_length) as usize);
                Ok(None)
            }
            Part::Padding if has_data_digest => {
                self.begin(Part::DataDigest, 4);
                Ok(None)
            }
            Part::Padding | Part::DataDigest => {
                let is_data_digest_good = !has_data_digest || digest::to_wire(self.crc) == self.digest;
                self.crc = 0;
                self.begin(Part::Header, LENGTH_BYTES);
                Ok(Some(Piece::End { is_data_digest_good }))
            }
        }
    }

    fn begin(&mut self, part: Part, length: usize) {
        (self.part, self.remaining) = (part, length);
    }
}

/// Appends a PDU to `out`: `header` with its lengths set, and its data, which `append` writes, padded with zeros.
pub fn encode(
    out: &mut Vec<u8>,
    header: &[u8; LENGTH_BYTES],
    ahs: &[u8],
    digests: Digests,
    append: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(header);
    out.extend_from_slice(ahs);
    if digests.header {
        out.extend_from_slice(&digest::to_wire(digest::crc32c(&out[start..])));
    }
    let length = Bhs::new(header).data_segment_length().unwrap_or(0) as usize;
    if length == 0 {
        return;
    }
    let data = out.len();
    append(out);
    out.resize(data + length.next_multiple_of(4), 0);
    if digests.data {
        out.extend_from_slice(&digest::to_wire(digest::crc32c(&out[data..])));
    }
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::BhsBuilder;
    use iscsitrace_wire::opcode::Opcode;

    use super::*;

    const ALL: [Digests; 4] = [
        Digests { header: false, data: false },
        Digests { header: true, data: false },
        Digests { header: false, data: true },
        Digests { header: true, data: true },
    ];

    /// A decoded PDU: header, AHS, data, and whether its data digest is correct.
    type Read = (Vec<u8>, Vec<u8>, Vec<u8>, bool);

    fn stream(digests: Digests) -> (Vec<u8>, Vec<Read>) {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        for (length, ahs) in [(0usize, 0usize), (5, 0), (8, 12), (0, 4), (1, 0)] {
            let data: Vec<u8> = (0..length as u8).collect();
            let ahs: Vec<u8> = (0..ahs as u8).map(|byte| byte ^ 0x5a).collect();
            let header = BhsBuilder::new(Opcode::DataIn)
                .data_segment_length(length as u32)
                .total_ahs_length_words((ahs.len() / 4) as u8)
                .build();
            encode(&mut out, &header, &ahs, digests, |out| out.extend_from_slice(&data));
            expected.push((header.to_vec(), ahs, data, true));
        }
        (out, expected)
    }

    fn read(stream: &[u8], digests: Digests, step: usize) -> Result<Vec<Read>, Unreadable> {
        let mut decoder = Decoder::new(0);
        decoder.agree(digests, 8);
        let (mut found, mut data) = (Vec::new(), Vec::new());
        for mut input in stream.chunks(step) {
            while let Some(piece) = decoder.next(&mut input)? {
                match piece {
                    Piece::Header => data.clear(),
                    Piece::Data(bytes) => data.extend_from_slice(bytes),
                    Piece::End { is_data_digest_good } => found.push((
                        decoder.bhs().as_bytes().to_vec(),
                        decoder.ahs().to_vec(),
                        data.clone(),
                        is_data_digest_good,
                    )),
                }
            }
        }
        assert_eq!(decoder.offset(), stream.len() as u64);
        Ok(found)
    }

    #[test]
    fn encoded_pdus_are_decoded_in_pieces_of_any_size() {
        for digests in ALL {
            let (stream, expected) = stream(digests);
            for step in [1, 3, 47, 48, 49, stream.len()] {
                assert_eq!(read(&stream, digests, step).as_ref(), Ok(&expected), "{digests:?}, {step}");
            }
        }
    }

    #[test]
    fn encoded_lengths_are_those_of_the_rfc() {
        // 48; 48 + 8; 48 + 12 + 8; 48 + 4; 48 + 4, and 4 for each digest, none for data of no length
        let lengths = ALL.map(|digests| stream(digests).0.len());
        assert_eq!(lengths, [276, 276 + 20, 276 + 12, 276 + 32]);
    }

    #[test]
    fn a_flipped_bit_is_detected_by_its_digest() {
        let digests = Digests { header: true, data: true };
        let (good, _) = stream(digests);
        let mut bad = good.clone();
        bad[20] ^= 1;
        assert_eq!(read(&bad, digests, 7), Err(Unreadable::HeaderDigest));
        // the second PDU's data begins after 52 + 52 bytes
        let mut bad = good;
        bad[104] ^= 1;
        let found = read(&bad, digests, 7).unwrap();
        assert_eq!(found.iter().map(|pdu| pdu.3).collect::<Vec<_>>(), [true, false, true, true, true]);
    }

    #[test]
    fn skipped_data_does_not_change_the_rest() {
        for digests in [Digests::default(), Digests { header: true, data: false }] {
            let (stream, expected) = stream(digests);
            for most in [1, 3, 8] {
                let (mut decoder, mut input) = (Decoder::new(0), &stream[..]);
                decoder.agree(digests, 8);
                let (mut lengths, mut passed) = (Vec::new(), 0);
                loop {
                    // as a reader that skips data: at most this much at once
                    let count = decoder.pass(decoder.passable().min(most));
                    input = &input[count..];
                    passed += count;
                    let step = if decoder.passable() > 0 { 0 } else { input.len().min(1) };
                    let (mut next, rest) = input.split_at(step);
                    input = rest;
                    while let Some(piece) = decoder.next(&mut next).unwrap() {
                        match piece {
                            Piece::Header => passed = 0,
                            Piece::Data(_) => panic!("it was passed over"),
                            Piece::End { is_data_digest_good } => lengths.push((passed, is_data_digest_good)),
                        }
                    }
                    if input.is_empty() && decoder.passable() == 0 {
                        break;
                    }
                }
                let wanted: Vec<_> = expected.iter().map(|pdu| (pdu.2.len(), true)).collect();
                assert_eq!(lengths, wanted, "{digests:?}, {most}");
                assert_eq!(decoder.offset(), stream.len() as u64);
            }
        }
        // with a digest each byte is read
        let mut decoder = Decoder::new(0);
        decoder.agree(Digests { header: false, data: true }, 8);
        let (stream, _) = stream(Digests { header: false, data: true });
        assert_eq!(decoder.next(&mut &stream[..48]).unwrap(), Some(Piece::Header));
        assert_eq!((decoder.passable(), decoder.pass(5)), (0, 0));
    }

    #[test]
    fn more_data_than_declared_is_refused_at_the_header() {
        let header = BhsBuilder::new(Opcode::DataIn).data_segment_length(9).build();
        let refused = Unreadable::DataTooLong { length_bytes: 9, limit_bytes: 8 };
        assert_eq!(read(&header, Digests::default(), 48), Err(refused));
    }
}
