//! A device with two initiators.

mod blocks;
mod identity;
mod mode;
mod provisioning;
mod reservations;
mod robustness;

use super::{Completion, Device, DeviceSettings, InitiatorPort, LogicalUnitSettings, MediumKind, Nexus, Status};

/// The end of a command: status; sense key, additional sense code and qualifier; data.
type Outcome = (Status, Option<[u8; 3]>, Vec<u8>);

const GOOD: (Status, Option<[u8; 3]>) = (Status::Good, None);
const CONFLICT: (Status, Option<[u8; 3]>) = (Status::ReservationConflict, None);

const fn check(sense: [u8; 3]) -> (Status, Option<[u8; 3]>) {
    (Status::CheckCondition, Some(sense))
}

const INVALID_FIELD: (Status, Option<[u8; 3]>) = check([5, 0x24, 0]);
const INVALID_PARAMETER: (Status, Option<[u8; 3]>) = check([5, 0x26, 0]);
const UNSUPPORTED: (Status, Option<[u8; 3]>) = check([5, 0x20, 0]);

struct Bench {
    device: Device,
    a: Nexus,
    b: Nexus,
}

fn port(name: &str) -> InitiatorPort {
    InitiatorPort { initiator_name: format!("iqn.2025-01.org.example:{name}"), isid: [0x80, 0, 0, 0, 0, 1] }
}

fn unit(medium: MediumKind, block_bytes: u32) -> LogicalUnitSettings {
    LogicalUnitSettings { medium, block_bytes, size_bytes: 1 << 20, ..LogicalUnitSettings::default() }
}

impl Bench {
    fn new(unit: LogicalUnitSettings) -> Bench {
        Bench::with(&DeviceSettings { logical_units: vec![unit], ..DeviceSettings::default() })
    }

    fn with(settings: &DeviceSettings) -> Bench {
        let mut device = Device::new(settings).unwrap();
        let (a, b) = (device.nexus_established(port("a")), device.nexus_established(port("b")));
        Bench { device, a, b }
    }

    /// A 1 MiB sparse medium of 512-byte blocks.
    fn sparse() -> Bench {
        Bench::new(unit(MediumKind::Sparse, 512))
    }

    /// A command at LUN 0, all of its data out in one piece.
    fn send(&mut self, nexus: Nexus, cdb: &[u8], data_out: &[u8]) -> Outcome {
        let mut task = self.device.execute(nexus, [0; 8], cdb);
        self.device.write_data_out(&mut task, 0, data_out);
        let completion = self.device.finish(&mut task);
        assert_eq!(self.device.finish(&mut task), completion, "a second call returns the same");
        let mut data_in = Vec::new();
        self.device.append_data_in(&task, 0, usize::MAX, &mut data_in);
        assert_eq!(data_in.len() as u64, task.data_in_length());
        (completion.status, sense(&completion), data_in)
    }

    /// Only status and sense.
    fn status(&mut self, nexus: Nexus, cdb: &[u8], data_out: &[u8]) -> (Status, Option<[u8; 3]>) {
        let (status, sense, _) = self.send(nexus, cdb, data_out);
        (status, sense)
    }

    /// Data of a command of the first initiator, which must succeed.
    fn data(&mut self, cdb: &[u8]) -> Vec<u8> {
        let (status, sense, data_in) = self.send(self.a, cdb, &[]);
        assert_eq!((status, sense), GOOD, "{cdb:02x?}");
        data_in
    }

    fn read(&mut self, lba: u8, count: u8) -> Vec<u8> {
        self.data(&[0x28, 0, 0, 0, 0, lba, 0, 0, count, 0])
    }

    fn write(&mut self, lba: u8, count: u8, byte: u8) {
        let block_bytes = 512 * usize::from(count);
        let cdb = [0x2a, 0, 0, 0, 0, lba, 0, 0, count, 0];
        assert_eq!(self.status(self.a, &cdb, &vec![byte; block_bytes]), GOOD);
    }
}

/// Sense key, code and qualifier, of either format.
fn sense(completion: &Completion) -> Option<[u8; 3]> {
    let sense = &completion.sense;
    assert_eq!(sense.is_empty(), completion.status != Status::CheckCondition);
    match sense.first()? & 0x7f {
        0x70 => Some([sense[2] & 0x0f, sense[12], sense[13]]),
        0x72 => Some([sense[1], sense[2], sense[3]]),
        format => panic!("sense data of format {format:02x}"),
    }
}
