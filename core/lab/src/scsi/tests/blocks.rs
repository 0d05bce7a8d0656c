//! Reading, writing and comparing blocks.

use super::{Bench, GOOD, INVALID_FIELD, UNSUPPORTED, check, unit};
use crate::scsi::{LogicalUnitSettings, MediumKind, Status};

/// READ and WRITE with every CDB length, of `count` blocks at `lba`.
fn cdbs(lba: u8, count: u8) -> [(Vec<u8>, Vec<u8>); 4] {
    let six = |code| vec![code, 0, 0, lba, count, 0];
    let ten = |code| vec![code, 0, 0, 0, 0, lba, 0, 0, count, 0];
    let twelve = |code| vec![code, 0, 0, 0, 0, lba, 0, 0, 0, count, 0, 0];
    let sixteen = |code| vec![code, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, count, 0, 0];
    [(six(0x08), six(0x0a)), (ten(0x28), ten(0x2a)), (twelve(0xa8), twelve(0xaa)), (sixteen(0x88), sixteen(0x8a))]
}

#[test]
fn data_written_in_any_order_is_read_in_any_range() {
    for (medium, block_bytes) in
        [(MediumKind::Ram, 512), (MediumKind::Ram, 4096), (MediumKind::Sparse, 512), (MediumKind::Sparse, 4096)]
    {
        let mut random = fastrand::Rng::with_seed(3);
        for (place, (read, write)) in cdbs(40, 100).into_iter().enumerate() {
            let mut bench = Bench::new(unit(medium, block_bytes));
            let length = 100 * block_bytes as usize;
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let mut task = bench.device.execute(bench.a, [0; 8], &write);
            assert_eq!((task.data_out_length(), task.data_in_length()), (length as u64, 0));
            let mut pieces: Vec<usize> = (0..length).step_by(777).collect();
            random.shuffle(&mut pieces);
            for first in pieces {
                let piece = &bytes[first..length.min(first + 777)];
                bench.device.write_data_out(&mut task, first as u64, piece);
            }
            assert_eq!(bench.device.finish(&mut task).status, Status::Good);
            let task = bench.device.execute(bench.b, [0; 8], &read);
            assert_eq!((task.data_out_length(), task.data_in_length()), (0, length as u64), "CDB {place}");
            for _ in 0..50 {
                let (first, most) = (random.usize(..length + 9), random.usize(..length));
                let mut part = Vec::new();
                bench.device.append_data_in(&task, first as u64, most, &mut part);
                assert!(part == bytes[first.min(length)..(first + most).min(length)]);
            }
            assert!(bench.read(39, 1).iter().all(|byte| *byte == 0));
        }
    }
}

/// SBC-3: 0 in READ(6) means 256.
#[test]
fn read_6_of_0_blocks_reads_256() {
    assert_eq!(Bench::sparse().data(&[0x08, 0, 0, 0, 0, 0]).len(), 256 * 512);
    assert_eq!(Bench::sparse().read(0, 0).len(), 0);
}

/// The medium has 2048 blocks.
#[test]
fn blocks_beyond_the_end_are_out_of_range() {
    const OUT_OF_RANGE: (Status, Option<[u8; 3]>) = check([5, 0x21, 0]);
    #[rustfmt::skip]
    let cases: [(&[u8], _); 12] = [
        (&[0x28, 0, 0, 0, 7, 255, 0, 0, 1, 0], GOOD),
        (&[0x28, 0, 0, 0, 7, 255, 0, 0, 2, 0], OUT_OF_RANGE),
        (&[0x28, 0, 0, 0, 8, 0, 0, 0, 0, 0], GOOD),
        (&[0x28, 0, 0, 0, 8, 1, 0, 0, 0, 0], OUT_OF_RANGE),
        (&[0x08, 0, 8, 0, 1, 0], OUT_OF_RANGE),
        (&[0x88, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0], OUT_OF_RANGE),
        (&[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], OUT_OF_RANGE),
        (&[0x8a, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], OUT_OF_RANGE),
        (&[0xaf, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0], OUT_OF_RANGE),
        (&[0x35, 0, 0, 0, 8, 0, 0, 0, 1, 0], OUT_OF_RANGE),
        (&[0x34, 0, 0, 0, 8, 0, 0, 0, 1, 0], OUT_OF_RANGE),
        (&[0x41, 0, 0, 0, 8, 0, 0, 0, 1, 0], OUT_OF_RANGE),
    ];
    for (cdb, expected) in cases {
        let mut bench = Bench::sparse();
        assert_eq!(bench.status(bench.a, cdb, &[0; 512]), expected, "{cdb:02x?}");
    }
}

