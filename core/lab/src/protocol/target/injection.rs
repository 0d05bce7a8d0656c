//! Which commands, logins and connections the faults of a portal hit. What a fault does then is implemented where it occurs.
//!
//! The times of faults count from the first read or write of blocks that the portal delivers.

use std::sync::Arc;

use super::fault::{Fault, FaultOperation, FaultSettings, Subject};
use crate::occurrence::{Hits, Occurrence};
use crate::protocol::login::LoginStatus;

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
struct Injected {
    settings: Arc<FaultSettings>,
    occurrence: Occurrence,
    /// Commands that it counted, and their bytes.
    count: u64,
    bytes: u64,
    /// Whether a restart has ended the connections.
    is_done: bool,
}

impl Injected {
    fn is_about(&self, candidate: &Candidate) -> bool {
        let FaultSettings { lun, operation, blocks, .. } = &*self.settings;
        let touches = |(first, last): (u64, u64)| {
            candidate.blocks.is_some_and(|(lba, count)| lba <= last && lba.saturating_add(u64::from(count)) > first)
        };
        (lun.is_none() || *lun == candidate.lun)
            && (*operation == FaultOperation::Any || *operation == candidate.operation)
            && blocks.is_none_or(touches)
    }

    /// Counts a command; whether it is one of those that are hit.
    fn counts(&mut self, bytes: u32) -> bool {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(u64::from(bytes));
        let is_in_turn = self.settings.nth().is_none_or(|nth| {
            self.count == nth || self.settings.is_repeated && nth > 0 && self.count.is_multiple_of(nth)
        });
        is_in_turn && (self.settings.after_bytes == 0 || self.bytes > self.settings.after_bytes)
    }
}

/// The faults of a portal.
#[derive(Debug)]
pub(super) struct Faults {
    all: Vec<Injected>,
    has_begun: bool,
}

impl Faults {
    pub fn new(settings: &[FaultSettings]) -> Self {
        let injected = |settings: &FaultSettings| Injected {
            occurrence: Occurrence::new(settings.when.unwrap_or_default()),
            settings: Arc::new(settings.clone()),
            count: 0,
            bytes: 0,
            is_done: false,
        };
        Self { all: settings.iter().map(injected).collect(), has_begun: false }
    }

    fn of(&mut self, subject: Subject, now_ns: i64) -> impl Iterator<Item = &mut Injected> {
        self.all
            .iter_mut()
            .filter(move |fault| fault.settings.fault.subject() == subject && fault.occurrence.covers(now_ns))
    }

    /// The fault of a command that is delivered: the first that hits it. All others count it, too. The first command that
    /// moves blocks begins the workload.
    pub fn of_command(&mut self, now_ns: i64, candidate: &Candidate) -> Option<Arc<FaultSettings>> {
        if !self.has_begun && matches!(candidate.operation, FaultOperation::Read | FaultOperation::Write) {
            self.has_begun = true;
            self.all.iter_mut().for_each(|fault| fault.occurrence.workload_begins(now_ns));
        }
        let mut found = None;
        for fault in self.of(Subject::Command, now_ns).filter(|fault| fault.is_about(candidate)) {
            if fault.counts(candidate.bytes) && found.is_none() {
                fault.occurrence.hit(now_ns);
                found = Some(Arc::clone(&fault.settings));
            }
        }
        found
    }

    /// When the service of a command ends that would end at `end_ns` without them.
    pub fn service_end_ns(&mut self, now_ns: i64, candidate: &Candidate, end_ns: i64) -> i64 {
        let mut end_ns = end_ns;
        for fault in self.of(Subject::Service, now_ns).filter(|fault| fault.is_about(candidate)) {
            end_ns = match fault.settings.fault {
                Fault::Stuck => end_ns.max(fault.occurrence.ended_ns().unwrap_or(i64::MAX)),
                _ => end_ns.saturating_add(fault.settings.by_ns.max(0)),
            };
            fault.occurrence.hit(now_ns);
        }
        end_ns
    }

