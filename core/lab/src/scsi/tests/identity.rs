//! Identification of a device: INQUIRY, REPORT LUNS, capacity, supported commands; and unit attentions.

use super::{Bench, GOOD, INVALID_FIELD, check, port, unit};
use crate::scsi::{Device, DeviceSettings, LogicalUnitSettings, MediumKind, Reset, SettingsError, Status};

#[test]
fn standard_inquiry_data_is_that_of_spc() {
    let mut bench = Bench::sparse();
    let data = bench.data(&[0x12, 0, 0, 0, 255, 0]);
    assert_eq!(data.len(), 96);
    assert_eq!(data[..8], [0, 0, 6, 0x12, 91, 0, 0, 2]);
    assert_eq!(&data[8..32], b"ISCSITRCMEMORY DISK     ");
    // SAM-5, SPC-4, SBC-3, iSCSI
    assert_eq!(data[58..66], [0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0, 0x09, 0x60]);
    assert_eq!(bench.data(&[0x12, 0, 0, 0, 5, 0]), data[..5]);
    assert_eq!(bench.status(bench.a, &[0x12, 0, 0x83, 0, 255, 0], &[]), INVALID_FIELD);
    assert_eq!(bench.status(bench.a, &[0x12, 1, 0xc0, 0, 255, 0], &[]), INVALID_FIELD);
}

#[test]
fn vital_product_data_is_that_of_spc_and_sbc() {
    let mut bench = Bench::sparse();
    assert_eq!(bench.data(&[0x12, 1, 0, 0, 255, 0]), [0, 0, 0, 7, 0, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2]);
    for page in [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2] {
        let data = bench.data(&[0x12, 1, page, 4, 0, 0]);
        assert_eq!((data[1], data.len()), (page, 4 + usize::from(data[2]) * 256 + usize::from(data[3])));
    }
    let limits = bench.data(&[0x12, 1, 0xb0, 0, 255, 0]);
    assert_eq!(limits.len(), 64);
    // WSNZ; 128 blocks of COMPARE AND WRITE; unmap without limit, 256 descriptors, granularity 128, alignment 0 is
    // valid.
    assert_eq!(limits[4..6], [1, 128]);
    assert_eq!(limits[20..36], [0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0, 0, 0, 0, 128, 0x80, 0, 0, 0]);
    assert_eq!(limits[36..44], 65_536_u64.to_be_bytes());
    assert_eq!(bench.data(&[0x12, 1, 0xb1, 0, 255, 0])[4..6], [0, 1]);
    assert_eq!(bench.data(&[0x12, 1, 0xb2, 0, 255, 0]), [0, 0xb2, 0, 4, 0, 0xe4, 2, 0]);
    let mut ram = Bench::new(unit(MediumKind::Ram, 512));
    assert_eq!(ram.data(&[0x12, 1, 0xb2, 0, 255, 0]), [0, 0xb2, 0, 4, 0, 0, 0, 0]);
}

#[test]
fn designators_follow_each_other_to_the_end() {
    let mut bench = Bench::sparse();
    let data = bench.data(&[0x12, 1, 0x83, 0, 255, 0]);
    let mut rest = &data[4..];
    let mut found = Vec::new();
    while let [code_set, kind, 0, length, tail @ ..] = rest {
        let (designator, tail) = tail.split_at(usize::from(*length));
        found.push((*code_set, *kind, designator));
        rest = tail;
    }
    assert!(rest.is_empty());
    let kinds: Vec<_> = found.iter().map(|(code_set, kind, _)| (*code_set, *kind)).collect();
    assert_eq!(kinds, [(1, 0x03), (2, 0x01), (0x51, 0x94), (0x53, 0x98), (0x53, 0xa8)]);
    assert_eq!((found[0].2.len(), found[0].2[0] >> 4), (8, 3));
    assert_eq!(found[2].2, [0, 0, 0, 1]);
    assert!(found[3].2.starts_with(b"iqn.2025-01.org.iscsitrace:memory,t,0x0001\0"));
    assert!(found.iter().skip(3).all(|(_, _, name)| name.len() % 4 == 0));
}

