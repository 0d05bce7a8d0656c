//! Keeps only the time around commands that meet a condition, in bounded memory.
//!
//! ```text
//! condition  which commands are wanted
//! observer   packets -> commands that ended, through the same pass that reads files
//! history    the last packets, and the first ones of each connection
//! ```
//!
//! A command is known to be slow when it ends, or when the clock passes its limit; the packets before it are in the history
//! then. Overlapping windows are merged.

pub mod condition;
mod history;
mod observer;

use std::collections::BTreeMap;

use iscsitrace_trace::reader::Packet;
use iscsitrace_trace::stream::progress::OUTAGE_MIN_NS;
use iscsitrace_wire::frame::segment;

pub use self::condition::Condition;
use self::history::{Beginnings, History};
pub use self::history::{KeptPacket, TCP_INFO};
pub use self::observer::EndedCommand;
use self::observer::Observer;
use crate::error::RecordingError;
use crate::settings::TriggerSettings;

/// Extra time of a window for commands to end.
const QUIET_WITHIN_NS: i64 = 1_000_000_000;
/// The clock was set back if a packet is this much earlier than the one before it.
const STEP_BACK_NS: i64 = 10_000_000_000;
/// Commands that are described at once; of further ones the number is given.
const NAMED_AT_ONCE: usize = 16;
/// Maximum bytes of a comment.
const COMMENT_MAX: usize = 8000;
/// Of a command that ended, before its time.
const TOOK: &str = "took";
/// Part of the memory for the first packets of connections.
const BEGINNINGS_SHARE: usize = 8;

/// Keeps only the time around slow commands.
pub struct Trigger {
    condition: Condition,
    text: String,
    before_ns: i64,
    after_ns: i64,
    observer: Observer,
    history: History,
    beginnings: Beginnings,
    /// Packets up to this time are wanted; none without an open window.
    open_until_ns: Option<i64>,
    /// Whether a command was in flight after the last packet of the window.
    was_busy: bool,
    /// Comments for frames that are still in the history.
    comments: BTreeMap<u64, String>,
    /// The last released frame.
    released: u64,
    /// The last frame, and its time.
    last_frame: u64,
    last_ns: i64,
    /// Commands found.
    pub found_count: u64,
    /// Whether a window began later than wanted, because the memory was full.
    pub has_forgotten: bool,
    ended: Vec<EndedCommand>,
}

impl Trigger {
    /// A new trigger.
    ///
    /// # Errors
    /// The condition is invalid.
    pub fn new(settings: &TriggerSettings) -> Result<Self, RecordingError> {
        let condition = Condition::parse(&settings.condition).map_err(|(place, message)| {
            RecordingError::Settings(format!("trigger, at character {}: {message}", place + 1))
        })?;
        let beginnings_bytes = settings.memory_bytes / BEGINNINGS_SHARE;
        Ok(Self {
            observer: Observer::new(condition.least_no_progress_ns()),
            condition,
            text: settings.condition.clone(),
            before_ns: settings.before_ns,
            after_ns: settings.after_ns,
            history: History::new(settings.memory_bytes - beginnings_bytes),
            beginnings: Beginnings::new(beginnings_bytes),
            open_until_ns: None,
            was_busy: false,
            comments: BTreeMap::new(),
            released: 0,
            last_frame: 0,
            last_ns: i64::MIN,
            found_count: 0,
            has_forgotten: false,
            ended: Vec::new(),
        })
    }

    /// Takes the next packet. `release` gets packets that are wanted, in order, with what is to be said of them;
    /// `found` gets each command that meets the condition, in words.
    ///
    /// # Errors
    /// The error of `release`.
    pub fn take<E>(
        &mut self,
        packet: &Packet<'_>,
        mut release: impl FnMut(&KeptPacket, Option<&str>) -> Result<(), E>,
        mut found: impl FnMut(&str),
    ) -> Result<(), E> {
        let kept = KeptPacket::new(packet);
        if let Ok(segment) = segment(packet.link_type, packet.data, packet.original_length) {
            self.beginnings.take(&kept, &segment);
        }
        self.history.push(kept);
        self.follow_clock(packet.time_ns);
        self.last_frame = packet.frame;
        let mut ended = std::mem::take(&mut self.ended);
        let has_looked = self.observer.packet(packet, &mut ended);
        let first_ns = self.report(ended, has_looked, packet.time_ns, &mut found);
        if first_ns < i64::MAX {
            self.open(first_ns.saturating_sub(self.before_ns), &mut release)?;
        }
        if self.is_open(packet.time_ns) {
            return self.release_all(&mut release);
        }
        self.open_until_ns = None;
        self.forget(packet.time_ns);
        Ok(())
    }

