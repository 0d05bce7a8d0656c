//! Reservations of two initiators.

use super::{Bench, CONFLICT, GOOD, INVALID_FIELD, INVALID_PARAMETER, check, port};
use crate::scsi::{Abort, Nexus, Status};

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const READY: [u8; 1] = [0x00];
const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE: [u8; 6] = [0x17, 0, 0, 0, 0, 0];

impl Bench {
    /// PERSISTENT RESERVE OUT: service action, type, reservation key, service action reservation key.
    fn out(&mut self, nexus: Nexus, action: u8, kind: u8, key: u8, action_key: u8) -> (Status, Option<[u8; 3]>) {
        let mut list = [0; 24];
        (list[7], list[15]) = (key, action_key);
        self.status(nexus, &[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &list)
    }

    fn persistent_in(&mut self, action: u8) -> Vec<u8> {
        self.data(&[0x5e, action, 0, 0, 0, 0, 0, 1, 0, 0])
    }

    fn write_as(&mut self, nexus: Nexus) -> (Status, Option<[u8; 3]>) {
        self.status(nexus, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512])
    }
}

#[test]
fn reserve_excludes_others_until_release_or_nexus_loss() {
    for (code, released_by_loss) in [(0x16, false), (0x56, true)] {
        let mut bench = Bench::sparse();
        assert_eq!(bench.status(bench.a, &[code], &[]), GOOD);
        assert_eq!(bench.status(bench.a, &[code], &[]), GOOD);
        assert_eq!(bench.status(bench.b, &READ, &[]), CONFLICT);
        assert_eq!(bench.status(bench.b, &RESERVE, &[]), CONFLICT);
        assert_eq!(bench.status(bench.b, &[0x12, 0, 0, 0, 36, 0], &[]), GOOD);
        // Not by the holder: GOOD without effect.
        assert_eq!(bench.status(bench.b, &RELEASE, &[]), GOOD);
        assert_eq!(bench.status(bench.b, &READY, &[]), CONFLICT);
        assert_eq!(bench.write_as(bench.a), GOOD);
        assert_eq!(bench.out(bench.a, 0, 0, 0, 1), CONFLICT);
        if released_by_loss {
            bench.device.nexus_lost(bench.a);
        } else {
            assert_eq!(bench.status(bench.a, &RELEASE, &[]), GOOD);
        }
        assert_eq!(bench.status(bench.b, &READ, &[]), GOOD);
    }
    let mut bench = Bench::sparse();
    assert_eq!(bench.status(bench.a, &RESERVE, &[]), GOOD);
    bench.device.reset_logical_unit([0; 8]);
    assert_eq!(bench.status(bench.b, &READY, &[]), check([6, 0x29, 3]));
    assert_eq!(bench.status(bench.b, &READ, &[]), GOOD);
}

/// SPC-4: type; whether an unregistered initiator may read and write; and a registered one.
#[test]
fn each_type_allows_the_commands_of_the_standard() {
    let cases = [
        (1, [true, false], [true, false]),
        (3, [false, false], [false, false]),
        (5, [true, false], [true, true]),
        (6, [false, false], [true, true]),
        (7, [true, false], [true, true]),
        (8, [false, false], [true, true]),
    ];
    for (kind, unregistered, registered) in cases {
        let mut bench = Bench::sparse();
        assert_eq!(bench.out(bench.a, 0, 0, 0, 1), GOOD);
        assert_eq!(bench.out(bench.a, 1, kind, 1, 0), GOOD);
        for (expected, is_registered) in [(unregistered, false), (registered, true)] {
            if is_registered {
                assert_eq!(bench.out(bench.b, 0, 0, 0, 2), GOOD);
            }
            let found = [bench.status(bench.b, &READ, &[]), bench.write_as(bench.b)];
            let expected = expected.map(|is_allowed| if is_allowed { GOOD } else { CONFLICT });
            assert_eq!(found, expected, "type {kind}, registered: {is_registered}");
            assert_eq!(bench.status(bench.b, &READY, &[]), GOOD);
            assert_eq!(bench.status(bench.b, &[0x25], &[]), GOOD);
        }
        assert_eq!(bench.write_as(bench.a), GOOD);
        // Another reservation conflicts, unless it is of all registrants and of the same type.
        let again = bench.out(bench.b, 1, kind, 2, 0);
        assert_eq!(again, if kind >= 7 { GOOD } else { CONFLICT });
        // PRgeneration 2; the key of the holder or 0; the type.
        let key = if kind >= 7 { 0 } else { 1 };
        let expected = [0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, key, 0, 0, 0, 0, 0, kind, 0, 0];
        assert_eq!(bench.persistent_in(1), expected);
    }
}

