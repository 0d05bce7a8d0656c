//! The commands in flight: who must act, and until when the RTT explains the wait.
//!
//! Of several in flight each takes part of the time, so what most of them wait for takes most of it.
//!
//! Deadlines are in waited time, which stands still while the line is busy: what is queued before the line has not left
//! yet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::senders::load::WINDOW_NS;
use crate::senders::timeline::Timeline;
use crate::tables::in_flight;

/// The RTTs that explain a wait; none if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    /// From the tap to the target and back.
    pub(super) to_target_ns: Option<i64>,
    /// From the tap to the initiator and back.
    pub(super) to_initiator_ns: Option<i64>,
    /// The same without queues.
    pub(super) answer_ns: Option<i64>,
}

impl Allowance {
    /// Of both ends together.
    fn path_ns(self) -> Option<i64> {
        Some(self.to_target_ns?.saturating_add(self.to_initiator_ns?))
    }

    /// That of a connection at a time: the path's least RTT, and what its queues added then, on the side where the path
    /// lies.
    pub(super) fn at(timeline: &Timeline, time_ns: i64) -> Self {
        let (mut to_target_ns, mut to_initiator_ns) = (timeline.rtt_to_target_ns, timeline.rtt_to_initiator_ns);
        let mut answer_ns = to_initiator_ns;
        let next = timeline.excess.partition_point(|window| window.time_ns <= time_ns);
        let window = next.checked_sub(1).and_then(|place| timeline.excess.get(place));
        if let Some(window) = window.filter(|window| time_ns.saturating_sub(window.time_ns) < WINDOW_NS) {
            let longer = |rtt_ns: i64| rtt_ns.saturating_add(window.by_ns);
            if to_target_ns >= to_initiator_ns {
                to_target_ns = to_target_ns.map(longer);
            } else {
                to_initiator_ns = to_initiator_ns.map(longer);
                answer_ns = answer_ns.map(|rtt_ns| rtt_ns.saturating_add(window.unloaded_ns));
            }
        }
        Self { to_target_ns, to_initiator_ns, answer_ns }
    }
}

/// Until when the RTT explains a wait, in waited time. An unknown RTT explains nothing and excludes nothing.
type Deadline = i64;

/// One command.
#[derive(Debug, Clone, Copy, Default)]
struct Command {
    is_outstanding: bool,
    is_r2t_open: bool,
    open_rounds: u32,
    deadline: Deadline,
    /// Whether the deadline has passed.
    is_overdue: bool,
    /// Of `in_flight`.
    kind: u8,
}

/// Who must act, for most of the commands in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nobody: no command is in flight.
    Nobody,
    /// The network.
    Path,
    /// The target.
    Target,
    /// The initiator.
    Initiator,
    /// Unknown, because the RTT is unknown.
    Unmeasured,
}

/// Deadlines, the first on top. An outdated one stays until it is on top.
type Waits = BinaryHeap<Reverse<(Deadline, u32)>>;

/// How many of something there are of each kind of command.
#[derive(Debug, Default)]
pub(super) struct Kinds([usize; in_flight::DATA as usize + 1]);