    /// Keeps a sample of TCP_INFO, which is released with the packets around it. It does not advance the clock: packets
    /// before it may still be on their way.
    ///
    /// # Errors
    /// The error of `release`.
    pub fn keep_tcp_info<E>(
        &mut self,
        time_ns: i64,
        line: &str,
        mut release: impl FnMut(&KeptPacket, Option<&str>) -> Result<(), E>,
    ) -> Result<(), E> {
        // it comes before the next packet
        let (frame, data) = (self.last_frame + 1, line.as_bytes().into());
        self.history.push(KeptPacket { frame, time_ns, link_type: TCP_INFO, interface: 0, original_length: 0, data });
        if self.open_until_ns.is_some() { self.release_all(&mut release) } else { Ok(()) }
    }

    /// The clock advanced to `now_ns` without a packet: a command in flight may meet the condition by that.
    ///
    /// # Errors
    /// The error of `release`.
    pub fn tick<E>(
        &mut self,
        now_ns: i64,
        mut release: impl FnMut(&KeptPacket, Option<&str>) -> Result<(), E>,
        mut found: impl FnMut(&str),
    ) -> Result<(), E> {
        if !self.observer.is_due(now_ns) {
            return Ok(());
        }
        let mut ended = std::mem::take(&mut self.ended);
        self.observer.look(now_ns, self.last_frame, &mut ended);
        let first_ns = self.report(ended, true, now_ns, &mut found);
        if first_ns == i64::MAX {
            return Ok(());
        }
        self.open(first_ns.saturating_sub(self.before_ns), &mut release)?;
        self.release_all(&mut release)
    }

    /// At the end of the capture: if it ends in a hang, the packets of the commands in flight are wanted, too. `found`
    /// gets the hang in words.
    ///
    /// # Errors
    /// The error of `release`.
    pub fn finish<E>(
        &mut self,
        now_ns: i64,
        mut release: impl FnMut(&KeptPacket, Option<&str>) -> Result<(), E>,
        mut found: impl FnMut(&str),
    ) -> Result<(), E> {
        let mut ended = std::mem::take(&mut self.ended);
        self.observer.look(now_ns, self.last_frame, &mut ended);
        let first_ns = self.report(ended, false, now_ns, &mut found);
        if first_ns < i64::MAX {
            self.open(first_ns.saturating_sub(self.before_ns), &mut release)?;
            self.release_all(&mut release)?;
        }
        let Some((count, oldest_ns)) = self.observer.open_for(OUTAGE_MIN_NS, now_ns) else { return Ok(()) };
        let commands = if count == 1 { "command has" } else { "commands have" };
        let oldest_ms = milliseconds(now_ns.saturating_sub(oldest_ns));
        let text = format!("{count} {commands} not ended when the capture ended, the oldest after {oldest_ms:.3} ms");
        found(&text);
        self.comment(self.last_frame, &text);
        self.open(oldest_ns.saturating_sub(self.before_ns), &mut release)?;
        self.release_all(&mut release)
    }

    /// Moves an open window with the clock, if that was set back.
    fn follow_clock(&mut self, now_ns: i64) {
        let step_ns = now_ns.saturating_sub(self.last_ns);
        if step_ns < -STEP_BACK_NS && self.last_ns != i64::MIN {
            self.open_until_ns = self.open_until_ns.map(|until_ns| until_ns.saturating_add(step_ns));
        }
        self.last_ns = now_ns;
    }

    /// Reports the commands that ended, and after a look those in flight, that meet the condition; returns when the first
    /// began.
    fn report(
        &mut self,
        mut ended: Vec<EndedCommand>,
        has_looked: bool,
        now_ns: i64,
        found: &mut impl FnMut(&str),
    ) -> i64 {
        ended.retain(|command| self.condition.is_met(command));
        let mut first_ns = self.note(&mut ended, now_ns, TOOK, found);
        if has_looked {
            first_ns = first_ns.min(self.note_open(&mut ended, now_ns, found));
        }
        self.ended = ended;
        first_ns
    }

    /// Reports the commands in flight that meet the condition by now, each once.
    fn note_open(&mut self, open: &mut Vec<EndedCommand>, now_ns: i64, found: &mut impl FnMut(&str)) -> i64 {
        let Some(least_ns) = self.condition.least_time_ns() else { return i64::MAX };
        let condition = &self.condition;
        let is_met = |command: &EndedCommand| condition.is_met_while_open(command);
        self.observer.add_open(least_ns, now_ns, self.last_frame, is_met, open);
        self.note(open, now_ns, "has not ended after", found)
    }

