//! Conditions of a target: faults that last, of its storage, its logins, or the whole portal. `fault` has those of single
//! commands.
//!
//! The times of a condition count from the first read or write of blocks that the portal delivers.

use serde::{Deserialize, Serialize};

use super::fault::FaultOperation;
use crate::occurrence::{Hits, Occurrence, When};
use crate::protocol::login::LoginStatus;
use crate::scsi::{Sense, SenseKey, Status};

/// What a condition does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ConditionKind {
    /// Commands end with this sense: key, additional sense code and qualifier.
    CheckCondition([u8; 3]),
    /// Commands end with status BUSY.
    Busy,
    /// Commands end with status TASK SET FULL.
    TaskSetFull,
    /// Commands end with status RESERVATION CONFLICT.
    ReservationConflict,
    /// Service of commands takes so much longer, in ns.
    Slow(i64),
    /// Commands are not answered before its end, nor are task management functions.
    Stuck,
    /// Logins are refused.
    LoginRefused {
        /// Status-Class and Status-Detail (RFC 7143 section 11.13.5).
        status: [u8; 2],
        /// Values of TargetAddress, for a redirection.
        #[serde(default)]
        addresses: Vec<String>,
    },
    /// The portal ends all connections when it begins, and accepts none before it ends.
    Restart,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionSettings {
    /// What it does.
    pub kind: ConditionKind,
    /// When it is there.
    #[serde(default)]
    pub when: When,
    /// The logical unit; none for all.
    #[serde(default)]
    pub lun: Option<u16>,
    /// Commands that it hits.
    #[serde(default)]
    pub operation: FaultOperation,
    /// First and last logical block: it hits commands that touch these. None for all commands.
    #[serde(default)]
    pub blocks: Option<(u64, u64)>,
    /// It hits commands beyond so many bytes since its begin.
    #[serde(default)]
    pub after_bytes: u64,
    /// Most logins that it hits; none for all.
    #[serde(default)]
    pub most: Option<u64>,
}

/// A command that may be hit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub operation: FaultOperation,
    pub lun: Option<u16>,
    /// First logical block, and their number.
    pub blocks: Option<(u64, u32)>,
    pub bytes: u32,
}

#[derive(Debug)]
struct Condition {
    settings: ConditionSettings,
    occurrence: Occurrence,
    bytes: u64,
    /// Whether a restart has ended the connections.
    is_done: bool,
}

impl Condition {
    fn is_meant(&self, candidate: &Candidate) -> bool {
        let ConditionSettings { lun, operation, blocks, .. } = &self.settings;
        let touches = |(first, last): (u64, u64)| {
            candidate.blocks.is_some_and(|(lba, count)| lba <= last && lba.saturating_add(u64::from(count)) > first)
        };
        (lun.is_none() || *lun == candidate.lun)
            && (*operation == FaultOperation::Any || *operation == candidate.operation)
            && blocks.is_none_or(touches)
    }
}

/// The conditions of a portal.
#[derive(Debug)]
pub(super) struct Conditions {
    all: Vec<Condition>,
    has_begun: bool,
}

impl Conditions {
    pub fn new(settings: &[ConditionSettings]) -> Self {
        let condition = |settings: &ConditionSettings| Condition {
            occurrence: Occurrence::new(settings.when),
            settings: settings.clone(),
            bytes: 0,
            is_done: false,
        };
        Self { all: settings.iter().map(condition).collect(), has_begun: false }
    }

    /// A command is delivered; the first that moves blocks begins the workload.
    pub fn delivered(&mut self, now_ns: i64, operation: FaultOperation) {
        if !self.has_begun && matches!(operation, FaultOperation::Read | FaultOperation::Write) {
            self.has_begun = true;
            self.all.iter_mut().for_each(|condition| condition.occurrence.workload_begins(now_ns));
        }
    }