impl Kinds {
    /// One more, or one less.
    pub(super) fn count(&mut self, kind: u8, is_more: bool) {
        if let Some(count) = self.0.get_mut(usize::from(kind)) {
            *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// The strongest kind of which there are any.
    pub(super) fn strongest(&self) -> u8 {
        (in_flight::OTHER..=in_flight::DATA)
            .rev()
            .find(|&kind| self.0.get(usize::from(kind)).is_some_and(|&count| count > 0))
            .unwrap_or(in_flight::NONE)
    }
}

/// The commands of a scope, by index, in the order of their start.
#[derive(Debug)]
pub(super) struct Commands {
    commands: Vec<Command>,
    on_target: Waits,
    on_initiator: Waits,
    /// Those whose deadline has passed: on the target, and on the initiator.
    overdue_counts: [usize; 2],
    unmeasured_count: usize,
    /// Until when the statuses of those that ended, and what the initiator does next, are on the path.
    returning: BinaryHeap<Reverse<Deadline>>,
    /// Indexes of those in flight, the first on top; ended ones stay until they are on top.
    outstanding: BinaryHeap<Reverse<u32>>,
    outstanding_count: usize,
    /// Commands in flight of each kind.
    kinds: Kinds,
}

/// The deadline if the RTT is unknown.
const UNMEASURED: Deadline = i64::MAX;

impl Commands {
    /// Commands that have not begun.
    pub(super) fn new(count: usize) -> Self {
        Self {
            commands: vec![Command::default(); count],
            on_target: Waits::new(),
            on_initiator: Waits::new(),
            overdue_counts: [0; 2],
            unmeasured_count: 0,
            returning: BinaryHeap::new(),
            outstanding: BinaryHeap::new(),
            outstanding_count: 0,
            kinds: Kinds::default(),
        }
    }

    /// Commands in flight.
    pub(super) fn count(&self) -> usize {
        self.outstanding_count
    }

    /// The strongest kind of command in flight.
    pub(super) fn in_flight(&self) -> u8 {
        self.kinds.strongest()
    }

    /// The oldest command in flight.
    pub(super) fn oldest(&mut self) -> Option<u32> {
        while let Some(&Reverse(place)) = self.outstanding.peek() {
            if self.command(place).is_some() {
                return Some(place);
            }
            self.outstanding.pop();
        }
        None
    }

    /// A command begins. One that is not whole yet waits for its initiator, beyond the RTT of the path: the rest of it may be
    /// on its way.
    pub(super) fn begin(&mut self, place: u32, kind: u8, is_whole: bool, waited_ns: i64, allowance: Allowance) {
        if let Some(command) = self.commands.get_mut(place as usize) {
            *command = Command { is_outstanding: true, kind, ..Command::default() };
            self.outstanding.push(Reverse(place));
            self.outstanding_count += 1;
            self.kinds.count(kind, true);
            let within_ns = if is_whole { allowance.to_target_ns } else { allowance.path_ns() };
            self.wait(place, !is_whole, deadline(waited_ns, within_ns));
        }
    }

    /// The initiator has sent everything that the target needs for now.
    pub(super) fn request(&mut self, place: u32, waited_ns: i64, allowance: Allowance) {
        if self.command(place).is_some_and(|command| command.open_rounds == 0) {
            self.turn(place, false, deadline(waited_ns, allowance.to_target_ns));
        }
    }

    /// An R2T arrived.
    pub(super) fn r2t(&mut self, place: u32, waited_ns: i64, allowance: Allowance) {
        let Some(command) = self.command(place) else { return };
        command.open_rounds += 1;
        if command.open_rounds == 1 {
            self.turn(place, true, deadline(waited_ns, allowance.to_initiator_ns));
        }
    }

    /// The burst of an R2T was sent.
    pub(super) fn burst_sent(&mut self, place: u32, waited_ns: i64, allowance: Allowance) {
        let Some(command) = self.command(place) else { return };
        command.open_rounds = command.open_rounds.saturating_sub(1);
        if command.open_rounds == 0 {
            self.turn(place, false, deadline(waited_ns, allowance.to_target_ns));
        }
    }

    /// A command ended, as the tap sees it.
    pub(super) fn end(&mut self, place: u32, waited_ns: i64, allowance: Allowance) {
        self.stop(place);
        let Some(command) = self.command(place) else { return };
        command.is_outstanding = false;
        let kind = command.kind;
        self.outstanding_count -= 1;
        self.kinds.count(kind, false);
        if let Some(answer_ns) = allowance.answer_ns.filter(|&answer_ns| answer_ns > 0) {
            self.returning.push(Reverse(waited_ns.saturating_add(answer_ns)));
        }
    }

    /// Who must act at this waited time, and until when that holds if nothing happens. Of equal numbers of commands those
    /// count that wait for a host. For the initiator a command is in flight until its status arrives, and the next one from
    /// when it is sent: both are on the path.
    pub(super) fn waiting(&mut self, waited_ns: i64) -> (Waiting, Deadline) {
        let next = [false, true].map(|is_r2t_open| self.pass(is_r2t_open, waited_ns));
        let [on_target, on_initiator] = self.overdue_counts;
        let unmeasured = self.unmeasured_count;
        while self.returning.peek().is_some_and(|&Reverse(deadline)| deadline <= waited_ns) {
            self.returning.pop();
        }
        if self.outstanding_count == 0 {
            return (Waiting::Nobody, UNMEASURED);
        }
        let on_path = self.outstanding_count.saturating_sub(on_target + on_initiator + unmeasured);
        let counts = [
            (on_initiator, Waiting::Initiator),
            (on_target, Waiting::Target),
            (unmeasured, Waiting::Unmeasured),
            (on_path + self.returning.len(), Waiting::Path),
        ];
        let most = counts.iter().map(|&(count, _)| count).max();
        let found = counts.iter().find(|&&(count, _)| Some(count) == most);
        let [target, initiator] = next;
        let returned = self.returning.peek().map_or(UNMEASURED, |&Reverse(deadline)| deadline);
        (found.map_or(Waiting::Nobody, |&(_, waiting)| waiting), target.min(initiator).min(returned))
    }

    /// Counts the commands whose deadline passed; returns the next one.
    fn pass(&mut self, is_r2t_open: bool, waited_ns: i64) -> Deadline {
        let waits = if is_r2t_open { &mut self.on_initiator } else { &mut self.on_target };
        while let Some(&Reverse((deadline, place))) = waits.peek() {
            // what is outdated stays until it is on top
            let command = self.commands.get_mut(place as usize).filter(|command| {
                command.is_outstanding
                    && (command.is_r2t_open, command.deadline) == (is_r2t_open, deadline)
                    && !command.is_overdue
            });
            match command {
                Some(_) if deadline > waited_ns => return deadline,
                Some(command) => {
                    command.is_overdue = true;
                    if let Some(count) = self.overdue_counts.get_mut(usize::from(is_r2t_open)) {
                        *count += 1;
                    }
                }
                None => {}
            }
            waits.pop();
        }
        UNMEASURED
    }

    /// A command, if it is in flight.
    fn command(&mut self, place: u32) -> Option<&mut Command> {
        self.commands.get_mut(place as usize).filter(|command| command.is_outstanding)
    }

    /// From now on the other side must act, or the same one with a new deadline.
    fn turn(&mut self, place: u32, is_r2t_open: bool, deadline: Deadline) {
        self.stop(place);
        self.wait(place, is_r2t_open, deadline);
    }

    /// It waits no more.
    fn stop(&mut self, place: u32) {
        let Some(command) = self.command(place) else { return };
        let (side, is_overdue) = (usize::from(command.is_r2t_open), std::mem::take(&mut command.is_overdue));
        let was_unmeasured = command.deadline == UNMEASURED;
        self.unmeasured_count -= usize::from(was_unmeasured);
        if let Some(count) = self.overdue_counts.get_mut(side) {
            *count -= usize::from(is_overdue);
        }
    }

    fn wait(&mut self, place: u32, is_r2t_open: bool, deadline: Deadline) {
        let Some(command) = self.command(place) else { return };
        (command.is_r2t_open, command.deadline) = (is_r2t_open, deadline);
        self.unmeasured_count += usize::from(deadline == UNMEASURED);
        let waits = if is_r2t_open { &mut self.on_initiator } else { &mut self.on_target };
        waits.push(Reverse((deadline, place)));
    }
}

fn deadline(waited_ns: i64, allowed_ns: Option<i64>) -> Deadline {
    allowed_ns.map_or(UNMEASURED, |allowed_ns| waited_ns.saturating_add(allowed_ns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COMMANDS: usize = 6;
    /// Kinds of the commands in turn.
    const KINDS: [u8; 3] = [in_flight::OTHER, in_flight::DATA, in_flight::FLUSH];
    const ALLOWANCE: Allowance = Allowance { to_target_ns: Some(20), to_initiator_ns: Some(5), answer_ns: Some(5) };

    /// A command of the naive model: deadline, whether an R2T is open, and how many are.
    type Naive = Option<(i64, bool, u32)>;

    fn naive_waiting(commands: &[Naive], waited_ns: i64) -> Waiting {
        let count = |of: &dyn Fn(&(i64, bool, u32)) -> bool| commands.iter().flatten().filter(|each| of(each)).count();
        let on_initiator = count(&|each| each.0 <= waited_ns && each.1);
        let on_target = count(&|each| each.0 <= waited_ns && !each.1);
        let on_path = count(&|each| each.0 > waited_ns);
        if on_initiator + on_target + on_path == 0 {
            Waiting::Nobody
        } else if on_path > on_initiator.max(on_target) {
            Waiting::Path
        } else if on_target > on_initiator {
            Waiting::Target
        } else {
            Waiting::Initiator
        }
    }

    #[test]
    fn what_most_commands_wait_for_counts_until_the_next_deadline() {
        let mut commands = Commands::new(3);
        for place in 0..3 {
            commands.begin(place, in_flight::DATA, true, i64::from(place) * 2, ALLOWANCE);
        }
        assert_eq!(commands.waiting(19), (Waiting::Path, 20));
        // one of three is overdue, then two
        assert_eq!(commands.waiting(20), (Waiting::Path, 22));
        assert_eq!(commands.waiting(22), (Waiting::Target, 24));
        commands.end(0, 22, Allowance { answer_ns: Some(0), ..ALLOWANCE });
        assert_eq!(commands.waiting(23), (Waiting::Target, 24), "one of two");
        commands.r2t(1, 23, ALLOWANCE);
        assert_eq!(commands.waiting(23), (Waiting::Path, 24));
        assert_eq!(commands.waiting(28), (Waiting::Initiator, UNMEASURED), "one for each host");
    }

    #[test]
    fn beside_the_target_what_was_answered_is_on_the_path_for_a_round_trip() {
        let beside = Allowance { to_target_ns: Some(0), to_initiator_ns: Some(50), answer_ns: Some(50) };
        let mut commands = Commands::new(4);
        for place in 0..4 {
            commands.begin(place, in_flight::DATA, true, 0, beside);
        }
        assert_eq!(commands.waiting(0).0, Waiting::Target);
        commands.end(0, 10, beside);
        commands.end(1, 10, beside);
        assert_eq!(commands.waiting(10), (Waiting::Target, 60), "two of four");
        commands.end(2, 20, beside);
        assert_eq!(commands.waiting(20), (Waiting::Path, 60));
        assert_eq!(commands.waiting(60), (Waiting::Target, 70));
        commands.end(3, 70, beside);
        assert_eq!(commands.waiting(70).0, Waiting::Nobody, "the sweep knows what follows the last");
    }

    proptest! {
        #[test]
        fn most_commands_and_the_next_deadline_count(
            steps in prop::collection::vec((0..6_u8, 0..COMMANDS, 0..12_i64), 1..120),
        ) {
            let mut commands = Commands::new(COMMANDS);
            let mut naive: [Naive; COMMANDS] = [None; COMMANDS];
            let mut waited_ns = 0;
            for (step, place, later_ns) in steps {
                waited_ns += later_ns;
                let known = &mut naive[place];
                let number = place as u32;
                match (step, &mut *known) {
                    (0, None) => {
                        commands.begin(number, KINDS[place % KINDS.len()], true, waited_ns, ALLOWANCE);
                        *known = Some((waited_ns + 20, false, 0));
                    }
                    (5, None) => {
                        commands.begin(number, KINDS[place % KINDS.len()], false, waited_ns, ALLOWANCE);
                        *known = Some((waited_ns + 20 + 5, true, 0));
                    }
                    (1, _) => {
                        commands.request(number, waited_ns, ALLOWANCE);
                        if let Some((deadline, is_r2t_open, 0)) = known {
                            (*deadline, *is_r2t_open) = (waited_ns + 20, false);
                        }
                    }
                    (2, _) => {
                        commands.r2t(number, waited_ns, ALLOWANCE);
                        if let Some((deadline, is_r2t_open, rounds)) = known {
                            *rounds += 1;
                            if *rounds == 1 {
                                (*deadline, *is_r2t_open) = (waited_ns + 5, true);
                            }
                        }
                    }
                    (3, _) => {
                        commands.burst_sent(number, waited_ns, ALLOWANCE);
                        if let Some((deadline, is_r2t_open, rounds)) = known {
                            *rounds = rounds.saturating_sub(1);
                            if *rounds == 0 {
                                (*deadline, *is_r2t_open) = (waited_ns + 20, false);
                            }
                        }
                    }
                    (4, _) => {
                        commands.end(number, waited_ns, Allowance { answer_ns: None, ..ALLOWANCE });
                        *known = None;
                    }
                    _ => {}
                }
                let later = naive.iter().flatten().map(|each| each.0).filter(|&deadline| deadline > waited_ns).min();
                let expected = (naive_waiting(&naive, waited_ns), later.unwrap_or(UNMEASURED));
                prop_assert_eq!(commands.waiting(waited_ns), expected);
                prop_assert_eq!(commands.count(), naive.iter().flatten().count());
                let kinds = naive.iter().zip(KINDS.iter().cycle()).filter(|(known, _)| known.is_some());
                prop_assert_eq!(commands.in_flight(), kinds.map(|(_, &kind)| kind).max().unwrap_or(in_flight::NONE));
                prop_assert_eq!(commands.oldest(), naive.iter().position(Option::is_some).map(|place| place as u32));
            }
        }
    }
}
