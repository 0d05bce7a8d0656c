//! The tasks outstanding: who is waited for, and until when the path's delay explains it.
//!
//! Deadlines are in waited time, which stands still while the line is busy: what is queued before the line has not begun
//! its way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
#[derive(Debug, Clone, Copy, Default)]
struct Task {
    is_outstanding: bool,
    is_r2t_open: bool,
    open_rounds: u32,
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
    Unmeasured,
}

/// Deadlines of tasks, the first on top. One that does not hold any more stays until it comes there.
type Waits = BinaryHeap<Reverse<(Deadline, u32)>>;

/// The tasks of a scope, by their places in it, which are in the order of the commands.
#[derive(Debug)]
pub(super) struct Tasks {
    tasks: Vec<Task>,
    on_target: Waits,
    on_initiator: Waits,
    unmeasured_count: usize,
    /// Places of those outstanding, the first on top; those that ended stay until they come there.
    outstanding: BinaryHeap<Reverse<u32>>,
    outstanding_count: usize,
}

/// The deadline of a path that was never measured.
const UNMEASURED: Deadline = i64::MAX;

impl Tasks {
    /// So many tasks, none of which began.
    pub(super) fn new(count: usize) -> Self {
        Self {
            tasks: vec![Task::default(); count],
            on_target: Waits::new(),
            on_initiator: Waits::new(),
            unmeasured_count: 0,
            outstanding: BinaryHeap::new(),
            outstanding_count: 0,
        }
    }

    /// Tasks outstanding.
    pub(super) fn count(&self) -> usize {
        self.outstanding_count
    }

    /// The oldest task.
    pub(super) fn oldest(&mut self) -> Option<u32> {
        while let Some(&Reverse(place)) = self.outstanding.peek() {
            if self.task(place).is_some() {
                return Some(place);
            }
            self.outstanding.pop();
        }
        None
    }

    /// A command begins.
    pub(super) fn begin(&mut self, place: u32, waited_ns: i64, allowance: Allowance) {
        if let Some(task) = self.tasks.get_mut(place as usize) {
            *task = Task { is_outstanding: true, ..Task::default() };
            self.outstanding.push(Reverse(place));
            self.outstanding_count += 1;
            self.wait(place, false, deadline(waited_ns, allowance.to_target_ns));
        }
    }

    /// The initiator has sent all that the task needs for now.
    pub(super) fn request(&mut self, place: u32, waited_ns: i64, allowance: Allowance) {
        if self.task(place).is_some_and(|task| !task.is_r2t_open) {
            self.turn(place, false, deadline(waited_ns, allowance.to_target_ns));
        }
    }

    /// An R2T came.
    pub(super) fn r2t(&mut self, place: u32, waited_ns: i64, allowance: Allowance) {
        let Some(task) = self.task(place) else { return };
        task.open_rounds += 1;
        if task.open_rounds == 1 {
            self.turn(place, true, deadline(waited_ns, allowance.to_initiator_ns));
        }
    }

    /// The burst of an R2T was sent.
    pub(super) fn burst_sent(&mut self, place: u32, waited_ns: i64, allowance: Allowance) {
        let Some(task) = self.task(place) else { return };
        task.open_rounds = task.open_rounds.saturating_sub(1);
        if task.open_rounds == 0 {
            self.turn(place, false, deadline(waited_ns, allowance.to_target_ns));
        }
    }

    /// A task ended.
    pub(super) fn end(&mut self, place: u32) {
        let Some(task) = self.task(place) else { return };
        task.is_outstanding = false;
        let is_unmeasured = task.deadline == UNMEASURED;
        self.unmeasured_count -= usize::from(is_unmeasured);
        self.outstanding_count -= 1;
    }

    /// Who is waited for, after so much waiting.
    pub(super) fn waiting(&mut self, waited_ns: i64) -> Waiting {
        let target = first(&mut self.on_target, &self.tasks, false);
        let initiator = first(&mut self.on_initiator, &self.tasks, true);
        if initiator.is_some_and(|deadline| deadline <= waited_ns) {
            Waiting::Initiator
        } else if target.is_some_and(|deadline| deadline <= waited_ns) {
            Waiting::Target
        } else if self.unmeasured_count > 0 {
            Waiting::Unmeasured
        } else {
            match (target, initiator) {
                (None, None) => Waiting::Nobody,
                (Some(deadline), None) | (None, Some(deadline)) => Waiting::Path(deadline),
                (Some(target), Some(initiator)) => Waiting::Path(target.min(initiator)),
            }
        }
    }

