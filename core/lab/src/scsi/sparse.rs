//! A sparse medium: pages exist from their first write until all their blocks are unmapped. Callers check the range.

use std::collections::BTreeMap;

/// Bytes of a page: at most 128 blocks, so that one 128-bit mask holds which of them are mapped.
pub(super) const PAGE_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
struct Page {
    bytes: Box<[u8]>,
    /// Bit n: block n of the page was written since it was last unmapped.
    mapped: u128,
}

/// A sparse medium.
#[derive(Debug)]
pub(super) struct Sparse {
    pages: BTreeMap<u64, Page>,
    most_pages: u64,
    block_bytes: u64,
}

impl Sparse {
    /// An empty one; it uses `memory_bytes` at most.
    pub(super) fn new(block_bytes: u32, memory_bytes: u64) -> Sparse {
        Sparse {
            pages: BTreeMap::new(),
            most_pages: memory_bytes.div_ceil(PAGE_BYTES),
            block_bytes: u64::from(block_bytes),
        }
    }

    /// Appends bytes of one page.
    pub(super) fn append(&self, first_byte: u64, length: usize, out: &mut Vec<u8>) {
        let offset = (first_byte % PAGE_BYTES) as usize;
        let page = self.pages.get(&(first_byte / PAGE_BYTES));
        match page.and_then(|page| page.bytes.get(offset..offset + length)) {
            Some(bytes) => out.extend_from_slice(bytes),
            None => out.resize(out.len() + length, 0),
        }
    }

    /// Stores bytes of one page; false when there is no memory for them.
    pub(super) fn write(&mut self, first_byte: u64, bytes: &[u8]) -> bool {
        let number = first_byte / PAGE_BYTES;
        if self.pages.len() as u64 >= self.most_pages && !self.pages.contains_key(&number) {
            return false;
        }
        let mapped = self.bits(first_byte, bytes.len() as u64);
        let page = self
            .pages
            .entry(number)
            .or_insert_with(|| Page { bytes: vec![0; PAGE_BYTES as usize].into_boxed_slice(), mapped: 0 });
        let offset = (first_byte % PAGE_BYTES) as usize;
        if let Some(place) = page.bytes.get_mut(offset..offset + bytes.len()) {
            place.copy_from_slice(bytes);
            page.mapped |= mapped;
        }
        true
    }