    /// Whether task management functions for a logical unit are not answered.
    pub fn is_stuck(&self, now_ns: i64, lun: Option<u16>) -> bool {
        self.all.iter().any(|fault| {
            fault.settings.fault == Fault::Stuck
                && fault.occurrence.covers(now_ns)
                && (fault.settings.lun.is_none() || fault.settings.lun == lun)
        })
    }

    /// The status of a login that is refused, and the addresses of a redirection.
    pub fn refusal(&mut self, now_ns: i64) -> Option<(LoginStatus, Vec<String>)> {
        let is_left =
            |fault: &&mut Injected| fault.settings.most.is_none_or(|most| fault.occurrence.hits().count < most);
        let fault = self.of(Subject::Login, now_ns).find(is_left)?;
        fault.occurrence.hit(now_ns);
        let [class, detail] = fault.settings.status;
        Some((LoginStatus::from_codes(class, detail), fault.settings.addresses.clone()))
    }

    fn restarts(&self) -> impl Iterator<Item = &Injected> {
        self.all.iter().filter(|fault| fault.settings.fault == Fault::Restart)
    }

    /// Whether the portal is down.
    pub fn is_down(&self, now_ns: i64) -> bool {
        self.restarts().any(|fault| fault.occurrence.covers(now_ns))
    }

    /// Whether the portal accepts a connection that comes.
    pub fn is_accepting(&mut self, now_ns: i64) -> bool {
        self.of(Subject::Portal, now_ns).next().is_none_or(|fault| {
            fault.occurrence.hit(now_ns);
            false
        })
    }

    /// When the next restart ends the connections.
    pub fn next_ns(&self) -> Option<i64> {
        self.restarts().filter(|fault| !fault.is_done).filter_map(|fault| fault.occurrence.began_ns()).min()
    }

    /// Whether a restart ends the connections now; true once for each.
    pub fn restarts_now(&mut self, now_ns: i64) -> bool {
        let is_due = |fault: &&mut Injected| {
            fault.settings.fault == Fault::Restart
                && !fault.is_done
                && fault.occurrence.began_ns().is_some_and(|began_ns| began_ns <= now_ns)
        };
        self.all.iter_mut().find(is_due).is_some_and(|fault| {
            fault.is_done = true;
            fault.occurrence.hit(now_ns);
            true
        })
    }

