//! Missing commands of sessions, and about how many other PDUs are missing with them.
//!
//! Sequence numbers reveal the PDUs of commands that were read, and all statuses. What else is missing shows in the bytes
//! of the streams that are of no decoded PDU: less those of the PDUs that are known to be missing, they are data.

use crate::iscsi::ranges::{COMMANDS, Ranges};
use serde::{Deserialize, Serialize};

/// Bytes of a PDU beside its data, digests left out.
pub const HEADER_BYTES: u64 = iscsitrace_wire::bhs::LENGTH_BYTES as u64;

/// PDUs with data of SCSI commands that were read, in one direction.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataCarriers {
    /// Their number.
    pub count: u64,
    /// Their data bytes.
    pub bytes: u64,
    /// The data bytes of the longest PDU, of any kind.
    pub longest_bytes: u64,
    /// Those that no other number counts: Data-Out, and Data-In without a status; not commands with immediate data.
    pub uncounted: u64,
}

impl DataCarriers {
    /// How many PDUs of their mean length those bytes are; 0 if none was read.
    fn pdus_in(&self, bytes: u64) -> f64 {
        match self.count {
            0 => 0.0,
            count => bytes as f64 * count as f64 / (self.bytes + count * HEADER_BYTES) as f64,
        }
    }

    /// About how many PDUs that no other number counts those bytes are.
    pub fn uncounted_in(&self, bytes: u64) -> u64 {
        let pdus = self.pdus_in(bytes).round();
        if pdus == 0.0 { 0 } else { (pdus * self.uncounted as f64 / self.count as f64).round() as u64 }
    }

    fn with(&self, other: &DataCarriers) -> DataCarriers {
        DataCarriers {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            longest_bytes: self.longest_bytes.max(other.longest_bytes),
            uncounted: self.uncounted + other.uncounted,
        }
    }
}

/// What was read of a session's PDUs, and what was not: an estimate for tasks whose command is missing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PduTotals {
    /// Completed tasks.
    pub tasks: u64,
    /// Their R2Ts.
    pub r2ts: u64,
    /// R2Ts of tasks without a captured command.
    pub orphan_r2ts: u64,
    /// PDUs with data, by direction (to the target first).
    pub carriers: [DataCarriers; 2],
    /// Bytes of no decoded PDU, without those of PDUs that are known to be missing, by direction.
    pub unread_bytes: [u64; 2],
    /// At least how many PDUs of the target these bytes are.
    pub least_answers: u64,
}

impl PduTotals {
    /// The sum of both.
    pub fn with(&self, other: &PduTotals) -> PduTotals {
        let [out, back] = [0, 1].map(|direction| self.carriers[direction].with(&other.carriers[direction]));
        let unread = [0, 1].map(|direction| self.unread_bytes[direction] + other.unread_bytes[direction]);
        PduTotals {
            tasks: self.tasks + other.tasks,
            r2ts: self.r2ts + other.r2ts,
            orphan_r2ts: self.orphan_r2ts + other.orphan_r2ts,
            carriers: [out, back],
            unread_bytes: unread,
            least_answers: self.least_answers + other.least_answers,
        }
    }

    /// About how many PDUs of each direction are missing with that many commands.
    pub fn missing_with_commands(&self, commands: u64) -> [u64; 2] {
        let [out, back] = self.unread_bytes;
        let data_out = self.carriers[0].uncounted_in(out.saturating_sub(commands * HEADER_BYTES));
        // an R2T has no bytes but its header: too few to tell from data
        let usual = (self.r2ts * commands + self.tasks / 2).checked_div(self.tasks).unwrap_or(0);
        let r2ts = usual.saturating_sub(self.orphan_r2ts).min(back / HEADER_BYTES);
        let data_in = self.carriers[1].uncounted_in(back - r2ts * HEADER_BYTES);
        [data_out, (r2ts + data_in).max(self.least_answers)]
    }
}

/// Missing commands of a session, and about how many data and R2T PDUs with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingCommands {
    /// Commands.
    pub commands: u64,
    /// Other PDUs, by direction (to the target first).
    pub pdus: [u64; 2],
}

/// Maximum groups that are compared to find connections of the same session.
const PARTNERS_MAX: usize = 256;

/// Sessions that are really one: several connections whose logins were not captured.
pub(super) struct Group {
    commands: Option<Ranges>,
    totals: PduTotals,
    is_login_captured: bool,
    /// The first connection of the first member that lacks commands.
    lacking_connection: Option<u32>,
    first_connection: u32,
}

impl Group {
    pub(super) fn new(
        commands: Option<&Ranges>,
        totals: PduTotals,
        first_connection: u32,
        is_login_captured: bool,
    ) -> Self {
        let lacking_connection = commands.filter(|commands| commands.missing() > 0).map(|_| first_connection);
        Self { commands: commands.cloned(), totals, is_login_captured, lacking_connection, first_connection }
    }

    /// Both as one, if possible.
    fn joined(&self, other: &Group) -> Option<Group> {
        if self.is_login_captured && other.is_login_captured {
            return None;
        }
        Some(Group {
            commands: Some(self.commands.as_ref()?.joined(other.commands.as_ref()?, &COMMANDS)?),
            totals: self.totals.with(&other.totals),
            is_login_captured: self.is_login_captured || other.is_login_captured,
            lacking_connection: self.lacking_connection.or(other.lacking_connection),
            first_connection: self.first_connection,
        })
    }
}

/// The missing commands, after joining sessions that are really one.
pub(super) fn of_groups(sessions: impl Iterator<Item = Group>) -> Vec<(u32, MissingCommands)> {
    let mut groups: Vec<Group> = Vec::new();
    for mut group in sessions {
        while let Some((place, joined)) =
            groups.iter().take(PARTNERS_MAX).enumerate().find_map(|(place, other)| Some((place, other.joined(&group)?)))
        {
            groups.remove(place);
            group = joined;
        }
        groups.push(group);
    }
    let missing = groups.iter().filter_map(|group| {
        let commands = group.commands.as_ref().map_or(0, Ranges::missing);
        let pdus = group.totals.missing_with_commands(commands);
        let connection = group.lacking_connection.unwrap_or(group.first_connection);
        (commands > 0 || pdus != [0, 0]).then_some((connection, MissingCommands { commands, pdus }))
    });
    missing.collect()
}
