//! CDBs by the figures of SPC, SBC, SSC, SMC and MMC.

use super::commands::{CD, CHANGER, COMMANDS, TAPE};
use super::{Command, Operation, Purpose, command, decode};
use proptest::prelude::*;

fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

#[test]
fn a_scan_reads_and_writes_nothing() {
    for (code, purpose) in [
        (0x28, Purpose::Data),
        (0x8a, Purpose::Data),
        (0x42, Purpose::Data),
        (0x93, Purpose::Data),
        (0x89, Purpose::Data),
        (0x35, Purpose::Flush),
        (0x91, Purpose::Flush),
        // TEST UNIT READY, INQUIRY, MODE SENSE, READ CAPACITY, REPORT LUNS, PERSISTENT RESERVE IN
        (0x00, Purpose::Control),
        (0x12, Purpose::Control),
        (0x1a, Purpose::Control),
        (0x25, Purpose::Control),
        (0xa0, Purpose::Control),
        (0x5e, Purpose::Control),
        (0x7f, Purpose::Unknown),
        (0xc1, Purpose::Unknown),
    ] {
        assert_eq!(decode(&cdb(&[code]), None).operation.purpose(), purpose, "{code:#x}");
    }
}

/// CDB, device type, operation, name, LBA, blocks.
type Case = (&'static [u8], Option<u8>, &'static str, &'static str, Option<u64>, Option<u32>);

/// By the figures of SPC, SBC, SSC, SMC and MMC.
#[test]
fn commands_are_those_of_t10() {
    #[rustfmt::skip]
    let cases: [Case; 30] = [
        (&[0x00], None, "test_unit_ready", "TEST UNIT READY", None, None),
        (&[0x08, 0x1f, 0xff, 0xfe, 0x01], None, "read", "READ(6)", Some(0x1f_fffe), Some(1)),
        (&[0x08, 0xe1, 0x02, 0x03, 0x00], None, "read", "READ(6)", Some(0x01_0203), Some(256)),
        (&[0x0a, 0, 0, 9, 0xff], None, "write", "WRITE(6)", Some(9), Some(255)),
        (&[0x08, 0x01, 0, 1, 0], Some(TAPE), "read", "READ(6)", None, Some(256)),
        (&[0x08, 0x00, 0, 1, 0], Some(TAPE), "read", "READ(6)", None, None),
        (&[0x12, 1, 0x83, 0, 0xff], None, "inquiry", "INQUIRY", None, None),
        (&[0x1b, 0, 0, 0, 1], None, "start_stop_unit", "START STOP UNIT", None, None),
        (&[0x1b, 0, 0, 0, 1], Some(TAPE), "load_unload", "LOAD UNLOAD", None, None),
        (&[0x28, 0, 0x00, 0x01, 0x02, 0x03, 0, 0x01, 0x00], None, "read", "READ(10)", Some(0x0001_0203), Some(256)),
        (&[0x28, 0, 0, 0, 0, 7, 0, 0, 0], Some(CD), "read", "READ(10)", Some(7), Some(0)),
        (&[0x2a, 0, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff], None, "write", "WRITE(10)", Some(0xffff_ffff), Some(65535)),
        (&[0x2b, 0, 0, 0, 0, 5], Some(TAPE), "locate", "LOCATE(10)", None, None),
        (&[0x35], None, "synchronize_cache", "SYNCHRONIZE CACHE(10)", Some(0), Some(0)),
        (&[0x42, 1, 0, 0, 0, 0, 0, 0, 24], None, "unmap", "UNMAP", None, None),
        (&[0x42, 2], Some(CD), "read_sub_channel", "READ SUB-CHANNEL", None, None),
        (&[0x43, 2], None, "read_toc", "READ TOC/PMA/ATIP", None, None),
        (&[0x5e, 3], None, "persistent_reserve_in", "PERSISTENT RESERVE IN", None, None),
        (&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0, 0], None, "read", "READ(16)", Some(0x0102_0304_0506_0708), Some(65536)),
        (&[0x88, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0], Some(TAPE), "read", "READ(16)", None, Some(256)),
        (&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1], None, "compare_and_write", "COMPARE AND WRITE", Some(7), Some(1)),
        (&[0x93, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 2, 0], None, "write_same", "WRITE SAME(16)", Some(7), Some(512)),
        (&[0x9e, 0x10], None, "read_capacity", "READ CAPACITY(16)", None, None),
        (&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 1, 0], None, "get_lba_status", "GET LBA STATUS(16)", Some(256), None),
        (&[0x9e, 0x1f], None, "service_action_in", "SERVICE ACTION IN(16)", None, None),
        (&[0xa0], None, "report_luns", "REPORT LUNS", None, None),
        (&[0xa3, 0x0c], None, "report_supported_opcodes", "REPORT SUPPORTED OPERATION CODES", None, None),
        (&[0xa5], Some(CHANGER), "move_medium", "MOVE MEDIUM", None, None),
        (&[0xa8, 0, 0, 0, 0, 8, 0, 0, 1, 2], None, "read", "READ(12)", Some(8), Some(258)),
        (&[0xc1], None, "other", "other", None, None),
    ];
    for (bytes, device_type, operation, name, lba, block_count) in cases {
        let found = decode(&cdb(bytes), device_type);
        assert_eq!((found.operation.as_str(), found.name), (operation, name), "{bytes:02x?}");
        assert_eq!((found.lba, found.block_count), (lba, block_count), "{bytes:02x?}");
    }
}

