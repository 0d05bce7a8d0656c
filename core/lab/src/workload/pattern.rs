//! Self-describing data: each block of 512 bytes contains its number on the volume and a seed, so that a block from the
//! wrong place, or from an earlier run, is detected.
//!
//! ```text
//!  0  block number (LBA of 512 bytes), big-endian     8  seed      16  62 words derived from both
//! ```
//!
//! It keeps no data.

use serde::{Deserialize, Serialize};

/// Bytes of a block of the pattern, whatever the block length of the volume is.
pub const BLOCK_BYTES: usize = 512;
/// Odd, so that the words of a block differ.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The contents of a volume under one seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// Distinguishes the data of different runs.
    pub seed: u64,
}

/// A wrong byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Its offset on the volume.
    pub byte: u64,
    /// The block number in the data found, when it is a whole block of a pattern.
    pub found_block: Option<u64>,
    /// The seed in that block.
    pub found_seed: Option<u64>,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "wrong data at byte {} of the volume", self.byte)?;
        match (self.found_block, self.found_seed) {
            (Some(block), Some(seed)) => write!(formatter, ": block {block} of the pattern with seed {seed}"),
            _ => Ok(()),
        }
    }
}

impl Pattern {
    fn first_word(self, block: u64) -> u64 {
        // SplitMix64's finalizer, so that words of neighbouring blocks differ
        let mixed = block ^ self.seed.rotate_left(32);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn write_block(self, block: u64, out: &mut [u8; BLOCK_BYTES]) {
        let first = self.first_word(block);
        let (words, _) = out.as_chunks_mut::<8>();
        for (word, index) in words.iter_mut().zip(0u64..) {
            *word = first.wrapping_add(index.wrapping_mul(STEP)).to_le_bytes();
        }
        out[..8].copy_from_slice(&block.to_be_bytes());
        out[8..16].copy_from_slice(&self.seed.to_be_bytes());
    }

    fn is_block(self, block: u64, found: &[u8; BLOCK_BYTES]) -> bool {
        let first = self.first_word(block);
        let (words, _) = found.as_chunks::<8>();
        let mut difference = 0;
        for (word, index) in words.iter().zip(0u64..).skip(2) {
            difference |= u64::from_le_bytes(*word) ^ first.wrapping_add(index.wrapping_mul(STEP));
        }
        difference == 0 && found[..8] == block.to_be_bytes() && found[8..16] == self.seed.to_be_bytes()
    }

    /// Writes the contents of the volume from `byte` on.
    pub fn fill(self, byte: u64, out: &mut [u8]) {
        let mut block = byte / BLOCK_BYTES as u64;
        let within = (byte % BLOCK_BYTES as u64) as usize;
        let (head, rest) = out.split_at_mut(if within == 0 { 0 } else { out.len().min(BLOCK_BYTES - within) });
        let mut whole = [0; BLOCK_BYTES];
        if !head.is_empty() {
            self.write_block(block, &mut whole);
            head.copy_from_slice(&whole[within..within + head.len()]);
            block += 1;
        }
        let (blocks, tail) = rest.as_chunks_mut::<BLOCK_BYTES>();
        for place in blocks {
            self.write_block(block, place);
            block += 1;
        }
        if !tail.is_empty() {
            self.write_block(block, &mut whole);
            tail.copy_from_slice(&whole[..tail.len()]);
        }
    }

    /// The first byte of `found` that differs from the contents of the volume from `byte` on.
    #[must_use]
    pub fn check(self, byte: u64, found: &[u8]) -> Option<Mismatch> {
        let mut block = byte / BLOCK_BYTES as u64;
        let within = (byte % BLOCK_BYTES as u64) as usize;
        let (head, rest) = found.split_at(if within == 0 { 0 } else { found.len().min(BLOCK_BYTES - within) });
        if !head.is_empty() {
            let mismatch = self.check_part(block, within, head);
            if mismatch.is_some() {
                return mismatch;
            }
            block += 1;
        }
        let (blocks, tail) = rest.as_chunks::<BLOCK_BYTES>();
        for found in blocks {
            if !self.is_block(block, found) {
                return self.check_part(block, 0, found);
            }
            block += 1;
        }
        self.check_part(block, 0, tail)
    }

    fn check_part(self, block: u64, within: usize, found: &[u8]) -> Option<Mismatch> {
        let mut expected = [0; BLOCK_BYTES];
        self.write_block(block, &mut expected);
        let at = expected[within..].iter().zip(found).position(|(expected, found)| expected != found)?;
        let byte = block * BLOCK_BYTES as u64 + (within + at) as u64;
        let mut mismatch = Mismatch { byte, found_block: None, found_seed: None };
        if let Ok(whole) = <&[u8; BLOCK_BYTES]>::try_from(found)
            && let (words, _) = whole.as_chunks::<8>()
        {
            let (block, seed) = (u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1]));
            if (Pattern { seed }).is_block(block, whole) {
                (mismatch.found_block, mismatch.found_seed) = (Some(block), Some(seed));
            }
        }
        Some(mismatch)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATTERN: Pattern = Pattern { seed: 7 };

    fn volume(blocks: usize) -> Vec<u8> {
        let mut volume = vec![0; blocks * BLOCK_BYTES];
        PATTERN.fill(0, &mut volume);
        volume
    }

    #[test]
    fn a_block_begins_with_its_number_and_the_seed() {
        let mut block = [0; BLOCK_BYTES];
        PATTERN.fill(0x0102_0304 * 512, &mut block);
        assert_eq!(block[..16], [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn no_two_blocks_and_no_two_words_are_alike() {
        let volume = volume(64);
        let mut words: Vec<_> = volume.chunks(8).skip(2).collect();
        // the seed is in every block
        words.retain(|word| **word != 7u64.to_be_bytes());
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
    }

    #[test]
    fn a_misplaced_block_is_reported_with_its_number() {
        let mut volume = volume(8);
        volume.copy_within(512..1024, 2048);
        let expected = Mismatch { byte: 2048 + 7, found_block: Some(1), found_seed: Some(7) };
        assert_eq!(PATTERN.check(0, &volume), Some(expected));
        let other = Pattern { seed: 8 }.check(512, &volume[512..1024]);
        assert_eq!(other, Some(Mismatch { byte: 512 + 15, found_block: Some(1), found_seed: Some(7) }));
        let text = "wrong data at byte 2055 of the volume: block 1 of the pattern with seed 7";
        assert_eq!(expected.to_string(), text);
    }

    proptest! {
        #[test]
        fn any_piece_equals_that_part_of_the_volume(first in 0usize..2000, length in 0usize..2000) {
            let volume = volume(8);
            let mut piece = vec![0; length];
            PATTERN.fill(first as u64, &mut piece);
            prop_assert_eq!(&piece[..], &volume[first..first + length]);
            prop_assert_eq!(PATTERN.check(first as u64, &piece), None);
        }

        #[test]
        fn a_flipped_bit_is_reported_with_its_position(first in 0usize..2000, length in 1usize..2000, at: prop::sample::Index) {
            let mut piece = volume(8)[first..first + length].to_vec();
            let at = at.index(length);
            piece[at] ^= 0x10;
            let byte = PATTERN.check(first as u64, &piece).map(|mismatch| mismatch.byte);
            prop_assert_eq!(byte, Some((first + at) as u64));
        }
    }
}
