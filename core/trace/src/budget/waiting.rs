//! The tasks outstanding: who is waited for, and until when the path's delay explains it.
//!
//! Deadlines are in waited time, which stands still while the line is busy: what is queued before the line has not begun
//! its way.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::dynamics::timeline::Timeline;

/// How long the path may take; none when it was never measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    /// From the tap to the target and back.
    pub(super) to_target_ns: Option<i64>,
    /// From the tap to the initiator and back.
    pub(super) to_initiator_ns: Option<i64>,
}

impl Allowance {
    pub(super) fn of(timeline: &Timeline) -> Self {
        Self { to_target_ns: timeline.rtt_to_target_ns, to_initiator_ns: timeline.rtt_to_initiator_ns }
    }
}

/// Until when a wait is the path's: in waited time; a path that was never measured explains nothing and denies nothing.
type Deadline = i64;

/// One task.
#[derive(Debug, Clone, Copy)]
struct Task {
    open_rounds: u32,
    is_granted: bool,
    deadline: Deadline,
}

/// Who is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nobody: no task is outstanding.
    Nobody,
    /// The path, until that much was waited.
    Path(i64),
    /// The target.
    Target,
    /// The initiator.
    Initiator,
    /// One of them, but the path's part was never measured.
    Untold,
}

/// The tasks outstanding.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    tasks: FxHashMap<u32, Task>,
    /// By deadline.
    on_target: BTreeSet<(Deadline, u32)>,
    on_initiator: BTreeSet<(Deadline, u32)>,
    untold_count: usize,
    /// By number, which is the order of the commands.
    outstanding: BTreeSet<u32>,
}

/// The deadline of a path that was never measured.
const UNTOLD: Deadline = i64::MAX;

impl Tasks {
    /// Tasks outstanding.
    pub(super) fn count(&self) -> usize {
        self.outstanding.len()
    }

    /// The oldest task.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.outstanding.first().copied()
    }

    /// A command begins.
    pub(super) fn begin(&mut self, cycle: u32, waited_ns: i64, allowance: Allowance) {
        let deadline = deadline(waited_ns, allowance.to_target_ns);
        self.outstanding.insert(cycle);
        self.tasks.insert(cycle, Task { open_rounds: 0, is_granted: false, deadline });
        self.wait(cycle, deadline, false);
    }

    /// The initiator has sent all that the task needs for now.
    pub(super) fn ask(&mut self, cycle: u32, waited_ns: i64, allowance: Allowance) {
        if self.tasks.get(&cycle).is_some_and(|task| !task.is_granted) {
            self.turn(cycle, false, deadline(waited_ns, allowance.to_target_ns));
        }
    }

    /// An R2T came.
    pub(super) fn grant(&mut self, cycle: u32, waited_ns: i64, allowance: Allowance) {
        let Some(task) = self.tasks.get_mut(&cycle) else { return };
        task.open_rounds += 1;
        if task.open_rounds == 1 {
            self.turn(cycle, true, deadline(waited_ns, allowance.to_initiator_ns));
        }
    }

    /// The burst of an R2T was sent.
    pub(super) fn answer(&mut self, cycle: u32, waited_ns: i64, allowance: Allowance) {
        let Some(task) = self.tasks.get_mut(&cycle) else { return };
        task.open_rounds = task.open_rounds.saturating_sub(1);
        if task.open_rounds == 0 {
            self.turn(cycle, false, deadline(waited_ns, allowance.to_target_ns));
        }
    }

    /// A task ended.
    pub(super) fn end(&mut self, cycle: u32) {
        self.outstanding.remove(&cycle);
        if let Some(task) = self.tasks.remove(&cycle) {
            self.forget(cycle, task);
        }
    }

    /// Who is waited for, after so much waiting.
    pub(super) fn waiting(&self, waited_ns: i64) -> Waiting {
        let first = |waits: &BTreeSet<(Deadline, u32)>| waits.first().map(|&(deadline, _)| deadline);
        let (target, initiator) = (first(&self.on_target), first(&self.on_initiator));
        if initiator.is_some_and(|deadline| deadline <= waited_ns) {
            Waiting::Initiator
        } else if target.is_some_and(|deadline| deadline <= waited_ns) {
            Waiting::Target
        } else if self.untold_count > 0 {
            Waiting::Untold
        } else {
            match (target, initiator) {
                (None, None) => Waiting::Nobody,
                (Some(deadline), None) | (None, Some(deadline)) => Waiting::Path(deadline),
                (Some(target), Some(initiator)) => Waiting::Path(target.min(initiator)),
            }
        }
    }

    fn turn(&mut self, cycle: u32, is_granted: bool, deadline: Deadline) {
        let Some(task) = self.tasks.get_mut(&cycle) else { return };
        let before = *task;
        task.is_granted = is_granted;
        task.deadline = deadline;
        self.forget(cycle, before);
        self.wait(cycle, deadline, is_granted);
    }

    fn wait(&mut self, cycle: u32, deadline: Deadline, is_granted: bool) {
        self.untold_count += usize::from(deadline == UNTOLD);
        let waits = if is_granted { &mut self.on_initiator } else { &mut self.on_target };
        waits.insert((deadline, cycle));
    }

    fn forget(&mut self, cycle: u32, task: Task) {
        self.untold_count -= usize::from(task.deadline == UNTOLD);
        let waits = if task.is_granted { &mut self.on_initiator } else { &mut self.on_target };
        waits.remove(&(task.deadline, cycle));
    }
}

fn deadline(waited_ns: i64, allowed_ns: Option<i64>) -> Deadline {
    allowed_ns.map_or(UNTOLD, |allowed_ns| waited_ns.saturating_add(allowed_ns))
}
