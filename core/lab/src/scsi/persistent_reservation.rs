//! Persistent reservations (SPC-4): registrations by key, one reservation of the logical unit, and which commands it
//! allows. Kept while the device lives, not through a power loss (APTPL).

use std::collections::BTreeMap;

use super::nexus::{Nexus, Nexuses};
use super::sense::Sense;
use iscsitrace_wire::cdb::Access;

/// Types of persistent reservations (SPC-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Type {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrantsOnly = 5,
    ExclusiveAccessRegistrantsOnly = 6,
    WriteExclusiveAllRegistrants = 7,
    ExclusiveAccessAllRegistrants = 8,
}

impl Type {
    const ALL: [Type; 6] = [
        Type::WriteExclusive,
        Type::ExclusiveAccess,
        Type::WriteExclusiveRegistrantsOnly,
        Type::ExclusiveAccessRegistrantsOnly,
        Type::WriteExclusiveAllRegistrants,
        Type::ExclusiveAccessAllRegistrants,
    ];

    /// From SCOPE and TYPE of a CDB: the scope is the logical unit.
    pub(super) fn decode(scope_and_type: u8) -> Result<Type, Sense> {
        if scope_and_type >> 4 != 0 {
            return Err(Sense::cdb_bit(2, 7));
        }
        Type::ALL.into_iter().find(|kind| *kind as u8 == scope_and_type).ok_or(Sense::cdb_bit(2, 3))
    }

    const fn is_write_exclusive(self) -> bool {
        matches!(self, Type::WriteExclusive | Type::WriteExclusiveRegistrantsOnly | Type::WriteExclusiveAllRegistrants)
    }

    pub(super) const fn is_all_registrants(self) -> bool {
        matches!(self, Type::WriteExclusiveAllRegistrants | Type::ExclusiveAccessAllRegistrants)
    }

    /// Whether all registrants have access.
    const fn admits_registrants(self) -> bool {
        !matches!(self, Type::WriteExclusive | Type::ExclusiveAccess)
    }
}

/// The reservation: held by one nexus, or by all registrants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reservation {
    pub(super) kind: Type,
    /// The nexus that made it: the holder, unless all registrants are.
    pub(super) nexus: Nexus,
}

/// Registrations and the reservation of a logical unit.
#[derive(Debug, Default)]
pub(super) struct PersistentReservation {
    /// Reservation keys, none of them 0.
    pub(super) registrations: BTreeMap<Nexus, u64>,
    pub(super) reservation: Option<Reservation>,
    /// PRGENERATION.
    pub(super) generation: u32,
}

impl PersistentReservation {
    pub(super) fn is_registered(&self, nexus: Nexus) -> bool {
        self.registrations.contains_key(&nexus)
    }

    pub(super) fn has_registrations(&self) -> bool {
        !self.registrations.is_empty()
    }

    pub(super) fn is_holder(&self, nexus: Nexus) -> bool {
        self.reservation.is_some_and(|reservation| {
            if reservation.kind.is_all_registrants() { self.is_registered(nexus) } else { reservation.nexus == nexus }
        })
    }

    /// Whether the reservation conflicts with such a command of this nexus (SPC-4).
    pub(super) fn is_conflict(&self, nexus: Nexus, access: Access) -> bool {
        let Some(Reservation { kind, .. }) = self.reservation else { return false };
        if self.is_holder(nexus) || (kind.admits_registrants() && self.is_registered(nexus)) {
            return false;
        }
        match access {
            Access::Free => false,
            Access::Read => !kind.is_write_exclusive(),
            Access::Write => true,
        }
    }

    /// Releases the reservation; returns the registrants to notify, if they had access.
    pub(super) fn release(&mut self) -> Vec<Nexus> {
        let admitted = self.reservation.take().is_some_and(|reservation| reservation.kind.admits_registrants());
        if admitted { self.registrations.keys().copied().collect() } else { Vec::new() }
    }

    /// Removes a registration, and a reservation that only it held; returns the registrants to notify.
    pub(super) fn unregister(&mut self, nexus: Nexus) -> Vec<Nexus> {
        let was_holder = self.is_holder(nexus);
        self.registrations.remove(&nexus);
        let is_shared = self.reservation.is_some_and(|reservation| reservation.kind.is_all_registrants());
        if was_holder && (!is_shared || self.registrations.is_empty()) { self.release() } else { Vec::new() }
    }

    /// The reported key of a reservation: 0 when all registrants hold it.
    pub(super) fn reservation_key(&self, reservation: Reservation) -> u64 {
        let is_shared = reservation.kind.is_all_registrants();
        if is_shared { 0 } else { self.registrations.get(&reservation.nexus).copied().unwrap_or(0) }
    }

    pub(super) fn read_keys(&self) -> Vec<u8> {
        self.registrations.values().flat_map(|key| key.to_be_bytes()).collect()
    }

    pub(super) fn read_reservation(&self) -> Vec<u8> {
        let Some(reservation) = self.reservation else { return Vec::new() };
        let mut descriptor = self.reservation_key(reservation).to_be_bytes().to_vec();
        descriptor.extend_from_slice(&[0, 0, 0, 0, 0, reservation.kind as u8, 0, 0]);
        descriptor
    }

    /// Full status descriptors (SPC-4).
    pub(super) fn read_full_status(&self, nexuses: &Nexuses) -> Vec<u8> {
        let mut out = Vec::new();
        for (nexus, key) in &self.registrations {
            let mut transport_id = Vec::new();
            if let Some(port) = nexuses.port(*nexus) {
                port.encode_transport_id(&mut transport_id);
            }
            let holds = self.reservation.filter(|_| self.is_holder(*nexus));
            out.extend_from_slice(&key.to_be_bytes());
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&[u8::from(holds.is_some()), holds.map_or(0, |held| held.kind as u8), 0, 0, 0, 0]);
            out.extend_from_slice(&[0, 1]);
            out.extend_from_slice(&(transport_id.len() as u32).to_be_bytes());
            out.extend_from_slice(&transport_id);
        }
        out
    }
}
