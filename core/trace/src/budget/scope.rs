//! What a breakdown covers: one connection, or all connections of a session; its events in time order.

use rustc_hash::FxHashMap;

use super::answers::{answered_ns, ended_ns};
use super::change::{Change, Event};
use super::outage::outages;
use super::sweep::Sweep;
use super::waiting::Allowance;
use crate::senders::gap::TIMER_MIN_NS;
use crate::senders::timeline::Timeline;
use crate::tables::in_flight::{self, kind};
use crate::tables::{BudgetRow, Cycles, NULL_NS, NULL_U32, NULL_U64, Rounds, budget_part};

/// A part of the time, instead of the whole from first command to last status.
#[derive(Debug)]
pub struct Between<'a> {
    /// Start.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// Connections with an earlier command, and their sessions: their breakdown starts at `from_ns`.
    pub begun: &'a FxHashMap<u32, u32>,
    /// Whether an outage is kept from its beginning, which may be before `from_ns`.
    pub has_whole_outages: bool,
}

/// When commands end.
#[derive(Debug)]
pub(super) struct Ends<'a> {
    /// The end of each cycle, with or without status.
    pub(super) cycles_ns: &'a [i64],
    /// Connections on which a command without a status is known to be in flight until then, if it was sent no earlier.
    pub(super) known_from_ns: FxHashMap<u32, i64>,
}

impl Ends<'_> {
    /// Whether the status of a command may be among the headers that are cut off: it need not be what was waited for.
    fn may_be_answered(&self, cycles: &Cycles, row: usize) -> bool {
        let from_ns = self.known_from_ns.get(&cycles.connection[row]);
        let is_before = from_ns.is_some_and(|&from_ns| cycles.command_first_ns[row] < from_ns);
        is_before && cycles.status_ns[row] == NULL_NS && answered_ns(cycles, row).is_none()
    }
}

/// One connection, or several as one.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    pub(super) session: u32,
    /// None for a session of several.
    pub(super) connection: u32,
    /// Rows of `cycles`, sorted.
    pub(super) cycles: Vec<u32>,
    /// From when until when there was no session, if it was lost while it was idle.
    pub(super) lost_ns: Option<(i64, i64)>,
    timelines: Vec<&'a Timeline>,
}

/// Rows of `rounds`, sorted by cycle.
pub(super) fn rounds_by_cycle(rounds: &Rounds) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rounds.cycle.len() as u32).collect();
    order.sort_by_key(|&round| rounds.cycle[round as usize]);
    order
}

impl<'a> Scope<'a> {
    pub(super) fn of_connection(timeline: &'a Timeline) -> Self {
        Self { connection: timeline.connection, ..Self::of_session(vec![timeline]) }
    }

    pub(super) fn of_session(timelines: Vec<&'a Timeline>) -> Self {
        Self { session: NULL_U32, connection: NULL_U32, cycles: Vec::new(), lost_ns: None, timelines }
    }

    /// The spans in order, from the first command to the last status; to the next session's first command, if it was lost
    /// while it was idle.
    pub(super) fn budget(
        &self,
        cycles: &Cycles,
        rounds: &Rounds,
        rounds_by_cycle: &[u32],
        ends: &Ends<'_>,
        between: Option<&Between<'_>>,
        mut emit: impl FnMut(BudgetRow),
    ) {
        let span = match between {
            None => self.span(cycles, ends),
            Some(between) => self.span_between(cycles, between),
        };
        let Some((start_ns, end_ns)) = span else { return };
        let mut told_ns = start_ns;
        let mut emit = |mut row: BudgetRow| {
            debug_assert_eq!(row.time_first_ns, told_ns, "the parts sum to the span");
            told_ns = row.time_last_ns;
            if let Some(between) = between
                && !(between.has_whole_outages && row.part == budget_part::OUTAGE && row.time_last_ns > between.from_ns)
            {
                row.time_first_ns = row.time_first_ns.max(between.from_ns);
            }
            if row.time_last_ns > row.time_first_ns {
                emit(row);
            }
        };
        let mut events = Vec::new();
        self.commands(cycles, ends.cycles_ns, end_ns, &mut events);
        self.bursts(cycles, rounds, rounds_by_cycle, &mut events);
        self.lines(start_ns, end_ns, &mut events);
        for (from_ns, to_ns) in self.outages(cycles, rounds, rounds_by_cycle, ends, end_ns) {
            events.push(Event { time_ns: from_ns, change: Change::Out(true), frame: NULL_U64 });
            events.push(Event { time_ns: to_ns, change: Change::Out(false), frame: NULL_U64 });
        }
        // each kind is almost sorted already, so this is little more than a merge
        events.sort_by_key(|event| (event.time_ns, event.change));
        let allowance = |place: u32, time_ns: i64| {
            let connection = cycles.connection[self.cycles[place as usize] as usize];
            let found = self.timelines.iter().find(|timeline| timeline.connection == connection);
            found.map_or(Allowance::default(), |timeline| Allowance::at(timeline, time_ns))
        };
        let row = BudgetRow { session: self.session, connection: self.connection, ..BudgetRow::default() };
        let mut sweep = Sweep::new(start_ns, row.clone(), &self.cycles);
        for event in events {
            sweep.advance(event.time_ns.clamp(start_ns, end_ns), event.frame, &mut emit);
            let allowance = |place| allowance(place, event.time_ns);
            sweep.change(event.change, |place| kind(cycles, self.cycles[place as usize] as usize), allowance);
        }
        sweep.advance(end_ns, NULL_U64, &mut emit);
        sweep.finish(&mut emit);
        if let Some((lost_ns, until_ns)) = self.lost_ns {
            let lost_ns = lost_ns.max(end_ns);
            let (think, outage) = (budget_part::INITIATOR_THINK, budget_part::OUTAGE);
            emit(BudgetRow { time_first_ns: end_ns, time_last_ns: lost_ns, part: think, ..row.clone() });
            let (time_first_ns, time_last_ns, in_flight) = (lost_ns, until_ns, in_flight::DATA);
            emit(BudgetRow { time_first_ns, time_last_ns, part: outage, in_flight, ..row });
        }
        debug_assert_eq!(told_ns, self.lost_ns.map_or(end_ns, |(_, until_ns)| until_ns), "the parts sum to the span");
    }