#[test]
fn protection_information_is_refused_with_the_field() {
    for code in [0x28, 0x2a, 0x2e, 0x2f, 0xa8, 0xaa, 0xae, 0xaf, 0x88, 0x8a, 0x8b, 0x8e, 0x8f, 0x89, 0x41, 0x93] {
        let mut bench = Bench::sparse();
        let mut task = bench.device.execute(bench.a, [0; 8], &[code, 0x20, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0]);
        assert_eq!((task.data_in_length(), task.data_out_length()), (0, 0));
        let completion = bench.device.finish(&mut task);
        assert_eq!(completion.status, Status::CheckCondition, "{code:02x}");
        // INVALID FIELD IN CDB; SKSV, C/D, BPV, bit 7 of byte 1.
        assert_eq!((completion.sense[12], &completion.sense[15..18]), (0x24, &[0xcf, 0, 1][..]), "{code:02x}");
        // FUA and DPO are accepted.
        if matches!(code, 0x28 | 0xa8 | 0x88) {
            assert_eq!(bench.status(bench.a, &[code, 0x18], &[]), GOOD);
        }
    }
}

#[test]
fn verify_compares_only_with_bytchk() {
    let mut bench = Bench::sparse();
    bench.write(3, 1, 7);
    let mut data = vec![7; 512];
    let cdb = |byte_check: u8| [0x2f, byte_check << 1, 0, 0, 0, 3, 0, 0, 1, 0];
    assert_eq!(bench.status(bench.a, &cdb(1), &data), GOOD);
    data[300] = 8;
    assert_eq!(bench.status(bench.a, &cdb(1), &data), check([0xe, 0x1d, 0]));
    assert_eq!(bench.status(bench.a, &cdb(0), &[]), GOOD);
    assert_eq!(bench.status(bench.a, &cdb(2), &data), INVALID_FIELD);
    // WRITE AND VERIFY writes.
    assert_eq!(bench.status(bench.a, &[0x2e, 2, 0, 0, 0, 3, 0, 0, 1, 0], &data), GOOD);
    assert_eq!(bench.read(3, 1), data);
}

#[test]
fn compare_and_write_writes_when_all_is_equal() {
    let mut bench = Bench::sparse();
    bench.write(5, 2, 1);
    let cdb = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0];
    let mut data = [vec![1; 1024], vec![2; 1024]].concat();
    data[700] = 9;
    let mut task = bench.device.execute(bench.a, [0; 8], &cdb);
    assert_eq!(task.data_out_length(), 2048);
    bench.device.write_data_out(&mut task, 0, &data);
    let completion = bench.device.finish(&mut task);
    // MISCOMPARE DURING VERIFY OPERATION, INFORMATION valid: byte 700.
    assert_eq!(completion.sense[..7], [0xf0, 0, 0xe, 0, 0, 2, 188]);
    assert_eq!(completion.sense[12..14], [0x1d, 0]);
    assert_eq!(bench.read(5, 2), [1; 1024]);
    data[700] = 1;
    assert_eq!(bench.status(bench.a, &cdb, &data[..2047]), check([5, 0x1a, 0]));
    assert_eq!(bench.read(5, 2), [1; 1024]);
    assert_eq!(bench.status(bench.a, &cdb, &data), GOOD);
    assert_eq!(bench.read(5, 2), [2; 1024]);
    let mut task = bench.device.execute(bench.a, [0; 8], &cdb);
    task.expect_data_out(4096);
    assert_eq!((task.data_out_length(), bench.device.finish(&mut task).sense[12]), (0, 0x24));
    // 64 KiB is the maximum.
    let over = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 129, 0, 0];
    assert_eq!(bench.status(bench.a, &over, &[]), INVALID_FIELD);
}