    /// One that is outstanding.
    fn task(&mut self, place: u32) -> Option<&mut Task> {
        self.tasks.get_mut(place as usize).filter(|task| task.is_outstanding)
    }

    /// From now on the other side is waited for, or the same anew.
    fn turn(&mut self, place: u32, is_r2t_open: bool, deadline: Deadline) {
        let Some(task) = self.task(place) else { return };
        let was_unmeasured = task.deadline == UNMEASURED;
        self.unmeasured_count -= usize::from(was_unmeasured);
        self.wait(place, is_r2t_open, deadline);
    }

    fn wait(&mut self, place: u32, is_r2t_open: bool, deadline: Deadline) {
        let Some(task) = self.task(place) else { return };
        (task.is_r2t_open, task.deadline) = (is_r2t_open, deadline);
        self.unmeasured_count += usize::from(deadline == UNMEASURED);
        let waits = if is_r2t_open { &mut self.on_initiator } else { &mut self.on_target };
        waits.push(Reverse((deadline, place)));
    }
}

/// The first deadline that still holds.
fn first(waits: &mut Waits, tasks: &[Task], is_r2t_open: bool) -> Option<Deadline> {
    while let Some(&Reverse((deadline, place))) = waits.peek() {
        let holds = |task: &&Task| task.is_outstanding && task.is_r2t_open == is_r2t_open && task.deadline == deadline;
        if tasks.get(place as usize).filter(holds).is_some() {
            return Some(deadline);
        }
        waits.pop();
    }
    None
}

fn deadline(waited_ns: i64, allowed_ns: Option<i64>) -> Deadline {
    allowed_ns.map_or(UNMEASURED, |allowed_ns| waited_ns.saturating_add(allowed_ns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TASKS: usize = 6;
    const ALLOWANCE: Allowance = Allowance { to_target_ns: Some(20), to_initiator_ns: Some(5) };

    /// A task as one looks at all of them: until when, whether an R2T is unanswered, and how many are.
    type Naive = Option<(i64, bool, u32)>;

    fn naive_waiting(tasks: &[Naive], waited_ns: i64) -> Waiting {
        let first = |is_r2t_open| tasks.iter().flatten().filter(|task| task.1 == is_r2t_open).map(|task| task.0).min();
        match (first(false), first(true)) {
            (_, Some(deadline)) if deadline <= waited_ns => Waiting::Initiator,
            (Some(deadline), _) if deadline <= waited_ns => Waiting::Target,
            (target, initiator) => target.into_iter().chain(initiator).min().map_or(Waiting::Nobody, Waiting::Path),
        }
    }

    proptest! {
        #[test]
        fn the_first_deadline_is_the_least_of_all_that_hold(
            steps in prop::collection::vec((0..5_u8, 0..TASKS, 0..12_i64), 1..120),
        ) {
            let mut tasks = Tasks::new(TASKS);
            let mut naive: [Naive; TASKS] = [None; TASKS];
            let mut waited_ns = 0;
            for (step, place, later_ns) in steps {
                waited_ns += later_ns;
                let known = &mut naive[place];
                let number = place as u32;
                match (step, &mut *known) {
                    (0, None) => {
                        tasks.begin(number, waited_ns, ALLOWANCE);
                        *known = Some((waited_ns + 20, false, 0));
                    }
                    (1, _) => {
                        tasks.request(number, waited_ns, ALLOWANCE);
                        if let Some((deadline, false, _)) = known {
                            *deadline = waited_ns + 20;
                        }
                    }
                    (2, _) => {
                        tasks.r2t(number, waited_ns, ALLOWANCE);
                        if let Some((deadline, is_r2t_open, rounds)) = known {
                            *rounds += 1;
                            if *rounds == 1 {
                                (*deadline, *is_r2t_open) = (waited_ns + 5, true);
                            }
                        }
                    }
                    (3, _) => {
                        tasks.burst_sent(number, waited_ns, ALLOWANCE);
                        if let Some((deadline, is_r2t_open, rounds)) = known {
                            *rounds = rounds.saturating_sub(1);
                            if *rounds == 0 {
                                (*deadline, *is_r2t_open) = (waited_ns + 20, false);
                            }
                        }
                    }
                    (4, _) => {
                        tasks.end(number);
                        *known = None;
                    }
                    _ => {}
                }
                prop_assert_eq!(tasks.waiting(waited_ns), naive_waiting(&naive, waited_ns));
                prop_assert_eq!(tasks.count(), naive.iter().flatten().count());
                prop_assert_eq!(tasks.oldest(), naive.iter().position(Option::is_some).map(|place| place as u32));
            }
        }
    }
}