    /// The times in which nothing progresses.
    fn outages(
        &self,
        cycles: &Cycles,
        rounds: &Rounds,
        rounds_by_cycle: &[u32],
        ends: &Ends<'_>,
        end_ns: i64,
    ) -> Vec<(i64, i64)> {
        let requests = self.cycles.iter().flat_map(|&cycle| {
            let from = rounds_by_cycle.partition_point(|&round| rounds.cycle[round as usize] < cycle);
            let own = rounds_by_cycle[from..].iter().map(|&round| round as usize);
            own.take_while(move |&round| rounds.cycle[round] == cycle).map(|round| rounds.r2t_ns[round])
        });
        outages(cycles, &self.cycles, requests, &self.timelines, |row| {
            if ends.may_be_answered(cycles, row) {
                return cycles.command_first_ns[row];
            }
            ended_ns(cycles, ends.cycles_ns, row, end_ns)
        })
    }

    /// From the first command to the last status, or to the end of a read or write that never got one.
    fn span(&self, cycles: &Cycles, ends: &Ends<'_>) -> Option<(i64, i64)> {
        let start_ns = self.cycles.iter().map(|&cycle| cycles.command_first_ns[cycle as usize]).min()?;
        let ended_ns = |row: usize| {
            // a status that was sent and not seen ends no hang
            if cycles.has_capture_gap[row] || kind(cycles, row) != in_flight::DATA {
                return cycles.status_ns[row];
            }
            if let Some(answered_ns) = answered_ns(cycles, row) {
                return answered_ns;
            }
            let from_ns = ends.known_from_ns.get(&cycles.connection[row]);
            let is_known = from_ns.is_some_and(|&from_ns| cycles.command_first_ns[row] >= from_ns);
            ends.cycles_ns.get(row).copied().filter(|_| is_known).unwrap_or(NULL_NS)
        };
        // a null is the smallest instant of all
        let end_ns = self.cycles.iter().map(|&cycle| ended_ns(cycle as usize)).max()?;
        (end_ns > start_ns).then_some((start_ns, end_ns))
    }

    /// From the first relevant command: one in flight at the start of the time began before it.
    fn span_between(&self, cycles: &Cycles, between: &Between<'_>) -> Option<(i64, i64)> {
        let first_ns = self.cycles.iter().map(|&cycle| cycles.command_first_ns[cycle as usize]).min();
        let is_begun = self.timelines.iter().any(|timeline| between.begun.contains_key(&timeline.connection));
        let start_ns = match (first_ns, is_begun) {
            (Some(first_ns), true) => first_ns.min(between.from_ns),
            (Some(first_ns), false) => first_ns,
            (None, true) => between.from_ns,
            (None, false) => return None,
        };
        (between.to_ns > start_ns).then_some((start_ns, between.to_ns))
    }

