//! Fault injection: which commands have a fault. The faults themselves are implemented where they occur.

use serde::{Deserialize, Serialize};

use crate::scsi::{Sense, SenseKey};

/// A fault of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The first answering PDU has a wrong header digest; no effect without HeaderDigest.
    BadHeaderDigest,
    /// The first answering PDU with data has a wrong data digest; no effect without DataDigest.
    BadDataDigest,
    /// The command is never answered.
    SwallowedPdu,
    /// The first R2T is delayed by `by_ns`.
    LateR2t,
    /// Status BUSY.
    Busy,
    /// Status TASK SET FULL.
    TaskSetFull,
    /// Status CHECK CONDITION, with `sense`.
    CheckCondition,
    /// A Reject, with `reason`.
    Reject,
    /// The connection is closed.
    ClosedConnection,
    /// The status is delayed by `by_ns`, and never in a Data-In.
    DelayedStatus,
}

/// Commands that a rule counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultOperation {
    /// All.
    #[default]
    Any,
    /// Reads of blocks.
    Read,
    /// Writes of blocks.
    Write,
    /// UNMAP.
    Unmap,
    /// All others.
    Other,
}

/// A rule, such as `{"fault": "bad_data_digest", "nth": 5, "operation": "read"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// The fault.
    pub fault: Fault,
    /// Number of the command, counted from 1 over all sessions in the order of delivery.
    #[serde(default = "first")]
    pub nth: u64,
    /// Whether it applies to every nth command.
    #[serde(default)]
    pub is_repeated: bool,
    /// Commands that it counts.
    #[serde(default)]
    pub operation: FaultOperation,
    /// The delay.
    #[serde(default)]
    pub by_ns: i64,
    /// Sense key, additional sense code and qualifier of a CHECK CONDITION.
    #[serde(default = "unrecovered_read_error")]
    pub sense: [u8; 3],
    /// Reason of a Reject (RFC 7143 section 11.17.1).
    #[serde(default = "protocol_error")]
    pub reason: u8,
}

fn first() -> u64 {
    1
}

/// MEDIUM ERROR, UNRECOVERED READ ERROR.
fn unrecovered_read_error() -> [u8; 3] {
    [0x03, 0x11, 0x00]
}

fn protocol_error() -> u8 {
    0x04
}

impl FaultRule {
    /// The sense data of a CHECK CONDITION.
    pub(super) fn sense(&self) -> Sense {
        let [key, code, qualifier] = self.sense;
        Sense::new(SenseKey::from_u8(key), code, qualifier)
    }

    /// A rule for the `nth` command of this operation.
    #[must_use]
    pub fn new(fault: Fault, operation: FaultOperation, nth: u64) -> Self {
        Self {
            fault,
            nth,
            is_repeated: false,
            operation,
            by_ns: 0,
            sense: unrecovered_read_error(),
            reason: protocol_error(),
        }
    }
}

/// The rules, with the commands that each has counted.
#[derive(Debug)]
pub(super) struct Faults {
    rules: Vec<(FaultRule, u64)>,
}

impl Faults {
    pub(super) fn new(rules: &[FaultRule]) -> Self {
        Self { rules: rules.iter().map(|rule| (*rule, 0)).collect() }
    }

    /// Counts a command in every rule; returns the first rule that applies.
    pub(super) fn next(&mut self, operation: FaultOperation) -> Option<FaultRule> {
        let mut hit = None;
        for (rule, count) in &mut self.rules {
            if rule.operation != FaultOperation::Any && rule.operation != operation {
                continue;
            }
            *count += 1;
            let is_hit = *count == rule.nth || rule.is_repeated && rule.nth > 0 && count.is_multiple_of(rule.nth);
            if is_hit && hit.is_none() {
                hit = Some(*rule);
            }
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> FaultRule {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_rule_counts_only_its_operation() {
        let rules = [
            rule(r#"{"fault": "bad_data_digest", "nth": 2, "operation": "read"}"#),
            rule(r#"{"fault": "busy", "nth": 3, "is_repeated": true}"#),
        ];
        let mut faults = Faults::new(&rules);
        let commands = "rwrrwwrro".chars().map(|letter| match letter {
            'r' => FaultOperation::Read,
            'w' => FaultOperation::Write,
            _ => FaultOperation::Other,
        });
        let hit: Vec<Option<Fault>> = commands.map(|command| faults.next(command).map(|rule| rule.fault)).collect();
        let busy = Some(Fault::Busy);
        // the second read is also the third command: the first rule applies
        assert_eq!(hit, [None, None, Some(Fault::BadDataDigest), None, None, busy, None, None, busy]);
    }

    #[test]
    fn a_rule_without_nth_applies_to_the_first_command() {
        assert_eq!(rule(r#"{"fault": "late_r2t"}"#), FaultRule::new(Fault::LateR2t, FaultOperation::Any, 1));
        assert!(serde_json::from_str::<FaultRule>(r#"{"fault": "late_r2t", "by": 1}"#).is_err());
        let mut never = Faults::new(&[rule(r#"{"fault": "busy", "nth": 0, "is_repeated": true}"#)]);
        assert_eq!(never.next(FaultOperation::Read), None);
    }
}