#[test]
fn registering_needs_the_current_key() {
    let mut bench = Bench::sparse();
    assert_eq!(bench.out(bench.a, 0, 0, 9, 1), CONFLICT);
    assert_eq!(bench.out(bench.a, 1, 1, 0, 0), CONFLICT);
    assert_eq!(bench.out(bench.a, 0, 0, 0, 1), GOOD);
    assert_eq!(bench.out(bench.a, 0, 0, 9, 2), CONFLICT);
    assert_eq!(bench.out(bench.a, 0, 0, 1, 2), GOOD);
    assert_eq!(bench.out(bench.b, 6, 0, 9, 3), GOOD);
    assert_eq!(bench.persistent_in(0), [0, 0, 0, 3, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(bench.data(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 9, 0]).len(), 9);
    // RESERVE of SPC-2 conflicts now.
    assert_eq!(bench.status(bench.a, &RESERVE, &[]), CONFLICT);
    assert_eq!(bench.out(bench.a, 0, 0, 2, 0), GOOD);
    assert_eq!(bench.persistent_in(0)[4..], [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 3]);
    // Wrong lengths, types, scopes and flags.
    assert_eq!(bench.status(bench.b, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 23, 0], &[0; 24]), check([5, 0x1a, 0]));
    assert_eq!(bench.out(bench.b, 1, 2, 3, 0), INVALID_FIELD);
    assert_eq!(bench.out(bench.b, 1, 0x13, 3, 0), INVALID_FIELD);
    assert_eq!(bench.out(bench.b, 7, 0, 3, 0), INVALID_FIELD);
    let mut list = [0; 24];
    (list[7], list[20]) = (3, 1);
    assert_eq!(bench.status(bench.b, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list), INVALID_PARAMETER);
    // REPORT CAPABILITIES
    assert_eq!(bench.persistent_in(2), [0, 8, 0, 0x80, 0xea, 1, 0, 0]);
}

#[test]
fn releasing_notifies_the_registrants() {
    let mut bench = Bench::sparse();
    bench.out(bench.a, 0, 0, 0, 1);
    bench.out(bench.b, 0, 0, 0, 2);
    assert_eq!(bench.out(bench.a, 1, 6, 1, 0), GOOD);
    assert_eq!(bench.out(bench.a, 2, 5, 1, 0), check([5, 0x26, 4]));
    assert_eq!(bench.out(bench.b, 2, 6, 2, 0), GOOD);
    assert_eq!(bench.persistent_in(1).len(), 24);
    assert_eq!(bench.out(bench.a, 2, 6, 1, 0), GOOD);
    assert_eq!(bench.persistent_in(1).len(), 8);
    assert_eq!(bench.status(bench.b, &READY, &[]), check([6, 0x2a, 4]));
    assert_eq!(bench.status(bench.a, &READY, &[]), GOOD);
    // The last registrant's unregistration releases the reservation.
    bench.out(bench.a, 1, 8, 1, 0);
    assert_eq!(bench.out(bench.a, 0, 0, 1, 0), GOOD);
    assert_eq!(bench.persistent_in(1).len(), 24);
    assert_eq!(bench.out(bench.b, 0, 0, 2, 0), GOOD);
    assert_eq!(bench.persistent_in(1).len(), 8);
}