#[test]
fn capacity_is_reported_by_both_commands() {
    let mut bench = Bench::sparse();
    assert_eq!(bench.data(&[0x25]), [0, 0, 7, 255, 0, 0, 2, 0]);
    assert_eq!(bench.status(bench.a, &[0x25, 0, 0, 0, 0, 1], &[]), INVALID_FIELD);
    let mut expected = vec![0, 0, 0, 0, 0, 0, 7, 255, 0, 0, 2, 0, 0, 0, 0xc0, 0];
    expected.resize(32, 0);
    assert_eq!(bench.data(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255]), expected);
    assert_eq!(bench.data(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]), expected[..8]);
    let large = LogicalUnitSettings { size_bytes: 4 << 40, ..unit(MediumKind::Sparse, 512) };
    assert_eq!(Bench::new(large).data(&[0x25]), [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
}

#[test]
fn luns_are_listed_and_addressed_in_two_ways() {
    let unit = |lun| LogicalUnitSettings { lun, ..unit(MediumKind::NullZeros, 512) };
    let settings =
        DeviceSettings { logical_units: vec![unit(None), unit(Some(300)), unit(Some(7))], ..Default::default() };
    let mut bench = Bench::with(&settings);
    let mut expected = vec![0, 0, 0, 24, 0, 0, 0, 0];
    expected.extend_from_slice(&[0; 8]);
    expected.extend_from_slice(&[0, 7, 0, 0, 0, 0, 0, 0, 0x41, 0x2c, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bench.data(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]), expected);
    assert_eq!(bench.status(bench.a, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 8], &[]), INVALID_FIELD);
    let luns =
        [([0, 7], true), ([0x40, 7], true), ([0x41, 0x2c], true), ([0, 8], false), ([1, 7], false), ([0xc1, 1], false)];
    for ([high, low], exists) in luns {
        let lun = [high, low, 0, 0, 0, 0, 0, 0];
        assert_eq!(bench.device.has_logical_unit(lun), exists, "{lun:02x?}");
        let mut task = bench.device.execute(bench.a, lun, &[0x00]);
        let completion = bench.device.finish(&mut task);
        assert_eq!(super::sense(&completion), (!exists).then_some([5, 0x25, 0]), "{lun:02x?}");
        let mut task = bench.device.execute(bench.a, lun, &[0x12, 0, 0, 0, 36, 0]);
        let mut data = Vec::new();
        bench.device.append_data_in(&task, 0, 1, &mut data);
        assert_eq!((bench.device.finish(&mut task).status, data[0]), (Status::Good, if exists { 0 } else { 0x7f }));
    }
}

#[test]
fn supported_commands_are_reported() {
    let mut bench = Bench::sparse();
    let all = bench.data(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]);
    assert_eq!(u32::from_be_bytes(all[..4].try_into().unwrap()) as usize, all.len() - 4);
    let codes: Vec<u8> = all[4..].chunks_exact(8).map(|descriptor| descriptor[0]).collect();
    for code in [0x00, 0x12, 0x28, 0x2a, 0x42, 0x5f, 0x93, 0xa0] {
        assert!(codes.contains(&code), "{code:02x}");
    }
    // READ(16): supported, 16 bytes, FUA and DPO, LBA, length.
    let one = bench.data(&[0xa3, 0x0c, 1, 0x88, 0, 0, 0, 0, 0xff, 0xff, 0, 0]);
    let usage = [0x88, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
    assert_eq!((&one[..4], &one[4..]), (&[0, 3, 0, 16][..], &usage[..]));
    // With the timeouts descriptor.
    let timeouts = bench.data(&[0xa3, 0x0c, 0x82, 0x9e, 0, 0x10, 0, 0, 0xff, 0xff, 0, 0]);
    assert_eq!((timeouts[1], timeouts.len(), timeouts[20..22].to_vec()), (0x83, 4 + 16 + 12, vec![0, 10]));
    // Not supported; a code with service actions requested without one; and the reverse.
    assert_eq!(bench.data(&[0xa3, 0x0c, 1, 0xc0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]), [0, 1, 0, 0]);
    assert_eq!(bench.status(bench.a, &[0xa3, 0x0c, 1, 0x9e, 0, 0, 0, 0, 0, 9], &[]), INVALID_FIELD);
    assert_eq!(bench.status(bench.a, &[0xa3, 0x0c, 2, 0x28, 0, 0, 0, 0, 0, 9], &[]), INVALID_FIELD);
    let mut ram = Bench::new(unit(MediumKind::Ram, 512));
    assert_eq!(ram.data(&[0xa3, 0x0c, 1, 0x42, 0, 0, 0, 0, 0, 9]), [0, 1, 0, 0]);
}

#[test]
fn target_port_groups_are_reported_when_they_are_set() {
    let settings = DeviceSettings { has_target_port_groups: true, ..DeviceSettings::default() };
    let mut bench = Bench::with(&settings);
    assert_eq!(bench.data(&[0x12, 0, 0, 0, 36, 0])[5], 0x10);
    let report = bench.data(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255]);
    assert_eq!(report, [0, 0, 0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    let mut without = Bench::sparse();
    assert_eq!(without.status(without.a, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255], &[]), INVALID_FIELD);
}

