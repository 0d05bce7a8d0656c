//! A logical unit: its medium, its state per nexus, and unit attentions. Never executes a command.

use std::collections::{BTreeMap, BTreeSet};

use super::identity::Identity;
use super::medium::Medium;
use super::mode_pages::ModePages;
use super::nexus::{Nexus, Nexuses};
use super::persistent_reservation::PersistentReservation;
use super::sense::Sense;
use super::settings::LogicalUnitSettings;
use iscsitrace_wire::cdb::{Command, Operation};

/// Unit attentions (SPC-4).
pub(super) const POWER_ON: Sense = Sense::unit_attention(0x29, 0x01);
pub(super) const TARGET_RESET: Sense = Sense::unit_attention(0x29, 0x02);
pub(super) const LOGICAL_UNIT_RESET: Sense = Sense::unit_attention(0x29, 0x03);
pub(super) const MODE_PARAMETERS_CHANGED: Sense = Sense::unit_attention(0x2a, 0x01);
pub(super) const RESERVATIONS_PREEMPTED: Sense = Sense::unit_attention(0x2a, 0x03);
pub(super) const RESERVATIONS_RELEASED: Sense = Sense::unit_attention(0x2a, 0x04);
pub(super) const REGISTRATIONS_PREEMPTED: Sense = Sense::unit_attention(0x2a, 0x05);
pub(super) const COMMANDS_CLEARED: Sense = Sense::unit_attention(0x2f, 0x00);
pub(super) const MEDIUM_CHANGED: Sense = Sense::unit_attention(0x28, 0x00);

/// A direct access block device.
#[derive(Debug)]
pub(super) struct LogicalUnit {
    pub(super) lun: u16,
    pub(super) settings: LogicalUnitSettings,
    pub(super) identity: Identity,
    pub(super) has_target_port_groups: bool,
    pub(super) medium: Medium,
    pub(super) mode: ModePages,
    /// Pending unit attentions of each nexus, none twice.
    attentions: BTreeMap<Nexus, Vec<Sense>>,
    /// The holder of a reservation by RESERVE.
    pub(super) reserved_by: Option<Nexus>,
    pub(super) persistent: PersistentReservation,
    /// Nexuses that prevent the removal of the medium.
    pub(super) preventing: BTreeSet<Nexus>,
    pub(super) is_ejected: bool,
    /// Nexuses whose tasks are to be aborted.
    pub(super) aborted: Vec<Nexus>,
}

impl LogicalUnit {
    pub(super) fn new(lun: u16, settings: LogicalUnitSettings, identity: Identity, medium: Medium) -> LogicalUnit {
        LogicalUnit {
            lun,
            settings,
            identity,
            has_target_port_groups: false,
            medium,
            mode: ModePages::default(),
            attentions: BTreeMap::new(),
            reserved_by: None,
            persistent: PersistentReservation::default(),
            preventing: BTreeSet::new(),
            is_ejected: false,
            aborted: Vec::new(),
        }
    }

    /// Whether this logical unit supports a command.
    pub(super) fn is_supported(&self, command: &Command) -> bool {
        command.support.is_some()
            && match command.operation {
                Operation::Unmap => self.medium.is_thin(),
                Operation::ReportTargetPortGroups => self.has_target_port_groups,
                _ => true,
            }
    }

    /// Establishes a unit attention for all nexuses, except the one that caused it.
    pub(super) fn raise(&mut self, nexuses: &Nexuses, cause: Option<Nexus>, attention: Sense) {
        for nexus in nexuses.established().filter(|nexus| Some(*nexus) != cause) {
            self.raise_for(nexus, attention);
        }
    }

    /// Establishes a unit attention for one nexus, once.
    pub(super) fn raise_for(&mut self, nexus: Nexus, attention: Sense) {
        let waiting = self.attentions.entry(nexus).or_default();
        if !waiting.contains(&attention) {
            waiting.push(attention);
        }
    }

    /// The next unit attention of a nexus; it is reported once.
    pub(super) fn take_attention(&mut self, nexus: Nexus) -> Option<Sense> {
        let waiting = self.attentions.get_mut(&nexus)?;
        let first = waiting.remove(0);
        if waiting.is_empty() {
            self.attentions.remove(&nexus);
        }
        Some(first)
    }

    /// I_T nexus loss (SAM-5): ends everything of the nexus except persistent reservations.
    pub(super) fn lose_nexus(&mut self, nexus: Nexus) {
        self.attentions.remove(&nexus);
        self.preventing.remove(&nexus);
        if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
    }

    /// A reset; every nexus gets a unit attention, also the one that requested it (SAM-5).
    pub(super) fn reset(&mut self, nexuses: &Nexuses, attention: Sense) {
        self.attentions.clear();
        self.preventing.clear();
        self.reserved_by = None;
        self.mode = ModePages::default();
        self.aborted.clear();
        self.raise(nexuses, None, attention);
    }
}