#[test]
fn a_32_byte_command_needs_the_ahs_for_its_blocks() {
    let mut whole = vec![0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0x00, 0x09, 0, 0];
    whole.extend_from_slice(&0x0102_0304_0506_0708_u64.to_be_bytes());
    whole.extend_from_slice(&[0; 8]);
    whole.extend_from_slice(&513_u32.to_be_bytes());
    let found = decode(&whole, None);
    assert_eq!((found.name, found.lba, found.block_count), ("READ(32)", Some(0x0102_0304_0506_0708), Some(513)));
    let cut = decode(&whole[..16], None);
    assert_eq!((cut.name, cut.lba, cut.block_count), ("READ(32)", None, None));
    whole[9] = 0x77;
    assert_eq!(decode(&whole, None).operation, Operation::Other);
}

#[test]
fn a_service_action_belongs_to_operation_codes_that_have_one() {
    for (bytes, device_type, service_action, reservation_type) in [
        // PERSISTENT RESERVE OUT: REGISTER, RESERVE (Write Exclusive), PREEMPT (Exclusive Access - All Registrants)
        (&[0x5f, 0x00, 0x00][..], None, Some(0), Some(0)),
        (&[0x5f, 0x01, 0x01], None, Some(1), Some(1)),
        (&[0x5f, 0x04, 0x08], None, Some(4), Some(8)),
        (&[0x5f, 0xe6, 0xf3], None, Some(6), Some(3)),
        // READ KEYS, READ RESERVATION
        (&[0x5e, 0x00], None, Some(0), None),
        (&[0x5e, 0x01], None, Some(1), None),
        // REPORT TARGET PORT GROUPS with the extended header, an unknown MAINTENANCE OUT
        (&[0xa3, 0x2a], None, Some(0x0a), None),
        (&[0xa4, 0x1f], None, Some(0x1f), None),
        (&[0x9e, 0x10], Some(0), Some(0x10), None),
        (&[0x83, 0x10], None, Some(0x10), None),
        (&[0x9d, 0x05], None, Some(5), None),
        // READ POSITION of a tape, PRE-FETCH(10) of a disk
        (&[0x34, 0x06], Some(TAPE), Some(6), None),
        (&[0x34, 0x02], None, None, None),
        // SEND KEY of a CD
        (&[0xa3, 0x01], Some(CD), None, None),
        // READ(10), RESERVE(6), INQUIRY: the bits of byte 1 are others
        (&[0x28, 0x08], None, None, None),
        (&[0x16, 0x10], None, None, None),
        (&[0x12, 0x01], None, None, None),
        (&[0xc1, 0x01], None, None, None),
        // cut
        (&[0x5f], None, None, None),
        (&[0x5f, 0x01], None, Some(1), None),
        (&[0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0x00, 0x09], None, Some(9), None),
        (&[0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0x00], None, None, None),
        (&[], None, None, None),
    ] {
        let found = decode(bytes, device_type);
        assert_eq!(found.service_action, service_action, "{bytes:02x?}");
        assert_eq!(found.reservation_type, reservation_type, "{bytes:02x?}");
    }
}