    /// Unmaps whole blocks, over any number of pages: they read as zeros.
    pub(super) fn unmap(&mut self, first_byte: u64, length: u64) {
        let end = first_byte + length;
        let numbers: Vec<u64> =
            self.pages.range(first_byte / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(|(number, _)| *number).collect();
        for number in numbers {
            let start = first_byte.max(number * PAGE_BYTES);
            let end = end.min((number + 1) * PAGE_BYTES);
            let bits = self.bits(start, end - start);
            let Some(page) = self.pages.get_mut(&number) else { continue };
            page.mapped &= !bits;
            if page.mapped == 0 {
                self.pages.remove(&number);
            } else if let Some(bytes) =
                page.bytes.get_mut((start - number * PAGE_BYTES) as usize..(end - number * PAGE_BYTES) as usize)
            {
                bytes.fill(0);
            }
        }
    }

    /// Whether the block at this byte is mapped, and the end of the run of blocks in the same state; `end` at most.
    pub(super) fn run(&self, first_byte: u64, end: u64) -> (bool, u64) {
        let is_mapped = self.is_mapped(first_byte);
        let mut byte = first_byte;
        while byte < end && self.is_mapped(byte) == is_mapped {
            let is_whole_page = is_mapped && byte.is_multiple_of(PAGE_BYTES) && self.is_page_mapped(byte);
            byte += if is_whole_page { PAGE_BYTES } else { self.block_bytes };
            // A hole ends where the next page begins.
            if !is_mapped && !self.pages.contains_key(&(byte / PAGE_BYTES)) {
                let next = self.pages.range(byte / PAGE_BYTES..).next();
                byte = next.map_or(end, |(number, _)| number * PAGE_BYTES);
            }
        }
        (is_mapped, byte.min(end))
    }

    fn is_mapped(&self, byte: u64) -> bool {
        let page = self.pages.get(&(byte / PAGE_BYTES));
        page.is_some_and(|page| page.mapped & self.bits(byte, 1) != 0)
    }

    /// Whether all blocks of the page of this byte are mapped.
    fn is_page_mapped(&self, byte: u64) -> bool {
        let page = self.pages.get(&(byte / PAGE_BYTES));
        page.is_some_and(|page| page.mapped == self.bits(0, PAGE_BYTES))
    }

    /// A bit for each block that these bytes touch; they lie in one page.
    fn bits(&self, first_byte: u64, length: u64) -> u128 {
        let first = first_byte % PAGE_BYTES / self.block_bytes;
        let end = (first_byte % PAGE_BYTES + length).div_ceil(self.block_bytes);
        let below = |block: u64| if block >= 128 { u128::MAX } else { (1 << block) - 1 };
        below(end) & !below(first)
    }

    #[cfg(test)]
    pub(super) fn page_count(&self) -> usize {
        self.pages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE_BYTES, Sparse};

    /// Against a plain array of bytes and one of blocks, with seeded operations.
    #[test]
    fn behaves_like_an_array() {
        const BLOCK: u64 = 512;
        const SIZE: u64 = 5 * PAGE_BYTES;
        let mut random = fastrand::Rng::with_seed(7);
        let mut sparse = Sparse::new(BLOCK as u32, SIZE);
        let mut bytes = vec![0_u8; SIZE as usize];
        let mut mapped = vec![false; (SIZE / BLOCK) as usize];
        for step in 0..1500_u64 {
            let page = random.u64(0..5) * PAGE_BYTES;
            if random.u8(0..3) > 0 {
                let first = if random.bool() { 0 } else { random.u64(0..PAGE_BYTES) };
                let length = random.u64(1..=(PAGE_BYTES - first).min(if step % 3 == 0 { PAGE_BYTES } else { 3000 }));
                let data: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
                assert!(sparse.write(page + first, &data));
                bytes[(page + first) as usize..(page + first + length) as usize].copy_from_slice(&data);
                mapped[((page + first) / BLOCK) as usize..=((page + first + length - 1) / BLOCK) as usize].fill(true);
            } else {
                let first = random.u64(0..SIZE / BLOCK);
                let end = random.u64(first..=(SIZE / BLOCK).min(first + 300));
                sparse.unmap(first * BLOCK, (end - first) * BLOCK);
                bytes[(first * BLOCK) as usize..(end * BLOCK) as usize].fill(0);
                mapped[first as usize..end as usize].fill(false);
            }
            if step % 50 == 0 {
                let mut read = Vec::new();
                (0..5).for_each(|page| sparse.append(page * PAGE_BYTES, PAGE_BYTES as usize, &mut read));
                assert!(read == bytes, "step {step}");
                let block = random.usize(0..mapped.len());
                let end = (block..mapped.len()).find(|end| mapped[*end] != mapped[block]).unwrap_or(mapped.len());
                assert_eq!(sparse.run(block as u64 * BLOCK, SIZE), (mapped[block], end as u64 * BLOCK), "step {step}");
                let pages = mapped.chunks(128).filter(|page| page.contains(&true)).count();
                assert_eq!(sparse.page_count(), pages, "step {step}");
            }
        }
    }

    #[test]
    fn a_hole_of_a_terabyte_is_skipped_in_one_step() {
        let mut sparse = Sparse::new(4096, 1 << 20);
        assert!(sparse.write((1 << 40) - 4096, &[1; 4096]));
        assert_eq!(sparse.run(0, 1 << 40), (false, (1 << 40) - 4096));
        assert_eq!(sparse.run((1 << 40) - 4096, 1 << 40), (true, 1 << 40));
        sparse.unmap(0, 1 << 40);
        assert_eq!(sparse.page_count(), 0);
    }

    #[test]
    fn memory_is_limited() {
        let mut sparse = Sparse::new(512, 2 * PAGE_BYTES);
        assert!(sparse.write(0, &[1]) && sparse.write(9 * PAGE_BYTES, &[1]));
        assert!(!sparse.write(4 * PAGE_BYTES, &[1]));
        assert!(sparse.write(9 * PAGE_BYTES + 70, &[1]));
        sparse.unmap(0, 512);
        assert!(sparse.write(4 * PAGE_BYTES, &[1]));
    }
}
