//! The supported commands: the fields of their CDBs, and their requirements. Never executes them.

/// Whether a command is allowed at a logical unit that another I_T nexus reserved (SPC-4; SBC-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Always allowed.
    Free,
    /// Allowed beside Write Exclusive reservations.
    Read,
    /// Not allowed.
    Write,
}

/// What a command requires of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    Loaded,
    Writable,
}

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    /// Operation code.
    pub(super) code: u8,
    /// Service action, for operation codes that have one.
    pub(super) action: Option<u8>,
    /// CDB usage data: the operation code, then a mask of the bits that are evaluated. As long as the CDB (SPC-4).
    pub(super) usage: &'static [u8],
    pub(super) access: Access,
    pub(super) needs: Needs,
}

const fn row(usage: &'static [u8], access: Access, needs: Needs) -> Command {
    Command { code: usage[0], action: None, usage, access, needs }
}

/// The service action lies in the second byte.
const fn action(usage: &'static [u8], access: Access, needs: Needs) -> Command {
    Command { code: usage[0], action: Some(usage[1]), usage, access, needs }
}

use Access::{Free, Read, Write};
use Needs::{Loaded, Nothing, Writable};

/// All of them, in order.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Command] = &[
    row(&[0x00, 0, 0, 0, 0, 0], Free, Loaded), // TEST UNIT READY
    row(&[0x03, 0x01, 0, 0, 0xff, 0], Free, Nothing), // REQUEST SENSE
    row(&[0x08, 0x1f, 0xff, 0xff, 0xff, 0], Read, Loaded), // READ(6)
    row(&[0x0a, 0x1f, 0xff, 0xff, 0xff, 0], Write, Writable), // WRITE(6)
    row(&[0x12, 0x01, 0xff, 0xff, 0xff, 0], Free, Nothing), // INQUIRY
    row(&[0x15, 0x10, 0, 0, 0xff, 0], Write, Nothing), // MODE SELECT(6)
    row(&[0x16, 0, 0, 0, 0, 0], Free, Nothing), // RESERVE(6)
    row(&[0x17, 0, 0, 0, 0, 0], Free, Nothing), // RELEASE(6)
    row(&[0x1a, 0x08, 0xff, 0xff, 0xff, 0], Read, Nothing), // MODE SENSE(6)
    row(&[0x1b, 0x01, 0, 0x0f, 0xf7, 0], Write, Nothing), // START STOP UNIT
    row(&[0x1d, 0x04, 0, 0, 0, 0], Write, Nothing), // SEND DIAGNOSTIC
    row(&[0x1e, 0, 0, 0, 0x03, 0], Write, Nothing), // PREVENT ALLOW MEDIUM REMOVAL
    row(&[0x25, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x01, 0], Free, Loaded), // READ CAPACITY(10)
    row(&[0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0], Read, Loaded), // READ(10)
    row(&[0x2a, 0x18, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0], Write, Writable), // WRITE(10)
    row(&[0x2e, 0x12, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0], Write, Writable), // WRITE AND VERIFY(10)
    row(&[0x2f, 0x12, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0], Read, Loaded), // VERIFY(10)
    row(&[0x34, 0x02, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0], Read, Loaded), // PRE-FETCH(10)
    row(&[0x35, 0x02, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0], Write, Loaded), // SYNCHRONIZE CACHE(10)
    row(&[0x37, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0], Read, Loaded), // READ DEFECT DATA(10)
    row(&[0x41, 0x08, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0], Write, Writable), // WRITE SAME(10)
    row(&[0x42, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0], Write, Writable), // UNMAP
    row(&[0x55, 0x10, 0, 0, 0, 0, 0, 0xff, 0xff, 0], Write, Nothing), // MODE SELECT(10)
    row(&[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0], Free, Nothing), // RESERVE(10)
    row(&[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0], Free, Nothing), // RELEASE(10)
    row(&[0x5a, 0x08, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0], Read, Nothing), // MODE SENSE(10)
    // PERSISTENT RESERVE IN: READ KEYS, READ RESERVATION, REPORT CAPABILITIES, READ FULL STATUS
    action(&[0x5e, 0x00, 0, 0, 0, 0, 0, 0xff, 0xff, 0], Free, Nothing),
    action(&[0x5e, 0x01, 0, 0, 0, 0, 0, 0xff, 0xff, 0], Free, Nothing),
    action(&[0x5e, 0x02, 0, 0, 0, 0, 0, 0xff, 0xff, 0], Free, Nothing),
    action(&[0x5e, 0x03, 0, 0, 0, 0, 0, 0xff, 0xff, 0], Free, Nothing),
    // PERSISTENT RESERVE OUT: REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT AND ABORT, REGISTER AND IGNORE
    // EXISTING KEY
    action(&[0x5f, 0x00, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0], Free, Nothing),
    action(&[0x5f, 0x01, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0], Free, Nothing),
    action(&[0x5f, 0x02, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0], Free, Nothing),
    action(&[0x5f, 0x03, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0], Free, Nothing),
    action(&[0x5f, 0x04, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0], Free, Nothing),
    action(&[0x5f, 0x05, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0], Free, Nothing),
    action(&[0x5f, 0x06, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0], Free, Nothing),
    // READ(16)
    row(&[0x88, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Read, Loaded),
    // COMPARE AND WRITE
    row(&[0x89, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0, 0], Write, Writable),
    // WRITE(16)
    row(&[0x8a, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Write, Writable),
    // ORWRITE(16)
    row(&[0x8b, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Write, Writable),
    // WRITE AND VERIFY(16)
    row(&[0x8e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Write, Writable),
    // VERIFY(16)
    row(&[0x8f, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Read, Loaded),
    // PRE-FETCH(16)
    row(&[0x90, 0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Read, Loaded),
    // SYNCHRONIZE CACHE(16)
    row(&[0x91, 0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Write, Loaded),
    // WRITE SAME(16)
    row(&[0x93, 0x09, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Write, Writable),
    action(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], Free, Loaded), // READ CAPACITY(16)
    // GET LBA STATUS
    action(&[0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Read, Loaded),
    row(&[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], Free, Nothing), // REPORT LUNS
    action(&[0xa3, 0x0a, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], Free, Nothing), // REPORT TARGET PORT GROUPS
    // REPORT SUPPORTED OPERATION CODES
    action(&[0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Read, Nothing),
    row(&[0xa8, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Read, Loaded), // READ(12)
    row(&[0xaa, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Write, Writable), // WRITE(12)
    row(&[0xae, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Write, Writable), // WRITE AND VERIFY(12)
    row(&[0xaf, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], Read, Loaded), // VERIFY(12)
    row(&[0xb7, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], Read, Loaded), // READ DEFECT DATA(12)
];

/// Operation codes of optional features.
pub(super) const UNMAP: u8 = 0x42;
/// Service action of MAINTENANCE IN.
pub(super) const REPORT_TARGET_PORT_GROUPS: (u8, u8) = (0xa3, 0x0a);

/// The command with this operation code, and this service action when it has any.
pub(super) fn find(code: u8, service_action: u8) -> Option<&'static Command> {
    COMMANDS.iter().find(|row| row.code == code && row.action.is_none_or(|action| action == service_action))
}

/// A big-endian number of at most 8 bytes; 0 when the bytes are too short.
pub(super) fn number(bytes: &[u8], first: usize, length: usize) -> u64 {
    let bytes = bytes.get(first..).and_then(|bytes| bytes.get(..length)).unwrap_or(&[]);
    bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::cdb::{self, Operation};

    use super::COMMANDS;

    /// SPC-4: the group code, the upper three bits of the operation code, determines the length.
    #[test]
    fn cdb_lengths_follow_their_group_codes() {
        for command in COMMANDS {
            let length = match command.code >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                group => panic!("no command is of group {group}"),
            };
            assert_eq!(command.usage.len(), length, "{:02x}", command.code);
        }
    }

    /// The length in T10's name is that of the CDB; operation codes and service actions are in the table of SCSI commands.
    #[test]
    fn commands_are_those_of_the_table() {
        for command in COMMANDS {
            let decoded = cdb::decode(command.usage, Some(0));
            assert_ne!(decoded.operation, Operation::Other, "{:02x}", command.code);
            if let Some((_, length)) = decoded.name.rsplit_once('(') {
                assert_eq!(length.trim_end_matches(')'), command.usage.len().to_string(), "{}", decoded.name);
            }
        }
    }

    #[test]
    fn rows_are_in_order_and_unique() {
        let order: Vec<_> = COMMANDS.iter().map(|command| (command.code, command.action)).collect();
        assert!(order.is_sorted());
        assert!(order.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