#[test]
fn a_field_that_was_cut_is_unknown() {
    let read = [0x28, 0, 0, 1, 2, 3, 0, 0, 8, 0];
    for captured in 0..=read.len() {
        let found = decode(&read[..captured], None);
        assert_eq!(found.operation == Operation::Read, captured >= 1);
        assert_eq!(found.lba, (captured >= 6).then_some(0x0001_0203));
        assert_eq!(found.block_count, (captured >= 9).then_some(8));
    }
}

#[test]
fn no_two_operations_share_a_name() {
    let names: std::collections::HashSet<&str> = Operation::ALL.iter().map(|operation| operation.as_str()).collect();
    assert_eq!(names.len(), Operation::ALL.len());
}

/// The length in T10's name is that of the CDB.
#[test]
fn lengths_are_those_of_the_names() {
    for command in COMMANDS {
        let named = command.name.rsplit_once('(').and_then(|(_, length)| length.strip_suffix(')')?.parse().ok());
        // that of a variable-length CDB is in the CDB
        if let Some(length) = named.filter(|_| command.code != 0x7f) {
            assert_eq!(command.length(), Some(length), "{}", command.name);
        }
    }
}

#[test]
fn rows_are_in_order_and_unique() {
    let keys: Vec<_> = COMMANDS.iter().map(|row| (row.code, row.device_type, row.service_action)).collect();
    assert!(keys.is_sorted_by_key(|(code, ..)| *code));
    let unique: std::collections::HashSet<_> = keys.iter().collect();
    assert_eq!(unique.len(), keys.len());
    // the row for every other service action comes last, and there is one
    for row in COMMANDS.iter().filter(|row| row.service_action.is_some()) {
        let is_alike = |other: &&Command| (other.code, other.device_type) == (row.code, row.device_type);
        assert!(COMMANDS.iter().filter(is_alike).all(|other| other.has_service_action), "{}", row.name);
        let last = COMMANDS.iter().rfind(is_alike);
        assert_eq!(last.map(|last| last.service_action), Some(None), "{}", row.name);
    }
}

/// By the figures of SPC-4 and SBC-3, without what a memory has no use for.
#[test]
fn usage_data_have_the_bits_of_the_fields() {
    for (bytes, expected) in [
        (&[0x00][..], &[0x00, 0, 0, 0, 0, 0][..]),
        // READ(6) has 21 bits of LBA; READ(10) DPO and FUA
        (&[0x08], &[0x08, 0x1f, 0xff, 0xff, 0xff, 0]),
        (&[0x28], &[0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0]),
        (&[0x89], &[0x89, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0, 0]),
        // service actions stand in their field
        (&[0x5f, 4], &[0x5f, 0x04, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        (&[0x9e, 0x10], &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        (&[0xa3, 0x0c], &[0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    ] {
        assert_eq!(command(bytes, Some(0)).and_then(Command::usage).as_deref(), Some(expected), "{bytes:x?}");
    }
    // READ LONG(16), which is not executed
    assert!(command(&[0x9e, 0x11], Some(0)).is_some_and(|row| row.usage().is_none()));
}

proptest! {
    #[test]
    fn any_bytes_decode(cdb in proptest::collection::vec(any::<u8>(), 0..40), device_type: Option<u8>) {
        let found = decode(&cdb, device_type);
        prop_assert!(found.block_count.is_none() || found.operation != Operation::Other);
    }
}