    fn commands(&self, cycles: &Cycles, ends_ns: &[i64], end_ns: i64, events: &mut Vec<Event>) {
        let ended_ns = |cycle: usize| ended_ns(cycles, ends_ns, cycle, end_ns);
        let start_ns = |cycle: usize| cycles.command_first_ns[cycle];
        let numbered = (0..).zip(self.cycles.iter().map(|&cycle| cycle as usize));
        let known = numbered.filter(|&(_, cycle)| start_ns(cycle) != NULL_NS && ended_ns(cycle) >= start_ns(cycle));
        let mut push = |time_ns, change, frame| events.push(Event { time_ns, change, frame });
        // what of a request passed the tap after its first packet: the rest of the command, and data that wait for no R2T
        let rest = |cycle: usize| {
            let is_unsolicited = cycles.is_write[cycle] && cycles.r2t_count[cycle] == 0;
            let data = is_unsolicited.then(|| (cycles.data_last_ns[cycle], cycles.data_last_frame.get(cycle)));
            [Some((cycles.command_last_ns[cycle], NULL_U64)), data]
                .map(|each| each.filter(|&(time_ns, _)| time_ns > start_ns(cycle)))
        };
        for (place, cycle) in known.clone() {
            let is_whole = rest(cycle).iter().all(Option::is_none);
            push(start_ns(cycle), Change::Command(place, is_whole), cycles.command_frame.get(cycle));
        }
        for of_data in [0, 1] {
            for (place, cycle) in known.clone() {
                if let Some((time_ns, frame)) = rest(cycle)[of_data] {
                    push(time_ns, Change::Requested(place), frame);
                }
            }
        }
        for (place, cycle) in known.clone() {
            if let Some(sent_ns) = self.sent_first_ns(cycles, cycle) {
                push(sent_ns, Change::Resent(place, true), NULL_U64);
                push(start_ns(cycle), Change::Resent(place, false), NULL_U64);
            }
        }
        for (place, cycle) in known {
            let (status_ns, ended_ns) = (cycles.status_ns[cycle], ended_ns(cycle));
            let is_resent = (start_ns(cycle)..ended_ns).contains(&status_ns);
            let end_ns = if is_resent { status_ns } else { ended_ns };
            push(end_ns, Change::Ended(place), cycles.status_frame.get(cycle));
            if is_resent {
                push(status_ns, Change::Resent(place, true), NULL_U64);
                push(ended_ns, Change::Resent(place, false), NULL_U64);
            }
        }
    }

    /// When a command was sent first that was lost before the tap: it was, where a retransmission timer ended the silence of the
    /// initiator. Where an ACK was lost that the target waited for, that sent its data again, and the answer came before the
    /// command.
    fn sent_first_ns(&self, cycles: &Cycles, cycle: usize) -> Option<i64> {
        let timeline = self.timelines.iter().find(|timeline| timeline.connection == cycles.connection[cycle])?;
        let (silences, start_ns) = (&timeline.silences[0], cycles.command_first_ns[cycle]);
        let place = silences.partition_point(|silence| silence.to_ns < start_ns);
        let silence = silences.get(place).filter(|silence| silence.to_ns == start_ns)?;
        Some(silence.from_ns).filter(|from_ns| start_ns.saturating_sub(*from_ns) >= TIMER_MIN_NS)
    }

    fn bursts(&self, cycles: &Cycles, rounds: &Rounds, rounds_by_cycle: &[u32], events: &mut Vec<Event>) {
        let mut known = Vec::new();
        let asking = (0..).zip(&self.cycles).filter(|&(_, &cycle)| cycles.r2t_count[cycle as usize] > 0);
        for (place, &cycle) in asking {
            let from = rounds_by_cycle.partition_point(|&round| rounds.cycle[round as usize] < cycle);
            let own = rounds_by_cycle[from..].iter().map(|&round| round as usize);
            let own = own.take_while(|&round| rounds.cycle[round] == cycle);
            let is_known =
                |&round: &usize| rounds.r2t_ns[round] != NULL_NS && rounds.data_last_ns[round] >= rounds.r2t_ns[round];
            known.extend(own.filter(is_known).map(|round| (place, round)));
        }
        let is_at_once = |round: usize| rounds.data_last_ns[round] == rounds.r2t_ns[round];
        for &(place, round) in known.iter().filter(|&&(_, round)| !is_at_once(round)) {
            let (time_ns, frame) = (rounds.r2t_ns[round], rounds.r2t_frame[round]);
            events.push(Event { time_ns, change: Change::R2t(place), frame });
        }
        for (place, round) in known {
            let (time_ns, frame) = (rounds.data_last_ns[round], rounds.data_last_frame[round]);
            let change = if is_at_once(round) { Change::Requested(place) } else { Change::BurstSent(place) };
            events.push(Event { time_ns, change, frame });
        }
    }

    fn lines(&self, start_ns: i64, end_ns: i64, events: &mut Vec<Event>) {
        for timeline in &self.timelines {
            for direction in [0, 1] {
                for (from_ns, to_ns) in timeline.busy(direction, start_ns).filter(|(from_ns, to_ns)| from_ns < to_ns) {
                    events.push(Event { time_ns: from_ns, change: Change::Busy(true), frame: NULL_U64 });
                    events.push(Event { time_ns: to_ns, change: Change::Busy(false), frame: NULL_U64 });
                    // no frame ends the last span where one of these comes first after the end
                    if from_ns > end_ns {
                        break;
                    }
                }
            }
            let [to_target, to_initiator] = &timeline.limited;
            // only the initiator waits for R2Ts
            let to_initiator = to_initiator.iter().filter(|wait| wait.part != budget_part::INITIATOR_SERVICE);
            for limited in to_target.iter().chain(to_initiator).filter(|wait| wait.from_ns < wait.to_ns) {
                events.push(Event {
                    time_ns: limited.from_ns,
                    change: Change::Limited(limited.part, true),
                    frame: NULL_U64,
                });
                events.push(Event {
                    time_ns: limited.to_ns,
                    change: Change::Limited(limited.part, false),
                    frame: limited.frame,
                });
            }
        }
    }
}