    /// Reports commands and keeps their window open; returns when the first began.
    fn note(&mut self, commands: &mut Vec<EndedCommand>, now_ns: i64, took: &str, found: &mut impl FnMut(&str)) -> i64 {
        let mut first_ns = i64::MAX;
        let unnamed = commands.len().saturating_sub(NAMED_AT_ONCE);
        for (place, command) in commands.drain(..).enumerate() {
            // a hang is reported while it lasts and at its end: one command
            self.found_count += u64::from(!command.was_found);
            first_ns = first_ns.min(command.command_ns);
            let until_ns = command.end_ns.max(now_ns).saturating_add(self.after_ns);
            self.open_until_ns = Some(self.open_until_ns.map_or(until_ns, |open_ns| open_ns.max(until_ns)));
            if place < NAMED_AT_ONCE {
                let has_ended = took == TOOK && command.status.is_none();
                let text = self.describe(&command, if has_ended { "ended without a status after" } else { took });
                found(&text);
                self.comment(command.end_frame, &text);
            }
        }
        if unnamed > 0 {
            let text = format!("{}: {unnamed} more at the same time", self.text);
            found(&text);
            self.comment(self.last_frame, &text);
        }
        first_ns
    }

    /// Adds to the comment of a packet; if that was released already, to the last one's, else to the next one's.
    fn comment(&mut self, frame: u64, text: &str) {
        let kept = self.history.last_frame().filter(|&last| last > self.released).unwrap_or(self.last_frame + 1);
        let frame = if frame > self.released { frame } else { kept };
        let comment = self.comments.entry(frame).or_default();
        if comment.len() + text.len() < COMMENT_MAX {
            if !comment.is_empty() {
                comment.push('\n');
            }
            comment.push_str(text);
        }
    }

    /// Whether a window is open. It closes when no command is in flight, if that happens soon: a reader of the file
    /// would take one without its end for a later command with the same tag.
    fn is_open(&mut self, now_ns: i64) -> bool {
        let is_open = self.open_until_ns.is_some_and(|until_ns| {
            now_ns <= until_ns || (self.was_busy && now_ns <= until_ns.saturating_add(QUIET_WITHIN_NS))
        });
        self.was_busy = is_open && self.observer.is_busy();
        is_open
    }

    /// Removes packets that no window can need: a command that ends from now on is wanted with its whole time.
    fn forget(&mut self, now_ns: i64) {
        self.history.forget(self.observer.open_from_ns().min(now_ns).saturating_sub(self.before_ns));
        if let Some(first) = self.history.first_frame() {
            self.comments = self.comments.split_off(&first);
        }
    }

    /// Opens a window from `from_ns` on: first the start of each connection, as far as not released yet.
    fn open<E>(
        &mut self,
        from_ns: i64,
        release: &mut impl FnMut(&KeptPacket, Option<&str>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.history.forget(from_ns);
        self.has_forgotten |= self.history.is_forgotten_from(from_ns);
        let first = self.history.first_frame().unwrap_or(u64::MAX);
        let mut result = Ok(());
        self.beginnings.release(self.released, first, |kept| {
            if result.is_ok() {
                result = release(kept, None);
            }
        });
        result
    }

    fn release_all<E>(
        &mut self,
        release: &mut impl FnMut(&KeptPacket, Option<&str>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(kept) = self.history.pop() {
            if kept.link_type == TCP_INFO {
                release(&kept, None)?;
                continue;
            }
            let comment = self.comments.remove(&kept.frame);
            self.released = kept.frame;
            release(&kept, comment.as_deref())?;
        }
        Ok(())
    }

    fn describe(&self, command: &EndedCommand, took: &str) -> String {
        let took = format!("{took} {:.3} ms", milliseconds(command.end_ns - command.command_ns));
        let status = match command.status {
            Some(0) | None => String::new(),
            Some(status) => format!(", status {}", condition::status_in_words(status)),
        };
        let blocks = match (command.lba, command.bytes) {
            (Some(lba), Some(bytes)) => format!(" of {bytes} bytes at LBA {lba}"),
            (_, Some(bytes)) => format!(" of {bytes} bytes"),
            _ => String::new(),
        };
        let stall = match command.no_progress_ns {
            0 => String::new(),
            stall_ns => format!(", no progress for {:.3} ms", milliseconds(stall_ns)),
        };
        format!("{}: {}{blocks} {took}{status}{stall}, tag 0x{:08x}", self.text, command.operation, command.tag)
    }
}

fn milliseconds(time_ns: i64) -> f64 {
    time_ns as f64 / 1e6
}

#[cfg(test)]
mod tests;
