//! The medium of a logical unit: bytes by address. Knows no commands. Callers check the range; bytes outside the medium
//! are neither read nor written.

use super::settings::{LogicalUnitSettings, MediumKind};
use super::sparse::{PAGE_BYTES, Sparse};

/// The blocks of a logical unit.
#[derive(Debug)]
pub(super) enum Medium {
    Ram(Vec<u8>),
    Sparse(Sparse),
    NullZeros,
    NullAddress,
}

/// No memory is left for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoSpace;

impl Medium {
    /// An empty medium; none when there is not enough memory.
    pub(super) fn new(settings: &LogicalUnitSettings) -> Option<Medium> {
        Some(match settings.medium {
            MediumKind::Ram => {
                let length = usize::try_from(settings.size_bytes).ok()?;
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(length).ok()?;
                bytes.resize(length, 0);
                Medium::Ram(bytes)
            }
            MediumKind::Sparse => {
                let most = settings.memory_bytes.unwrap_or(settings.size_bytes);
                Medium::Sparse(Sparse::new(settings.block_bytes, most))
            }
            MediumKind::NullZeros => Medium::NullZeros,
            MediumKind::NullAddress => Medium::NullAddress,
        })
    }

    /// Whether blocks can be unmapped.
    pub(super) const fn is_thin(&self) -> bool {
        matches!(self, Medium::Sparse(_))
    }

    /// Appends `length` bytes from `first_byte` on.
    pub(super) fn append(&self, first_byte: u64, length: usize, out: &mut Vec<u8>) {
        match self {
            Medium::Ram(bytes) => {
                let range = usize::try_from(first_byte).ok().and_then(|first| bytes.get(first..)?.get(..length));
                out.extend_from_slice(range.unwrap_or(&[]));
            }
            Medium::Sparse(sparse) => {
                out.reserve(length);
                each_page(first_byte, length, |first_byte, start, end| {
                    sparse.append(first_byte, end - start, out);
                    true
                });
            }
            Medium::NullZeros => out.resize(out.len() + length, 0),
            Medium::NullAddress => append_addresses(first_byte, length, out),
        }
    }

    /// Stores bytes from `first_byte` on.
    pub(super) fn write(&mut self, first_byte: u64, bytes: &[u8]) -> Result<(), NoSpace> {
        match self {
            Medium::Ram(medium) => {
                let place = usize::try_from(first_byte).ok().and_then(|first| medium.get_mut(first..));
                if let Some(place) = place.and_then(|place| place.get_mut(..bytes.len())) {
                    place.copy_from_slice(bytes);
                }
                Ok(())
            }
            Medium::Sparse(sparse) => {
                let is_stored = each_page(first_byte, bytes.len(), |first_byte, start, end| {
                    sparse.write(first_byte, bytes.get(start..end).unwrap_or(&[]))
                });
                if is_stored { Ok(()) } else { Err(NoSpace) }
            }
            Medium::NullZeros | Medium::NullAddress => Ok(()),
        }
    }

    /// The offset of the first byte that differs from the medium.
    pub(super) fn difference(&self, first_byte: u64, bytes: &[u8]) -> Option<usize> {
        let mut stored = Vec::new();
        self.append(first_byte, bytes.len(), &mut stored);
        if stored == bytes { None } else { stored.iter().zip(bytes).position(|(stored, byte)| stored != byte) }
    }

    /// ORs these bytes into the medium.
    pub(super) fn or(&mut self, first_byte: u64, bytes: &[u8]) -> Result<(), NoSpace> {
        let mut stored = Vec::new();
        self.append(first_byte, bytes.len(), &mut stored);
        stored.iter_mut().zip(bytes).for_each(|(stored, byte)| *stored |= byte);
        self.write(first_byte, &stored)
    }

    /// Stores the same block repeatedly over `length` bytes.
    pub(super) fn fill(&mut self, first_byte: u64, length: u64, block: &[u8]) -> Result<(), NoSpace> {
        let most = (PAGE_BYTES as usize).max(block.len());
        let chunk = block.repeat((most / block.len().max(1)).max(1));
        let mut done = 0;
        while done < length && !chunk.is_empty() {
            let size = (length - done).min(chunk.len() as u64);
            self.write(first_byte + done, &chunk[..size as usize])?;
            done += size;
        }
        Ok(())
    }

