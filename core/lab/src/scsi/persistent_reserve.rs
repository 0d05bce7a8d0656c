//! PERSISTENT RESERVE IN and PERSISTENT RESERVE OUT (SPC-4).

use super::field::number;
use super::logical_unit::{LogicalUnit, REGISTRATIONS_PREEMPTED, RESERVATIONS_PREEMPTED, RESERVATIONS_RELEASED};
use super::nexus::{Nexus, Nexuses};
use super::persistent_reservation::{Reservation, Type};
use super::sense::Sense;
use super::task::{Refused, Work};

/// Most registrations.
const MOST_REGISTRATIONS: usize = 1024;

/// REPORT CAPABILITIES: CRH, SIP_C, ATP_C and PTPL_C are clear; TMV, and all six types.
const CAPABILITIES: [u8; 8] = [0, 8, 0, 0x80, 0xea, 0x01, 0, 0];

impl LogicalUnit {
    /// PERSISTENT RESERVE IN; the service action is one of the table of commands.
    pub(super) fn persistent_reserve_in(&self, nexuses: &Nexuses, cdb: &[u8; 16]) -> Work {
        let allocation_length = number(cdb, 7, 2);
        let body = match cdb[1] & 0x1f {
            0 => self.persistent.read_keys(),
            1 => self.persistent.read_reservation(),
            2 => return Work::data_in(CAPABILITIES.to_vec(), allocation_length),
            _ => self.persistent.read_full_status(nexuses),
        };
        let mut data_in = self.persistent.generation.to_be_bytes().to_vec();
        data_in.extend_from_slice(&(body.len() as u32).to_be_bytes());
        data_in.extend_from_slice(&body);
        Work::data_in(data_in, allocation_length)
    }

    /// PERSISTENT RESERVE OUT with its parameter list of 24 bytes.
    pub(super) fn persistent_reserve_out(
        &mut self,
        nexus: Nexus,
        nexuses: &Nexuses,
        cdb: &[u8; 16],
        list: &[u8],
    ) -> Result<(), Refused> {
        let (key, action_key) = (number(list, 0, 8), number(list, 8, 8));
        // SPEC_I_PT, ALL_TG_PT, APTPL.
        if number(list, 20, 1) & 0x0d != 0 {
            return Err(Sense::parameter_field(20).into());
        }
        let registered = self.persistent.registrations.get(&nexus).copied();
        let action = cdb[1] & 0x1f;
        match action {
            0 if key != registered.unwrap_or(0) => return Err(Refused::Conflict),
            0 | 6 => return self.register(nexus, nexuses, action_key),
            _ if registered != Some(key) => return Err(Refused::Conflict),
            _ => {}
        }
        match action {
            1 => self.reserve_persistently(nexus, Type::decode(cdb[2])?),
            2 => self.release_persistently(nexus, nexuses, cdb[2]),
            3 => {
                self.persistent.reservation = None;
                let notified: Vec<Nexus> = self.persistent.registrations.keys().copied().collect();
                self.persistent.registrations.clear();
                self.notify(nexuses, notified, nexus, RESERVATIONS_PREEMPTED);
                self.persistent.generation = self.persistent.generation.wrapping_add(1);
                Ok(())
            }
            4 | 5 => self.preempt(nexus, nexuses, action_key, cdb[2], action == 5),
            _ => Err(Sense::cdb_bit(1, 4).into()),
        }
    }

    fn register(&mut self, nexus: Nexus, nexuses: &Nexuses, key: u64) -> Result<(), Refused> {
        let persistent = &mut self.persistent;
        if key == 0 {
            let notified = persistent.unregister(nexus);
            self.notify(nexuses, notified, nexus, RESERVATIONS_RELEASED);
        } else {
            if persistent.registrations.len() >= MOST_REGISTRATIONS && !persistent.is_registered(nexus) {
                return Err(Sense::REGISTRATION_RESOURCES.into());
            }
            persistent.registrations.insert(nexus, key);
        }
        self.persistent.generation = self.persistent.generation.wrapping_add(1);
        Ok(())
    }

    fn reserve_persistently(&mut self, nexus: Nexus, kind: Type) -> Result<(), Refused> {
        match self.persistent.reservation {
            None => self.persistent.reservation = Some(Reservation { kind, nexus }),
            Some(held) if held.kind == kind && self.persistent.is_holder(nexus) => {}
            Some(_) => return Err(Refused::Conflict),
        }
        Ok(())
    }

    fn release_persistently(&mut self, nexus: Nexus, nexuses: &Nexuses, scope_and_type: u8) -> Result<(), Refused> {
        // GOOD without effect for a nexus that holds no reservation (SPC-4).
        let Some(held) = self.persistent.reservation.filter(|_| self.persistent.is_holder(nexus)) else {
            return Ok(());
        };
        if scope_and_type != held.kind as u8 {
            return Err(Sense::INVALID_RELEASE.into());
        }
        let notified = self.persistent.release();
        self.notify(nexuses, notified, nexus, RESERVATIONS_RELEASED);
        Ok(())
    }

    /// PREEMPT and PREEMPT AND ABORT (SPC-4).
    fn preempt(
        &mut self,
        nexus: Nexus,
        nexuses: &Nexuses,
        key: u64,
        scope_and_type: u8,
        aborts: bool,
    ) -> Result<(), Refused> {
        let persistent = &mut self.persistent;
        let held = persistent.reservation;
        let is_shared = held.is_some_and(|held| held.kind.is_all_registrants());
        // Key 0 preempts all others when all registrants hold the reservation.
        let takes_over = match held {
            Some(_) if is_shared => key == 0,
            Some(held) => key == persistent.reservation_key(held),
            None => false,
        };
        if key == 0 && !takes_over {
            return Err(Sense::parameter_field(8).into());
        }
        let kind = if takes_over { Some(Type::decode(scope_and_type)?) } else { None };
        let matching = |(_, other): &(&Nexus, &u64)| key == 0 || **other == key;
        let preempted: Vec<Nexus> = persistent.registrations.iter().filter(matching).map(|(nexus, _)| *nexus).collect();
        if preempted.is_empty() {
            return Err(Refused::Conflict);
        }
        persistent.registrations.retain(|other, _| *other == nexus || !preempted.contains(other));
        if let Some(kind) = kind {
            persistent.reservation = Some(Reservation { kind, nexus });
            // The type changed: remaining registrants are notified that the old reservation ended.
            if held.is_some_and(|held| held.kind != kind) {
                let notified = persistent.registrations.keys().copied().collect();
                self.notify(nexuses, notified, nexus, RESERVATIONS_RELEASED);
            }
        }
        self.persistent.generation = self.persistent.generation.wrapping_add(1);
        if aborts {
            self.aborted.extend(preempted.iter().filter(|other| **other != nexus));
        }
        self.notify(nexuses, preempted, nexus, REGISTRATIONS_PREEMPTED);
        Ok(())
    }

    /// Establishes a unit attention for these nexuses, if established, except for the cause.
    fn notify(&mut self, nexuses: &Nexuses, notified: Vec<Nexus>, cause: Nexus, attention: Sense) {
        for nexus in nexuses.established().filter(|nexus| *nexus != cause && notified.contains(nexus)) {
            self.raise_for(nexus, attention);
        }
    }
}