#[test]
fn orwrite_sets_bits() {
    let mut bench = Bench::sparse();
    bench.write(0, 1, 0x0f);
    let cdb = [0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    assert_eq!(bench.status(bench.a, &cdb, &[0x31; 512]), GOOD);
    assert_eq!(bench.read(0, 1), [0x3f; 512]);
}

#[test]
fn prefetch_meets_its_condition() {
    let mut bench = Bench::sparse();
    assert_eq!(bench.status(bench.a, &[0x34, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[]).0, Status::ConditionMet);
    assert_eq!(bench.status(bench.a, &[0x91], &[]), GOOD);
}

#[test]
fn null_media_read_by_address() {
    let mut bench = Bench::new(unit(MediumKind::NullAddress, 4096));
    assert_eq!(bench.data(&[0x28, 0, 0, 0, 0, 16, 0, 0, 1, 0])[..16], [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8]);
    assert_eq!(bench.status(bench.a, &[0x2a, 0, 0, 0, 0, 16, 0, 0, 1, 0], &[9; 4096]), GOOD);
    assert_eq!(bench.data(&[0x28, 0, 0, 0, 0, 16, 0, 0, 1, 0])[..8], [0, 0, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn a_protected_medium_is_not_written() {
    let mut bench = Bench::new(LogicalUnitSettings { is_write_protected: true, ..unit(MediumKind::Sparse, 512) });
    for code in [0x0a, 0x2a, 0xaa, 0x8a, 0x2e, 0x8b, 0x89, 0x41, 0x93, 0x42] {
        assert_eq!(bench.status(bench.a, &[code], &[]), check([7, 0x27, 0]), "{code:02x}");
    }
    assert_eq!(bench.read(0, 1).len(), 512);
    // WP
    assert_eq!(bench.data(&[0x1a, 8, 0x0a, 0, 255, 0])[2], 0x90);
}

#[test]
fn an_ejected_medium_is_not_present_until_loaded() {
    let mut bench = Bench::new(LogicalUnitSettings { is_removable: true, ..unit(MediumKind::Sparse, 512) });
    const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 2, 0];
    assert_eq!(bench.status(bench.b, &[0x1e, 0, 0, 0, 1, 0], &[]), GOOD);
    assert_eq!(bench.status(bench.a, &EJECT, &[]), check([5, 0x53, 2]));
    bench.device.nexus_lost(bench.b);
    assert_eq!(bench.status(bench.a, &EJECT, &[]), GOOD);
    assert_eq!(bench.status(bench.a, &[0x00], &[]), check([2, 0x3a, 2]));
    assert_eq!(bench.status(bench.a, &[0x28], &[]), check([2, 0x3a, 2]));
    assert_eq!(bench.status(bench.a, &[0x1b, 0, 0, 0, 3, 0], &[]), GOOD);
    assert_eq!(bench.status(bench.a, &[0x00], &[]), GOOD);
    let mut fixed = Bench::sparse();
    assert_eq!(fixed.status(fixed.a, &EJECT, &[]), INVALID_FIELD);
    // Stopping has no effect.
    assert_eq!(fixed.status(fixed.a, &[0x1b, 0, 0, 0, 0, 0], &[]), GOOD);
    assert_eq!(fixed.status(fixed.a, &[0x00], &[]), GOOD);
}

#[test]
fn unsupported_commands_are_refused() {
    let mut bench = Bench::sparse();
    for code in [0x04, 0x48, 0x4d, 0x7f, 0x83, 0x84, 0x9c, 0xc0] {
        assert_eq!(bench.status(bench.a, &[code], &[]), UNSUPPORTED, "{code:02x}");
    }
    // A service action of a known operation code; NACA.
    assert_eq!(bench.status(bench.a, &[0x9e, 0x1f], &[]), INVALID_FIELD);
    assert_eq!(bench.status(bench.a, &[0x00, 0, 0, 0, 0, 4], &[]), INVALID_FIELD);
}