    /// Unmaps whole blocks, if the medium supports it.
    pub(super) fn unmap(&mut self, first_byte: u64, length: u64) {
        if let Medium::Sparse(sparse) = self {
            sparse.unmap(first_byte, length);
        }
    }

    /// Whether the block at this byte is mapped, and the end of the run of blocks in the same state; `end` at most.
    pub(super) fn run(&self, first_byte: u64, end: u64) -> (bool, u64) {
        match self {
            Medium::Sparse(sparse) => sparse.run(first_byte, end),
            _ => (true, end),
        }
    }
}

/// Splits `length` bytes by pages: calls with the first byte on the medium and the range within the bytes, until it
/// returns false.
fn each_page(first_byte: u64, length: usize, mut work: impl FnMut(u64, usize, usize) -> bool) -> bool {
    let mut start = 0;
    while start < length {
        let byte = first_byte + start as u64;
        let end = length.min(start + (PAGE_BYTES - byte % PAGE_BYTES) as usize);
        if !work(byte, start, end) {
            return false;
        }
        start = end;
    }
    true
}

/// Each 8 bytes hold their own address.
fn append_addresses(first_byte: u64, length: usize, out: &mut Vec<u8>) {
    out.reserve(length);
    let end = out.len() + length;
    let mut address = first_byte & !7;
    let skipped = (first_byte - address) as usize;
    out.extend_from_slice(address.to_be_bytes()[skipped..].get(..length.min(8 - skipped)).unwrap_or(&[]));
    while out.len() + 8 <= end {
        address += 8;
        out.extend_from_slice(&address.to_be_bytes());
    }
    let left = end - out.len();
    out.extend_from_slice(&(address + 8).to_be_bytes()[..left]);
}

#[cfg(test)]
mod tests {
    use super::Medium;
    use crate::scsi::settings::{LogicalUnitSettings, MediumKind};

    fn medium(medium: MediumKind) -> Medium {
        Medium::new(&LogicalUnitSettings { medium, size_bytes: 1 << 20, ..LogicalUnitSettings::default() }).unwrap()
    }

    fn read(medium: &Medium, first_byte: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0xee];
        medium.append(first_byte, length, &mut bytes);
        bytes.split_off(1)
    }

    #[test]
    fn written_data_is_read_across_pages() {
        for kind in [MediumKind::Ram, MediumKind::Sparse] {
            let mut medium = medium(kind);
            let bytes: Vec<u8> = (0..200_000_u32).map(|byte| (byte % 251) as u8).collect();
            medium.write(65_000, &bytes).unwrap();
            assert!(read(&medium, 65_000, bytes.len()) == bytes);
            assert_eq!(read(&medium, 64_998, 4), [0, 0, 0, 1]);
            assert_eq!(medium.difference(65_000, &bytes), None);
            let mut other = bytes.clone();
            other[131_000] ^= 1;
            assert_eq!(medium.difference(65_000, &other), Some(131_000));
            medium.or(65_536, &[0xf0]).unwrap();
            assert_eq!(read(&medium, 65_536, 1), [bytes[536] | 0xf0]);
            medium.fill(1024, 512 * 700, &[7; 512]).unwrap();
            assert!(read(&medium, 1024, 512 * 700) == [7; 512 * 700]);
            assert_eq!(read(&medium, 1023, 1), [0]);
        }
    }

    #[test]
    fn null_media_drop_writes() {
        let mut zeros = medium(MediumKind::NullZeros);
        zeros.write(0, &[1; 600]).unwrap();
        assert_eq!(read(&zeros, 0, 600), [0; 600]);
        let addresses = medium(MediumKind::NullAddress);
        assert_eq!(read(&addresses, 0x1_0000, 16), [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8]);
    }

    #[test]
    fn any_range_of_addresses_is_consistent() {
        let addresses = medium(MediumKind::NullAddress);
        let all = read(&addresses, 0x7fff_0000, 100);
        for first in 0..40 {
            for length in 0..=40 {
                assert_eq!(read(&addresses, 0x7fff_0000 + first as u64, length), all[first..first + length]);
            }
        }
    }
}
