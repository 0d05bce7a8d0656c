//! Packets seen twice: by a capture of the `any` device, or because the network duplicated them.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::header::Header;

/// A hash of what identifies a packet: equal for copies of it, and different for a retransmission. `place`: offsets of its
/// first byte and after its last; of a packet without bytes: its own and the one that it acknowledges.
#[inline]
pub(super) fn fingerprint(place: (i64, i64), header: &Header) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_i64(place.0);
    hasher.write_i64(place.1);
    let (value, echo) = header.timestamps.unwrap_or_default();
    hasher.write_u64(u64::from(value) << 32 | u64::from(echo));
    let flags = u64::from(header.flags.0);
    hasher.write_u64(u64::from(header.identification) << 32 | u64::from(header.window) << 16 | flags);
    hasher.finish()
}

/// The fingerprints and times of the latest `N` packets.
#[derive(Debug, Default)]
pub(super) struct Latest<const N: usize> {
    fingerprints: Vec<u64>,
    times_ns: Vec<i64>,
    next: usize,
}

impl<const N: usize> Latest<N> {
    #[inline]
    pub(super) fn push(&mut self, fingerprint: u64, time_ns: i64) {
        match (self.fingerprints.get_mut(self.next), self.times_ns.get_mut(self.next)) {
            (Some(oldest), Some(oldest_ns)) => (*oldest, *oldest_ns) = (fingerprint, time_ns),
            _ => {
                self.fingerprints.push(fingerprint);
                self.times_ns.push(time_ns);
            }
        }
        self.next = (self.next + 1) % N;
    }

    #[inline]
    pub(super) fn time_of(&self, fingerprint: u64) -> Option<i64> {
        // nearly always there is none: comparing all without a branch takes vector instructions
        if !self.fingerprints.iter().fold(false, |is_found, &each| is_found | (each == fingerprint)) {
            return None;
        }
        let place = self.fingerprints.iter().position(|&each| each == fingerprint)?;
        self.times_ns.get(place).copied()
    }
}
