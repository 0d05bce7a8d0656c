//! Incidents of a run at the initiator: its program pauses, an administrator resets the logical unit, unmaps blocks or
//! discovers the targets again, another initiator logs in under its name.

use super::client_session::Stage;
use super::incident_state::{IncidentKind, Unmapping};
use super::volume::Purpose;
use super::{Client, Wake};
use crate::occurrence::Hits;
use crate::protocol::initiator::{Command, Direction};
use iscsitrace_wire::lun;

/// UNMAP's parameter list: a header of 8 bytes, and one descriptor of 16.
const UNMAP_LIST_BYTES: u32 = 24;
/// The session that they happen in.
const SESSION: usize = 0;

impl Client {
    /// What the incidents and broken rules hit.
    #[must_use]
    pub fn fault_hits(&self) -> Vec<Hits> {
        self.incidents.hits().chain(self.breaches.hits()).collect()
    }

    /// The workload begins.
    pub(super) fn expect_incidents(&mut self, now_ns: i64) {
        for incident in 0..self.incidents.all.len() {
            let occurrence = &mut self.incidents.all[incident].1;
            occurrence.workload_begins(now_ns);
            if let Some(began_ns) = occurrence.began_ns() {
                self.wake_at(began_ns, Wake::Incident(incident));
            }
        }
    }

    /// The begin of an incident, or the end of a pause.
    pub(super) fn incident(&mut self, now_ns: i64, incident: usize) {
        let Some((kind, occurrence)) = self.incidents.all.get_mut(incident) else { return };
        match *kind {
            IncidentKind::Pause if occurrence.covers(now_ns) => {
                occurrence.hit(now_ns);
                self.incidents.is_paused = true;
                if let Some(ended_ns) = occurrence.ended_ns() {
                    self.wake_at(ended_ns, Wake::Incident(incident));
                }
            }
            IncidentKind::Pause => {
                self.incidents.is_paused = false;
                (0..self.run.lanes.len()).for_each(|lane| self.begin_calls(now_ns, lane));
            }
            IncidentKind::LogicalUnitReset => {
                let client_session = &mut self.sessions[SESSION];
                let lun = lun::encode(self.settings.targets[client_session.target].lun);
                let connection = client_session.usable_connection(0);
                let tag = connection
                    .and_then(|connection| client_session.session.logical_unit_reset(now_ns, connection, lun));
                if tag.is_some() {
                    occurrence.hit(now_ns);
                }
            }
            IncidentKind::Unmap { lba, blocks, count } => {
                self.incidents.unmapping = Some(Unmapping { lba, blocks, left: count, tag: None });
                self.begin_unmap(now_ns);
            }
            IncidentKind::Rescan => self.rescan(incident),
            IncidentKind::DuplicateLogin { every_ns } => self.log_in_again(now_ns, incident, every_ns),
        }
    }

    /// Sends the next UNMAP, unless one is in flight.
    pub(super) fn begin_unmap(&mut self, now_ns: i64) {
        let Some(unmapping) = self.incidents.unmapping.as_mut() else { return };
        let client_session = &mut self.sessions[SESSION];
        if unmapping.left == 0 || unmapping.tag.is_some() || !matches!(client_session.stage, Stage::Ready) {
            return;
        }
        let mut cdb = [0; 16];
        cdb[0] = 0x42;
        cdb[7..9].copy_from_slice(&(UNMAP_LIST_BYTES as u16).to_be_bytes());
        let lun = lun::encode(self.settings.targets[client_session.target].lun);
        let command = Command { lun, cdb, direction: Direction::Write, length_bytes: UNMAP_LIST_BYTES };
        let Some(connection) = client_session.usable_connection(0) else { return };
        unmapping.tag = client_session.session.submit(now_ns, connection, command);
        if let Some(tag) = unmapping.tag {
            // the target counts those that it serves slowly
            client_session.volume.begin(tag, Purpose::Unmap { lba: unmapping.lba, blocks: unmapping.blocks });
        }
    }

    /// A command that is not of the workload ended: the next UNMAP, if it was one.
    pub(super) fn end_other(&mut self, now_ns: i64, index: usize, tag: u32) {
        let Some(unmapping) = self.incidents.unmapping.as_mut().filter(|_| index == SESSION) else { return };
        if unmapping.tag == Some(tag) {
            unmapping.tag = None;
            unmapping.left -= 1;
            unmapping.lba += u64::from(unmapping.blocks);
            self.begin_unmap(now_ns);
        }
    }

    /// A session is lost, and with it the UNMAP in flight.
    pub(super) fn end_unmap(&mut self, index: usize) {
        if let Some(unmapping) = self.incidents.unmapping.as_mut().filter(|_| index == SESSION) {
            unmapping.tag = None;
        }
    }

    /// Whether UNMAP commands are left.
    pub(super) fn is_unmapping(&self) -> bool {
        self.incidents.unmapping.is_some_and(|unmapping| unmapping.left > 0)
    }
}
