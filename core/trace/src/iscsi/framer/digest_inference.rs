//! Which digests are in use: from the login; or inferred from the bytes, or from lengths where the bytes were cut away.
//!
//! Digests are negotiated for both directions (RFC 7143 section 13.1). They are verified during the walk.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::digest;

use super::Framer;
use crate::iscsi::digest_use::{DigestUse, Digests};
use crate::stream::chunk::Chunk;

impl Framer {
    /// Without the login, the four bytes after a header show whether they are its digest. If they were cut away, the
    /// end of the segment does: with a digest, a PDU without data is four bytes longer.
    #[cold]
    pub(super) fn infer_header_digest(&mut self, chunk: &Chunk<'_>, used: u32) {
        let bhs = Bhs::new(&self.pdu.header[..self.pdu.header_known]);
        if bhs.total_ahs_length_bytes() != Some(0) {
            return;
        }
        let after = used as usize;
        let is_bare = bhs.data_segment_length() == Some(0);
        match chunk.captured.get(after..after + 4) {
            Some(bytes) if self.pdu.header_known == LENGTH_BYTES => {
                let is_digest = digest::to_wire(digest::crc32c(&self.pdu.header)) == *bytes;
                self.header_digest = DigestUse::Inferred(is_digest);
            }
            _ if used == chunk.length => self.header_digest = DigestUse::Inferred(false),
            _ if is_bare && used + 4 == chunk.length => self.header_digest = DigestUse::ByLength,
            _ => {}
        }
    }

    /// The same for the four bytes after the data, which are here or where the next header is due.
    #[cold]
    pub(super) fn infer_data_digest(&mut self, chunk: &Chunk<'_>, used: u32) {
        let possible = self.pdu.crc.map(digest::to_wire);
        let is_cut = chunk.captured.len() < used as usize || self.has_cut && self.header_digest.is_used();
        if used == chunk.length && is_cut {
            // its digest may follow, and the packet that ends the PDU with it
            self.pdu.is_end_missing = true;
        }
        let Some(possible) = possible else { return };
        match chunk.captured.get(used as usize..used as usize + 4) {
            Some(bytes) => {
                let is_digest = *bytes == possible;
                self.data_digest = DigestUse::Inferred(is_digest);
                if is_digest {
                    self.pdu.end = self.pdu.digest_start + 4;
                }
            }
            // the PDU is handed over now, because others may wait for it
            None if used == chunk.length => self.possible_digest = Some(possible),
            None => {}
        }
    }

    /// Where a header is due: true if it is the digest of the last data, by its value; or, if unknown, by its length:
    /// no PDU is that short.
    #[cold]
    pub(super) fn take_late_digest(&mut self, chunk: &Chunk<'_>, used: u32) -> bool {
        self.data_digest = match self.possible_digest.take() {
            Some(possible) => {
                let bytes = chunk.captured.get(used as usize..used as usize + 4);
                DigestUse::Inferred(bytes == Some(possible.as_slice()))
            }
            None if chunk.is_segment_start && used == 0 && chunk.length == 4 => DigestUse::ByLength,
            None => return false,
        };
        if self.data_digest.is_used() {
            self.explained_bytes += 4;
            self.pdu.begin(self.pdu.start + 4);
        }
        self.data_digest.is_used()
    }

    /// Takes over what the other direction inferred: digests are negotiated for both.
    pub fn infer_from(&mut self, other: &Framer) {
        if self.header_digest == DigestUse::Unknown && other.header_digest.is_inferred() {
            self.header_digest = other.header_digest;
        }
        if self.data_digest == DigestUse::Unknown && other.data_digest.is_inferred() {
            self.data_digest = other.data_digest;
            self.possible_digest = None;
        }
    }

    /// Whether the digests in use are still unknown.
    #[inline]
    pub fn is_digest_unknown(&self) -> bool {
        self.header_digest == DigestUse::Unknown || self.data_digest == DigestUse::Unknown
    }

    /// Whether PDUs are read with header digests, and with data digests.
    pub(super) fn digests_used(&self) -> [bool; 2] {
        [self.header_digest.is_used(), self.data_digest.is_used()]
    }

    /// Sets the digests that the login negotiated.
    pub fn agree(&mut self, digests: Digests) {
        self.possible_digest = None;
        self.had_data = false;
        self.header_digest = digests.header.map_or(DigestUse::Unknown, DigestUse::Known);
        self.data_digest = digests.data.map_or(DigestUse::Unknown, DigestUse::Known);
    }

    /// There are no digests during a login (RFC 7143 section 13.1).
    pub fn begin_login(&mut self) {
        self.agree(Digests { header: Some(false), data: Some(false) });
    }

    /// A header was found a digest's length after its expected position: digests are in use, although only inferred.
    pub(super) fn reconsider_digests(&mut self, beyond: i64, is_after_data: bool) {
        let seems = |digest: &mut DigestUse, is_used: bool| {
            if !matches!(digest, DigestUse::Known(_) | DigestUse::Inferred(true)) {
                *digest = if is_used { DigestUse::ByLength } else { DigestUse::Unknown };
            }
        };
        match (beyond, is_after_data, self.header_digest.is_used()) {
            (8, true, false) => {
                seems(&mut self.header_digest, true);
                seems(&mut self.data_digest, true);
            }
            (4, true, _) => seems(&mut self.data_digest, true),
            (4, false, false) => seems(&mut self.header_digest, true),
            (0, ..) => {}
            _ => {
                if matches!(self.header_digest, DigestUse::Inferred(false)) {
                    self.header_digest = DigestUse::Unknown;
                }
                if matches!(self.data_digest, DigestUse::Inferred(false)) {
                    self.data_digest = DigestUse::Unknown;
                }
            }
        }
    }
}