    fn hits_of<'a>(
        &'a mut self,
        now_ns: i64,
        candidate: &'a Candidate,
    ) -> impl Iterator<Item = &'a mut Condition> + 'a {
        self.all
            .iter_mut()
            .filter(move |condition| condition.occurrence.covers(now_ns) && condition.is_meant(candidate))
    }

    /// The status that ends a command, with the sense of a CHECK CONDITION.
    pub fn status(&mut self, now_ns: i64, candidate: &Candidate) -> Option<(Status, Option<Sense>)> {
        for condition in self.hits_of(now_ns, candidate) {
            let found = match condition.settings.kind {
                ConditionKind::CheckCondition([key, code, qualifier]) => {
                    (Status::CheckCondition, Some(Sense::new(SenseKey::from_u8(key), code, qualifier)))
                }
                ConditionKind::Busy => (Status::Busy, None),
                ConditionKind::TaskSetFull => (Status::TaskSetFull, None),
                ConditionKind::ReservationConflict => (Status::ReservationConflict, None),
                _ => continue,
            };
            condition.bytes = condition.bytes.saturating_add(u64::from(candidate.bytes));
            if condition.bytes > condition.settings.after_bytes {
                condition.occurrence.hit(now_ns);
                return Some(found);
            }
        }
        None
    }

    /// When the service of a command ends that would end at `end_ns` without them.
    pub fn service_end_ns(&mut self, now_ns: i64, candidate: &Candidate, end_ns: i64) -> i64 {
        let mut end_ns = end_ns;
        for condition in self.hits_of(now_ns, candidate) {
            match condition.settings.kind {
                ConditionKind::Slow(by_ns) => end_ns = end_ns.saturating_add(by_ns.max(0)),
                ConditionKind::Stuck => end_ns = end_ns.max(condition.occurrence.ended_ns().unwrap_or(i64::MAX)),
                _ => continue,
            }
            condition.occurrence.hit(now_ns);
        }
        end_ns
    }

    /// Whether task management functions for a logical unit are not answered.
    pub fn is_stuck(&self, now_ns: i64, lun: Option<u16>) -> bool {
        self.all.iter().any(|condition| {
            condition.settings.kind == ConditionKind::Stuck
                && condition.occurrence.covers(now_ns)
                && (condition.settings.lun.is_none() || condition.settings.lun == lun)
        })
    }

    /// The status of a login that is refused, and the addresses of a redirection.
    pub fn refusal(&mut self, now_ns: i64) -> Option<(LoginStatus, Vec<String>)> {
        self.all.iter_mut().find_map(|condition| {
            let ConditionKind::LoginRefused { status: [class, detail], addresses } = &condition.settings.kind else {
                return None;
            };
            let is_over = condition.settings.most.is_some_and(|most| condition.occurrence.hits().count >= most);
            if is_over || !condition.occurrence.covers(now_ns) {
                return None;
            }
            condition.occurrence.hit(now_ns);
            Some((LoginStatus::from_codes(*class, *detail), addresses.clone()))
        })
    }

    /// Whether the portal is down.
    pub fn is_down(&self, now_ns: i64) -> bool {
        let is_restart = |condition: &&Condition| condition.settings.kind == ConditionKind::Restart;
        self.all.iter().filter(is_restart).any(|condition| condition.occurrence.covers(now_ns))
    }

    /// Whether the portal accepts a connection that comes.
    pub fn is_accepting(&mut self, now_ns: i64) -> bool {
        let restart = self.restarts().find(|condition| condition.occurrence.covers(now_ns));
        restart.is_none_or(|condition| {
            condition.occurrence.hit(now_ns);
            false
        })
    }

    fn restarts(&mut self) -> impl Iterator<Item = &mut Condition> {
        self.all.iter_mut().filter(|condition| condition.settings.kind == ConditionKind::Restart)
    }

    /// When the next restart ends the connections.
    pub fn next_ns(&self) -> Option<i64> {
        let due = self.all.iter().filter(|condition| condition.settings.kind == ConditionKind::Restart);
        due.filter(|condition| !condition.is_done).filter_map(|condition| condition.occurrence.began_ns()).min()
    }

    /// Whether a restart ends the connections now; true once for each.
    pub fn restarts_now(&mut self, now_ns: i64) -> bool {
        let is_due = |condition: &&mut Condition| {
            !condition.is_done && condition.occurrence.began_ns().is_some_and(|began_ns| began_ns <= now_ns)
        };
        self.restarts().find(is_due).is_some_and(|condition| {
            condition.is_done = true;
            condition.occurrence.hit(now_ns);
            true
        })
    }

    /// What they have hit.
    pub fn hits(&self) -> Vec<Hits> {
        self.all.iter().map(|condition| condition.occurrence.hits()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(json: &str) -> Conditions {
        Conditions::new(&serde_json::from_str::<Vec<ConditionSettings>>(json).unwrap())
    }

    fn read(lba: u64) -> Candidate {
        Candidate { operation: FaultOperation::Read, lun: Some(0), blocks: Some((lba, 8)), bytes: 4096 }
    }

    #[test]
    fn blocks_decide_which_commands_fail() {
        let mut found = conditions(r#"[{"kind": {"check_condition": [3, 17, 0]}, "blocks": [100, 199]}]"#);
        let hits = [91, 92, 93, 199, 200].map(|lba| found.status(5, &read(lba)).is_some());
        assert_eq!(hits, [false, false, true, true, false], "8 blocks from LBA 93 on end with LBA 100");
        assert_eq!(found.hits()[0].count, 2);
    }

    #[test]
    fn a_full_disk_takes_so_many_bytes() {
        let json = r#"[{"kind": {"check_condition": [7, 39, 7]}, "operation": "write", "after_bytes": 8192}]"#;
        let mut found = conditions(json);
        let write = Candidate { operation: FaultOperation::Write, ..read(0) };
        assert!(found.status(5, &read(0)).is_none(), "a read takes no room");
        assert_eq!([1, 2, 3].map(|now_ns| found.status(now_ns, &write).is_some()), [false, false, true]);
    }

    #[test]
    fn times_count_from_the_first_read_or_write() {
        let mut found = conditions(r#"[{"kind": "stuck", "when": {"at_ns": 10, "for_ns": 100}}]"#);
        found.delivered(1, FaultOperation::Other);
        assert_eq!(found.service_end_ns(50, &read(0), 51), 51);
        found.delivered(1000, FaultOperation::Read);
        assert_eq!(found.service_end_ns(1009, &read(0), 1009), 1009);
        assert_eq!(found.service_end_ns(1010, &read(0), 1012), 1110);
        assert!(found.is_stuck(1109, Some(0)) && !found.is_stuck(1110, Some(0)));
    }

    #[test]
    fn a_restart_ends_connections_once_and_refuses_others_meanwhile() {
        let mut found = conditions(r#"[{"kind": "restart", "when": {"at_ns": 10, "for_ns": 100}}]"#);
        assert_eq!(found.next_ns(), None);
        found.delivered(0, FaultOperation::Write);
        assert_eq!((found.next_ns(), found.is_accepting(9)), (Some(10), true));
        assert!(found.restarts_now(10) && !found.restarts_now(11));
        assert_eq!([9, 10, 109, 110].map(|now_ns| found.is_down(now_ns)), [false, true, true, false]);
        assert_eq!([10, 109, 110].map(|now_ns| found.is_accepting(now_ns)), [false, false, true]);
    }

    #[test]
    fn logins_are_refused_until_there_were_enough() {
        let mut found = conditions(r#"[{"kind": {"login_refused": {"status": [3, 1]}}, "most": 2}]"#);
        let words = |refusal: Option<(LoginStatus, Vec<String>)>| refusal.map(|(status, _)| status);
        let refused = [1, 2, 3].map(|now_ns| words(found.refusal(now_ns)));
        assert_eq!(refused, [Some(LoginStatus::ServiceUnavailable), Some(LoginStatus::ServiceUnavailable), None]);
    }
}