#[test]
fn clearing_ends_everything() {
    let mut bench = Bench::sparse();
    bench.out(bench.a, 0, 0, 0, 1);
    bench.out(bench.b, 0, 0, 0, 2);
    bench.out(bench.a, 1, 3, 1, 0);
    assert_eq!(bench.out(bench.b, 3, 0, 2, 0), GOOD);
    assert_eq!(bench.status(bench.a, &READY, &[]), check([6, 0x2a, 3]));
    assert_eq!(bench.persistent_in(0), [0, 0, 0, 3, 0, 0, 0, 0]);
    assert_eq!(bench.persistent_in(1), [0, 0, 0, 3, 0, 0, 0, 0]);
}

#[test]
fn preempting_takes_the_reservation_over() {
    for (action, aborts) in [(4, false), (5, true)] {
        let mut bench = Bench::sparse();
        bench.out(bench.a, 0, 0, 0, 1);
        bench.out(bench.b, 0, 0, 0, 2);
        bench.out(bench.a, 1, 1, 1, 0);
        assert_eq!(bench.out(bench.b, action, 3, 2, 9), CONFLICT);
        assert_eq!(bench.out(bench.b, action, 3, 2, 0), INVALID_PARAMETER);
        assert_eq!(bench.out(bench.b, action, 3, 2, 1), GOOD);
        assert_eq!(bench.device.poll_abort(), aborts.then_some(Abort { nexus: bench.a, lun: 0 }));
        assert_eq!(bench.device.poll_abort(), None);
        assert_eq!(bench.status(bench.a, &READY, &[]), check([6, 0x2a, 5]));
        assert_eq!(bench.status(bench.a, &READ, &[]), CONFLICT);
        assert_eq!(bench.persistent_in(0), [0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(bench.persistent_in(1)[15..22], [2, 0, 0, 0, 0, 0, 3]);
    }
    // If the key is not the holder's, only the registration is preempted.
    let mut bench = Bench::sparse();
    bench.out(bench.a, 0, 0, 0, 1);
    bench.out(bench.b, 0, 0, 0, 2);
    bench.out(bench.b, 1, 5, 2, 0);
    assert_eq!(bench.out(bench.b, 4, 0, 2, 1), GOOD);
    assert_eq!(bench.status(bench.a, &READY, &[]), check([6, 0x2a, 5]));
    assert_eq!(bench.persistent_in(1)[15..22], [2, 0, 0, 0, 0, 0, 5]);
    // Key 0 preempts all others when all registrants hold the reservation.
    let mut bench = Bench::sparse();
    bench.out(bench.a, 0, 0, 0, 1);
    bench.out(bench.b, 0, 0, 0, 2);
    bench.out(bench.a, 1, 7, 1, 0);
    assert_eq!(bench.out(bench.b, 4, 8, 2, 0), GOOD);
    assert_eq!(bench.status(bench.a, &READY, &[]), check([6, 0x2a, 5]));
    assert_eq!(bench.persistent_in(0)[4..], [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(bench.persistent_in(1)[21], 8);
}

#[test]
fn reservations_outlive_the_session_and_name_its_port() {
    let mut bench = Bench::sparse();
    bench.out(bench.a, 0, 0, 0, 1);
    bench.out(bench.a, 1, 3, 1, 0);
    bench.device.nexus_lost(bench.a);
    assert_eq!(bench.status(bench.b, &READ, &[]), CONFLICT);
    bench.device.reset_logical_unit([0; 8]);
    bench.status(bench.b, &READY, &[]);
    assert_eq!(bench.status(bench.b, &READ, &[]), CONFLICT);
    let again = bench.device.nexus_established(port("a"));
    assert_eq!(bench.status(again, &READ, &[]), GOOD);
    let full = bench.persistent_in(3);
    // Key, holder, type, relative target port 1, TransportID.
    assert_eq!(full[8..16], 1_u64.to_be_bytes());
    assert_eq!((full[20], full[21], &full[26..28]), (1, 3, &[0, 1][..]));
    let length = u32::from_be_bytes(full[28..32].try_into().unwrap()) as usize;
    assert_eq!(full.len(), 32 + length);
    assert!(full[36..].starts_with(b"iqn.2025-01.org.example:a,i,0x800000000001\0"));
}
