//! Missing commands of sessions, and about how many other PDUs are missing with them.

use super::command_numbers::CommandNumbers;

/// PDU totals of a session's tasks: an estimate for tasks whose command is missing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TaskTotals {
    /// Completed tasks.
    pub tasks: u64,
    /// Their Data-Out PDUs; their Data-In (without status) and R2T PDUs. Seen or missing.
    pub pdus: [u64; 2],
    /// Data and R2T PDUs of tasks without a captured command, by direction (to the target first).
    pub orphans: [u64; 2],
}

impl TaskTotals {
    /// The sum of both.
    pub fn with(&self, other: &TaskTotals) -> TaskTotals {
        let sum = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
        TaskTotals {
            tasks: self.tasks + other.tasks,
            pdus: sum(self.pdus, other.pdus),
            orphans: sum(self.orphans, other.orphans),
        }
    }

    /// About how many PDUs of each direction are missing with that many commands.
    pub fn missing_with_commands(&self, commands: u64) -> [u64; 2] {
        let share = |pdus: u64, orphans: u64| match self.tasks {
            0 => 0,
            tasks => ((pdus * commands + tasks / 2) / tasks).saturating_sub(orphans),
        };
        [share(self.pdus[0], self.orphans[0]), share(self.pdus[1], self.orphans[1])]
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
    commands: CommandNumbers,
    totals: TaskTotals,
    is_login_captured: bool,
    /// The first connection of the first member that lacks commands.
    lacking_connection: Option<u32>,
}

impl Group {
    pub(super) fn new(
        commands: &CommandNumbers,
        totals: TaskTotals,
        first_connection: u32,
        is_login_captured: bool,
    ) -> Self {
        let lacking_connection = (commands.missing() > 0).then_some(first_connection);
        Self { commands: commands.clone(), totals, is_login_captured, lacking_connection }
    }

    /// Both as one, if possible.
    fn joined(&self, other: &Group) -> Option<Group> {
        if self.is_login_captured && other.is_login_captured {
            return None;
        }
        Some(Group {
            commands: self.commands.joined(&other.commands)?,
            totals: self.totals.with(&other.totals),
            is_login_captured: self.is_login_captured || other.is_login_captured,
            lacking_connection: self.lacking_connection.or(other.lacking_connection),
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
        let commands = group.commands.missing();
        let pdus = group.totals.missing_with_commands(commands);
        Some((group.lacking_connection?, MissingCommands { commands, pdus })).filter(|_| commands > 0)
    });
    missing.collect()
}
