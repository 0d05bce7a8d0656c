//! WRITE SAME, UNMAP and GET LBA STATUS.

use super::{Bench, GOOD, INVALID_FIELD, UNSUPPORTED, check, unit};
use crate::scsi::{LogicalUnitSettings, MediumKind};

/// GET LBA STATUS from this block on: first block, blocks, whether they are deallocated.
fn status(bench: &mut Bench, lba: u8) -> Vec<(u64, u32, u8)> {
    let data = bench.data(&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 1, 0, 0, 0]);
    assert_eq!(u32::from_be_bytes(data[..4].try_into().unwrap()) as usize, data.len() - 4);
    let descriptor = |bytes: &[u8]| {
        let lba = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        (lba, u32::from_be_bytes(bytes[8..12].try_into().unwrap()), bytes[12])
    };
    data[8..].chunks_exact(16).map(descriptor).collect()
}

/// UNMAP of these ranges.
fn unmap(ranges: &[(u64, u32)]) -> ([u8; 10], Vec<u8>) {
    let length = (16 * ranges.len()) as u16;
    let mut list = (length + 6).to_be_bytes().to_vec();
    list.extend_from_slice(&length.to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    for (lba, count) in ranges {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&count.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    ([0x42, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], list)
}

#[test]
fn unmapped_blocks_read_zeros_and_are_deallocated() {
    let mut bench = Bench::sparse();
    assert_eq!(status(&mut bench, 0), [(0, 2048, 1)]);
    bench.write(10, 20, 5);
    assert_eq!(status(&mut bench, 0), [(0, 10, 1), (10, 20, 0), (30, 2018, 1)]);
    assert_eq!(status(&mut bench, 15), [(15, 15, 0), (30, 2018, 1)]);
    let (cdb, list) = unmap(&[(12, 1), (28, 2020), (0, 0)]);
    assert_eq!(bench.status(bench.a, &cdb, &list), GOOD);
    assert_eq!(status(&mut bench, 0), [(0, 10, 1), (10, 2, 0), (12, 1, 1), (13, 15, 0), (28, 2020, 1)]);
    assert_eq!(bench.read(12, 2), [[0; 512], [5; 512]].concat());
}

#[test]
fn unmap_does_all_of_its_list_or_nothing() {
    let mut bench = Bench::sparse();
    bench.write(0, 4, 5);
    let (cdb, list) = unmap(&[(0, 2), (2048, 1)]);
    assert_eq!(bench.status(bench.a, &cdb, &list), check([5, 0x21, 0]));
    assert_eq!(bench.read(0, 4), [5; 2048]);
    assert_eq!(bench.status(bench.a, &cdb, &list[..20]), check([5, 0x1a, 0]));
    assert_eq!(bench.status(bench.a, &[0x42], &[]), GOOD);
    assert_eq!(bench.status(bench.a, &[0x42, 0, 0, 0, 0, 0, 0, 0, 4, 0], &[0; 4]), check([5, 0x1a, 0]));
    let mut ram = Bench::new(unit(MediumKind::Ram, 512));
    let (cdb, list) = unmap(&[(0, 2)]);
    assert_eq!(ram.status(ram.a, &cdb, &list), UNSUPPORTED);
    assert_eq!(status(&mut ram, 0), [(0, 2048, 0)]);
}

#[test]
fn write_same_repeats_a_block_or_unmaps_zeros() {
    let mut bench = Bench::sparse();
    let block: Vec<u8> = (0..512).map(|byte| byte as u8).collect();
    let same = |flags| [0x93, flags, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 1, 44, 0, 0];
    assert_eq!(bench.status(bench.a, &same(0), &block), GOOD);
    assert_eq!(bench.data(&[0x28, 0, 0, 0, 0, 5, 0, 1, 44, 0]), block.repeat(300));
    assert_eq!(status(&mut bench, 0), [(0, 5, 1), (5, 300, 0), (305, 1743, 1)]);
    // With UNMAP, blocks other than zeros are written, zeros are unmapped; with NDOB no data is taken.
    assert_eq!(bench.status(bench.a, &[0x41, 8, 0, 0, 0, 5, 0, 0, 1, 0], &[1; 512]), GOOD);
    assert_eq!(bench.read(5, 1), [1; 512]);
    assert_eq!(bench.status(bench.a, &[0x41, 8, 0, 0, 0, 5, 0, 0, 1, 0], &[0; 512]), GOOD);
    assert_eq!(status(&mut bench, 0)[0], (0, 6, 1));
    let task = bench.device.execute(bench.a, [0; 8], &same(9));
    assert_eq!(task.data_out_length(), 0);
    assert_eq!(status(&mut bench, 0), [(0, 2048, 1)]);
    // NDOB alone writes zeros, which stay mapped.
    assert_eq!(bench.status(bench.a, &same(1), &[]), GOOD);
    assert_eq!(status(&mut bench, 0)[1], (5, 300, 0));
    // No blocks, ANCHOR, another length than a block.
    assert_eq!(bench.status(bench.a, &[0x41, 0, 0, 0, 0, 5, 0, 0, 0, 0], &block), INVALID_FIELD);
    assert_eq!(bench.status(bench.a, &same(0x10), &block), INVALID_FIELD);
    let mut task = bench.device.execute(bench.a, [0; 8], &same(0));
    task.expect_data_out(1024);
    assert_eq!((task.data_out_length(), bench.device.finish(&mut task).sense[12]), (0, 0x24));
    let mut ram = Bench::new(unit(MediumKind::Ram, 512));
    assert_eq!(ram.status(ram.a, &same(8), &[0; 512]), INVALID_FIELD);
}

#[test]
fn a_write_beyond_the_memory_fails() {
    let mut bench = Bench::new(LogicalUnitSettings { memory_bytes: Some(65_536), ..unit(MediumKind::Sparse, 512) });
    bench.write(127, 1, 3);
    assert_eq!(bench.status(bench.a, &[0x2a, 0, 0, 0, 0, 127, 0, 0, 2, 0], &[1; 1024]), check([7, 0x27, 7]));
    assert_eq!(bench.status(bench.a, &[0x41, 0, 0, 0, 4, 0, 0, 0, 1, 0], &[1; 512]), check([7, 0x27, 7]));
    assert_eq!(bench.read(127, 2), [[1; 512], [0; 512]].concat());
}
