//! MODE SENSE and MODE SELECT.

use super::{Bench, GOOD, INVALID_FIELD, INVALID_PARAMETER, check};

const CONTROL: [u8; 12] = [0x0a, 0x0a, 0, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0];

/// MODE SELECT(6) of these pages.
fn select(pages: &[u8]) -> ([u8; 6], Vec<u8>) {
    let list = [&[0; 4], pages].concat();
    ([0x15, 0x10, 0, 0, list.len() as u8, 0], list)
}

#[test]
fn pages_are_those_of_spc_and_sbc() {
    let mut bench = Bench::sparse();
    // DPOFUA; 2048 blocks of 512; the page.
    let page = bench.data(&[0x1a, 0, 0x0a, 0, 255, 0]);
    assert_eq!(page[..12], [23, 0, 0x10, 8, 0, 0, 8, 0, 0, 0, 2, 0]);
    assert_eq!(page[12..], CONTROL);
    let long = bench.data(&[0x5a, 8, 0x0a, 0, 0, 0, 0, 0, 255, 0]);
    assert_eq!((&long[..8], &long[8..]), (&[0, 18, 0, 0x10, 0, 0, 0, 0][..], &CONTROL[..]));
    // Changeable: D_SENSE and SWP. Default. Saved: there is none.
    assert_eq!(bench.data(&[0x1a, 8, 0x4a, 0, 255, 0])[4..], [0x0a, 0x0a, 4, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bench.data(&[0x1a, 8, 0x8a, 0, 255, 0])[4..], CONTROL);
    assert_eq!(bench.status(bench.a, &[0x1a, 8, 0xca, 0, 255, 0], &[]), check([5, 0x39, 0]));
    assert_eq!(bench.status(bench.a, &[0x1a, 8, 0x19, 0, 255, 0], &[]), INVALID_FIELD);
    let codes = |data: &[u8]| {
        let (mut rest, mut codes) = (&data[4..], Vec::new());
        while let [code, second, third, fourth, ..] = rest {
            let is_subpage = code & 0x40 != 0;
            codes.push((code & 0x3f, if is_subpage { *second } else { 0 }));
            let length = if is_subpage {
                4 + usize::from(*third) * 256 + usize::from(*fourth)
            } else {
                2 + usize::from(*second)
            };
            rest = &rest[length..];
        }
        codes
    };
    let all = bench.data(&[0x1a, 8, 0x3f, 0, 255, 0]);
    assert_eq!((usize::from(all[0]) + 1, codes(&all)), (all.len(), vec![(1, 0), (8, 0), (0xa, 0), (0x1c, 0)]));
    let all = bench.data(&[0x1a, 8, 0x3f, 0xff, 255, 0]);
    assert_eq!(codes(&all), [(1, 0), (8, 0), (0xa, 0), (0xa, 1), (0x1c, 0)]);
    assert_eq!(bench.data(&[0x1a, 8, 0x0a, 1, 255, 0])[4..8], [0x4a, 1, 0, 0x1c]);
}

#[test]
fn descriptor_sense_is_returned_when_selected() {
    let mut bench = Bench::sparse();
    let mut page = CONTROL;
    page[2] |= 0x04;
    let (cdb, list) = select(&page);
    assert_eq!(bench.status(bench.a, &cdb, &list), GOOD);
    let mut task = bench.device.execute(bench.a, [0; 8], &[0x28, 0, 0xff, 0, 0, 0, 0, 0, 1]);
    assert_eq!(bench.device.finish(&mut task).sense, [0x72, 5, 0x21, 0, 0, 0, 0, 0]);
    // The other initiator gets a unit attention; without a change nobody does.
    assert_eq!(bench.status(bench.b, &[0x00], &[]), check([6, 0x2a, 1]));
    assert_eq!(bench.status(bench.a, &cdb, &list), GOOD);
    assert_eq!(bench.status(bench.b, &[0x00], &[]), GOOD);
}

#[test]
fn software_write_protection_protects() {
    let mut bench = Bench::sparse();
    let mut page = CONTROL;
    page[4] |= 0x08;
    let (cdb, list) = select(&page);
    assert_eq!(bench.status(bench.a, &cdb, &list), GOOD);
    assert_eq!(bench.status(bench.a, &[0x2a], &[]), check([7, 0x27, 2]));
    assert_eq!(bench.data(&[0x1a, 8, 0x0a, 0, 255, 0])[2], 0x90);
    bench.device.reset_logical_unit([0; 8]);
    assert_eq!(bench.status(bench.a, &[0x00], &[]), check([6, 0x29, 3]));
    assert_eq!(bench.status(bench.a, &[0x2a], &[]), GOOD);
}

#[test]
fn lists_that_change_fixed_values_are_refused_as_a_whole() {
    let mut bench = Bench::sparse();
    let caching = [0x08, 0x12, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut busy = CONTROL;
    busy[8] = 0;
    let (cdb, list) = select(&[&caching[..], &busy[..]].concat());
    let mut task = bench.device.execute(bench.a, [0; 8], &cdb);
    bench.device.write_data_out(&mut task, 0, &list);
    // INVALID FIELD IN PARAMETER LIST, byte 4 + 20 + 8.
    assert_eq!(bench.device.finish(&mut task).sense[12..18], [0x26, 0, 0, 0x80, 0, 32]);
    assert_eq!(bench.data(&[0x1a, 8, 0x08, 0, 255, 0])[6], 0);
    let (cdb, list) = select(&caching);
    assert_eq!(bench.status(bench.a, &cdb, &list), GOOD);
    assert_eq!(bench.data(&[0x1a, 8, 0x08, 0, 255, 0])[6], 4);
    let cases = [
        (select(&[0x19, 0x06, 0, 0, 0, 0, 0, 0]), INVALID_PARAMETER),
        (select(&[0x0a, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0]), INVALID_PARAMETER),
        (select(&CONTROL[..9]), check([5, 0x1a, 0])),
        (select(&[0x0a]), check([5, 0x1a, 0])),
        (([0x15, 0, 0, 0, 4, 0], vec![0; 4]), INVALID_FIELD),
        (([0x15, 0x11, 0, 0, 4, 0], vec![0; 4]), INVALID_FIELD),
        (([0x15, 0x10, 0, 0, 4, 0], vec![0, 0, 0, 16]), INVALID_PARAMETER),
        (([0x15, 0x10, 0, 0, 4, 0], vec![0, 0, 0, 8]), check([5, 0x1a, 0])),
        (([0x15, 0x10, 0, 0, 12, 0], vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 2, 0]), GOOD),
        (([0x15, 0x10, 0, 0, 12, 0], vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 16, 0]), INVALID_PARAMETER),
        (([0x15, 0x10, 0, 0, 0, 0], vec![]), GOOD),
    ];
    for ((cdb, list), expected) in cases {
        assert_eq!(bench.status(bench.a, &cdb, &list), expected, "{cdb:02x?} {list:02x?}");
    }
}
