//! The commands in flight: who must act, and until when the RTT explains the wait.
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
        let answer_ns = to_initiator_ns;
        let next = timeline.excess.partition_point(|&(start_ns, _)| start_ns <= time_ns);
        let window = next.checked_sub(1).and_then(|place| timeline.excess.get(place));
        if let Some(&(_, excess_ns)) = window.filter(|&&(start_ns, _)| time_ns.saturating_sub(start_ns) < WINDOW_NS) {
            let far = if to_target_ns >= to_initiator_ns { &mut to_target_ns } else { &mut to_initiator_ns };
            *far = far.map(|rtt_ns| rtt_ns.saturating_add(excess_ns));
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
    /// Of `in_flight`.
    kind: u8,
}

/// Who must act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nobody: no command is in flight.
    Nobody,
    /// The network, until that waited time.
    Path(i64),
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
    unmeasured_count: usize,
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
            unmeasured_count: 0,
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

    /// A command ended.
    pub(super) fn end(&mut self, place: u32) {
        let Some(command) = self.command(place) else { return };
        command.is_outstanding = false;
        let (is_unmeasured, kind) = (command.deadline == UNMEASURED, command.kind);
        self.unmeasured_count -= usize::from(is_unmeasured);
        self.outstanding_count -= 1;
        self.kinds.count(kind, false);
    }

    /// Who must act at this waited time.
    pub(super) fn waiting(&mut self, waited_ns: i64) -> Waiting {
        let target = first(&mut self.on_target, &self.commands, false);
        let initiator = first(&mut self.on_initiator, &self.commands, true);
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

    /// A command, if it is in flight.
    fn command(&mut self, place: u32) -> Option<&mut Command> {
        self.commands.get_mut(place as usize).filter(|command| command.is_outstanding)
    }

    /// From now on the other side must act, or the same one with a new deadline.
    fn turn(&mut self, place: u32, is_r2t_open: bool, deadline: Deadline) {
        let Some(command) = self.command(place) else { return };
        let was_unmeasured = command.deadline == UNMEASURED;
        self.unmeasured_count -= usize::from(was_unmeasured);
        self.wait(place, is_r2t_open, deadline);
    }

    fn wait(&mut self, place: u32, is_r2t_open: bool, deadline: Deadline) {
        let Some(command) = self.command(place) else { return };
        (command.is_r2t_open, command.deadline) = (is_r2t_open, deadline);
        self.unmeasured_count += usize::from(deadline == UNMEASURED);
        let waits = if is_r2t_open { &mut self.on_initiator } else { &mut self.on_target };
        waits.push(Reverse((deadline, place)));
    }
}

/// The first deadline that is not outdated.
fn first(waits: &mut Waits, commands: &[Command], is_r2t_open: bool) -> Option<Deadline> {
    while let Some(&Reverse((deadline, place))) = waits.peek() {
        let holds = |command: &&Command| {
            command.is_outstanding && command.is_r2t_open == is_r2t_open && command.deadline == deadline
        };
        if commands.get(place as usize).filter(holds).is_some() {
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

    const COMMANDS: usize = 6;
    /// Kinds of the commands in turn.
    const KINDS: [u8; 3] = [in_flight::OTHER, in_flight::DATA, in_flight::FLUSH];
    const ALLOWANCE: Allowance = Allowance { to_target_ns: Some(20), to_initiator_ns: Some(5), answer_ns: Some(5) };

    /// A command of the naive model: deadline, whether an R2T is open, and how many are.
    type Naive = Option<(i64, bool, u32)>;

    fn naive_waiting(commands: &[Naive], waited_ns: i64) -> Waiting {
        let first = |is_r2t_open| {
            commands.iter().flatten().filter(|command| command.1 == is_r2t_open).map(|command| command.0).min()
        };
        match (first(false), first(true)) {
            (_, Some(deadline)) if deadline <= waited_ns => Waiting::Initiator,
            (Some(deadline), _) if deadline <= waited_ns => Waiting::Target,
            (target, initiator) => target.into_iter().chain(initiator).min().map_or(Waiting::Nobody, Waiting::Path),
        }
    }

    proptest! {
        #[test]
        fn the_first_deadline_is_the_smallest_valid_one(
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
                        commands.end(number);
                        *known = None;
                    }
                    _ => {}
                }
                prop_assert_eq!(commands.waiting(waited_ns), naive_waiting(&naive, waited_ns));
                prop_assert_eq!(commands.count(), naive.iter().flatten().count());
                let kinds = naive.iter().zip(KINDS.iter().cycle()).filter(|(known, _)| known.is_some());
                prop_assert_eq!(commands.in_flight(), kinds.map(|(_, &kind)| kind).max().unwrap_or(in_flight::NONE));
                prop_assert_eq!(commands.oldest(), naive.iter().position(Option::is_some).map(|place| place as u32));
            }
        }
    }
}
