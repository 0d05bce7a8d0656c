//! Any command with any data ends, and every byte is accounted for.

use iscsitrace_wire::cdb::{COMMANDS, Command};
use proptest::prelude::*;

use super::{Bench, unit};
use crate::scsi::{LogicalUnitSettings, MediumKind, Status};

fn bench(medium: u8) -> Bench {
    let medium =
        [MediumKind::Ram, MediumKind::Sparse, MediumKind::NullAddress, MediumKind::NullZeros][usize::from(medium % 4)];
    Bench::new(LogicalUnitSettings { is_removable: true, memory_bytes: Some(1 << 18), ..unit(medium, 512) })
}

/// A CDB of a supported command, with small numbers in some fields, so that many are valid.
fn cdb() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![6 => Just(0_u8), 2 => 0..4_u8, 1 => any::<u8>()];
    let executed: Vec<&Command> = COMMANDS.iter().filter(|command| command.support.is_some()).collect();
    (proptest::sample::select(executed), proptest::collection::vec(byte, 16)).prop_map(|(command, mut bytes)| {
        bytes[0] = command.code;
        bytes[1] |= command.service_action.unwrap_or(0) as u8;
        bytes
    })
}

proptest! {
    #[test]
    fn any_conversation_ends(
        medium: u8,
        commands in proptest::collection::vec((cdb(), any::<bool>(), any::<u64>(), any::<u64>()), 1..20),
        data in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let mut bench = bench(medium);
        for (cdb, is_first, offset, length) in commands {
            let nexus = if is_first { bench.a } else { bench.b };
            let mut task = bench.device.execute(nexus, [0; 8], &cdb);
            prop_assert!(task.data_in_length() == 0 || task.data_out_length() == 0);
            if length % 4 == 0 {
                task.expect_data_out(length % 8192);
            }
            bench.device.write_data_out(&mut task, 0, &data);
            bench.device.write_data_out(&mut task, offset, &data);
            bench.device.write_data_out(&mut task, offset % 4096, &data);
            let mut part = vec![1];
            bench.device.append_data_in(&task, offset, length as usize, &mut part);
            let expected = task.data_in_length().saturating_sub(offset).min(length);
            prop_assert_eq!(part.len() as u64, 1 + expected);
            let completion = bench.device.finish(&mut task);
            prop_assert_eq!(completion.sense.is_empty(), completion.status != Status::CheckCondition);
            while bench.device.poll_abort().is_some() {}
        }
    }

    #[test]
    fn any_bytes_are_a_command(lun: [u8; 8], cdb in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut bench = bench(1);
        for lun in [lun, [0; 8]] {
            let mut task = bench.device.execute(bench.a, lun, &cdb);
            let completion = bench.device.finish(&mut task);
            prop_assert_eq!(completion.sense.is_empty(), completion.status != Status::CheckCondition);
        }
    }
}