    /// What the faults of the run have hit: those with a time.
    pub fn hits(&self) -> Vec<Hits> {
        self.all.iter().filter(|fault| fault.settings.when.is_some()).map(|fault| fault.occurrence.hits()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(json: &str) -> Faults {
        Faults::new(&serde_json::from_str::<Vec<FaultSettings>>(json).unwrap())
    }

    fn read(lba: u64) -> Candidate {
        Candidate { operation: FaultOperation::Read, lun: Some(0), blocks: Some((lba, 8)), bytes: 4096 }
    }

    fn hit(faults: &mut Faults, now_ns: i64, candidate: &Candidate) -> Option<Fault> {
        faults.of_command(now_ns, candidate).map(|settings| settings.fault)
    }

    #[test]
    fn a_fault_counts_only_its_operation() {
        let mut found = faults(
            r#"[{"fault": "bad_data_digest", "nth": 2, "operation": "read"},
                {"fault": "busy", "nth": 3, "is_repeated": true}]"#,
        );
        let operations = "rwrrwwrro".chars().map(|letter| match letter {
            'r' => FaultOperation::Read,
            'w' => FaultOperation::Write,
            _ => FaultOperation::Other,
        });
        let hits: Vec<Option<Fault>> =
            operations.map(|operation| hit(&mut found, 0, &Candidate { operation, ..read(0) })).collect();
        let busy = Some(Fault::Busy);
        // the second read is also the third command: the first fault hits it
        assert_eq!(hits, [None, None, Some(Fault::BadDataDigest), None, None, busy, None, None, busy]);
    }

    #[test]
    fn without_number_and_time_it_hits_the_first_command() {
        let mut found = faults(r#"[{"fault": "late_r2t"}]"#);
        assert_eq!([1, 2].map(|now_ns| hit(&mut found, now_ns, &read(0))), [Some(Fault::LateR2t), None]);
        assert!(found.hits().is_empty(), "it is not among those of the run");
        assert!(serde_json::from_str::<FaultSettings>(r#"{"fault": "late_r2t", "by": 1}"#).is_err());
    }

    #[test]
    fn a_number_counts_the_commands_within_its_time() {
        let mut found = faults(r#"[{"fault": "busy", "nth": 2, "when": {"at_ns": 10, "for_ns": 10}}]"#);
        let hits = [0, 5, 10, 15, 19, 25].map(|now_ns| hit(&mut found, now_ns, &read(0)).is_some());
        assert_eq!(hits, [false, false, false, true, false, false]);
    }

    #[test]
    fn blocks_decide_which_commands_fail() {
        let mut found = faults(r#"[{"fault": "check_condition", "blocks": [100, 199], "when": {}}]"#);
        let hits = [91, 92, 93, 199, 200].map(|lba| hit(&mut found, 5, &read(lba)).is_some());
        assert_eq!(hits, [false, false, true, true, false], "8 blocks from LBA 93 on end with LBA 100");
        assert_eq!(found.hits()[0].count, 2);
    }

    #[test]
    fn a_full_disk_takes_so_many_bytes() {
        let json = r#"[{"fault": "check_condition", "operation": "write", "after_bytes": 8192, "when": {}}]"#;
        let mut found = faults(json);
        let write = Candidate { operation: FaultOperation::Write, ..read(0) };
        assert!(hit(&mut found, 5, &read(0)).is_none(), "a read takes no room");
        assert_eq!([1, 2, 3].map(|now_ns| hit(&mut found, now_ns, &write).is_some()), [false, false, true]);
    }

    #[test]
    fn times_count_from_the_first_read_or_write() {
        let mut found = faults(r#"[{"fault": "stuck", "when": {"at_ns": 10, "for_ns": 100}}]"#);
        found.of_command(1, &Candidate { operation: FaultOperation::Other, ..read(0) });
        assert_eq!(found.service_end_ns(50, &read(0), 51), 51);
        found.of_command(1000, &read(0));
        assert_eq!(found.service_end_ns(1009, &read(0), 1009), 1009);
        assert_eq!(found.service_end_ns(1010, &read(0), 1012), 1110);
        assert!(found.is_stuck(1109, Some(0)) && !found.is_stuck(1110, Some(0)));
    }

    #[test]
    fn a_restart_ends_connections_once_and_refuses_others_meanwhile() {
        let mut found = faults(r#"[{"fault": "restart", "when": {"at_ns": 10, "for_ns": 100}}]"#);
        assert_eq!(found.next_ns(), None);
        found.of_command(0, &Candidate { operation: FaultOperation::Write, ..read(0) });
        assert_eq!((found.next_ns(), found.is_accepting(9)), (Some(10), true));
        assert!(found.restarts_now(10) && !found.restarts_now(11));
        assert_eq!([9, 10, 109, 110].map(|now_ns| found.is_down(now_ns)), [false, true, true, false]);
        assert_eq!([10, 109, 110].map(|now_ns| found.is_accepting(now_ns)), [false, false, true]);
    }

    #[test]
    fn logins_are_refused_until_there_were_enough() {
        let mut found = faults(r#"[{"fault": "login_refused", "status": [3, 1], "most": 2, "when": {}}]"#);
        let words = |refusal: Option<(LoginStatus, Vec<String>)>| refusal.map(|(status, _)| status);
        let refused = [1, 2, 3].map(|now_ns| words(found.refusal(now_ns)));
        assert_eq!(refused, [Some(LoginStatus::ServiceUnavailable), Some(LoginStatus::ServiceUnavailable), None]);
    }
}