#[test]
fn a_unit_attention_is_reported_once_to_each_nexus() {
    let settings = DeviceSettings { has_power_on_unit_attention: true, ..DeviceSettings::default() };
    let mut bench = Bench::with(&settings);
    assert_eq!(bench.status(bench.a, &[0x12, 0, 0, 0, 36, 0], &[]), GOOD);
    assert_eq!(bench.status(bench.a, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16], &[]), GOOD);
    assert_eq!(bench.status(bench.a, &[0x28], &[]), check([6, 0x29, 1]));
    assert_eq!(bench.status(bench.a, &[0x28], &[]), GOOD);
    // REQUEST SENSE returns it as data.
    let sense = bench.send(bench.b, &[0x03, 0, 0, 0, 18, 0], &[]).2;
    assert_eq!((sense[2], sense[12], sense[13]), (6, 0x29, 1));
    assert_eq!(bench.status(bench.b, &[0x00], &[]), GOOD);
    assert_eq!(bench.data(&[0x03, 1, 0, 0, 252, 0]), [0x72, 0, 0, 0, 0, 0, 0, 0]);
    bench.device.reset_logical_unit([0; 8]);
    bench.device.clear_task_set([0; 8], &[bench.b]);
    bench.device.clear_task_set([0; 8], &[bench.b]);
    assert_eq!(bench.status(bench.a, &[0x00], &[]), check([6, 0x29, 3]));
    assert_eq!(bench.status(bench.a, &[0x00], &[]), GOOD);
    assert_eq!(bench.status(bench.b, &[0x00], &[]), check([6, 0x29, 3]));
    assert_eq!(bench.status(bench.b, &[0x00], &[]), check([6, 0x2f, 0]));
    assert_eq!(bench.status(bench.b, &[0x00], &[]), GOOD);
    bench.device.reset(Reset::Warm);
    assert_eq!(bench.status(bench.a, &[0x00], &[]), check([6, 0x29, 2]));
}

#[test]
fn invalid_device_settings_are_refused() {
    let make = |unit| Device::new(&DeviceSettings { logical_units: vec![unit], ..DeviceSettings::default() }).err();
    let unit = LogicalUnitSettings::default();
    assert_eq!(make(unit.clone()), None);
    let block = LogicalUnitSettings { block_bytes: 520, ..unit.clone() };
    assert_eq!(make(block), Some(SettingsError::BlockLength { lun: 0, block_bytes: 520 }));
    for size_bytes in [0, 1000, u64::MAX - 511] {
        let size = LogicalUnitSettings { size_bytes, ..unit.clone() };
        assert_eq!(make(size), Some(SettingsError::Size { lun: 0, size_bytes, block_bytes: 512 }));
    }
    let memory = LogicalUnitSettings { medium: MediumKind::Ram, size_bytes: 1 << 62, ..unit.clone() };
    assert_eq!(make(memory), Some(SettingsError::Memory { lun: 0, size_bytes: 1 << 62 }));
    let number = LogicalUnitSettings { lun: Some(16384), ..unit.clone() };
    assert_eq!(make(number), Some(SettingsError::Number { lun: 16384 }));
    let twice = DeviceSettings {
        logical_units: vec![LogicalUnitSettings { lun: Some(1), ..unit.clone() }, unit],
        ..DeviceSettings::default()
    };
    assert_eq!(Device::new(&twice).err(), Some(SettingsError::Number { lun: 1 }));
    let text = DeviceSettings { vendor: "NINECHARS".into(), ..DeviceSettings::default() };
    assert!(matches!(Device::new(&text), Err(SettingsError::Text { field: "vendor", .. })));
}

#[test]
fn settings_are_read_from_json() {
    let text = r#"{"vendor": "LAB", "logical_units": [{"medium": "null_address", "size_bytes": 8192}]}"#;
    let settings: DeviceSettings = serde_json::from_str(text).unwrap();
    assert_eq!(settings.logical_units[0].medium, MediumKind::NullAddress);
    assert_eq!(settings.logical_units[0].block_bytes, 512);
    assert!(serde_json::from_str::<DeviceSettings>(r#"{"logical_units": [{"size": 1}]}"#).is_err());
    let again: DeviceSettings = serde_json::from_str(&serde_json::to_string(&settings).unwrap()).unwrap();
    assert_eq!(again, settings);
}

#[test]
fn a_nexus_is_remembered_only_while_it_is_registered() {
    let mut bench = Bench::sparse();
    let registering = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    let mut list = [0; 24];
    list[15] = 1;
    assert_eq!(bench.status(bench.a, &registering, &list), GOOD);
    bench.device.nexus_lost(bench.a);
    bench.device.nexus_lost(bench.b);
    assert_eq!(bench.device.nexus_established(port("a")), bench.a);
    assert_ne!(bench.device.nexus_established(port("b")), bench.b);
}
