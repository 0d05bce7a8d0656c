//! Keeps only the time around commands that meet a condition, in bounded memory.
//!
//! ```text
//! condition  which commands are wanted
//! observer   packets -> commands that ended, through the same pass that reads files
//! history    the last packets, and the first ones of each connection
//! ```
//!
//! A command is known to be slow only when it ends; the packets before it are in the history then. Overlapping windows
//! are merged.

pub mod condition;
mod history;
mod observer;

use std::collections::BTreeMap;

use iscsitrace_trace::reader::Packet;
use iscsitrace_wire::frame::segment;

pub use self::condition::Condition;
pub use self::history::KeptPacket;
use self::history::{Beginnings, History};
pub use self::observer::EndedCommand;
use self::observer::Observer;
use crate::error::RecordingError;
use crate::settings::TriggerSettings;

/// Extra time of a window for commands to end.
const QUIET_WITHIN_NS: i64 = 1_000_000_000;
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
            condition,
            text: settings.condition.clone(),
            before_ns: settings.before_ns,
            after_ns: settings.after_ns,
            observer: Observer::new(),
            history: History::new(settings.memory_bytes - beginnings_bytes),
            beginnings: Beginnings::new(beginnings_bytes),
            open_until_ns: None,
            was_busy: false,
            comments: BTreeMap::new(),
            released: 0,
            found_count: 0,
            has_forgotten: false,
            ended: Vec::new(),
        })
    }

    /// Takes the next packet. `release` gets packets that are wanted, in order, with what is to be pcap_message of them;
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
        let mut ended = std::mem::take(&mut self.ended);
        self.observer.packet(packet, &mut ended);
        let mut first_ns = i64::MAX;
        ended.retain(|command| self.condition.is_met(command));
        for command in ended.drain(..) {
            self.found_count += 1;
            let took = format!("took {:.3} ms", milliseconds(&command));
            first_ns = first_ns.min(self.note(&command, &took, packet, &mut found));
        }
        if let Some(least_ns) = self.condition.least_latency_ns() {
            self.observer.add_open(least_ns, packet, &mut ended);
            ended.retain(|command| self.condition.is_met_while_open(command));
            for command in ended.drain(..) {
                let took = format!("has not ended after {:.3} ms", milliseconds(&command));
                first_ns = first_ns.min(self.note(&command, &took, packet, &mut found));
            }
        }
        self.ended = ended;
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

    /// Reports a command and keeps its window open; returns when it began.
    fn note(&mut self, command: &EndedCommand, took: &str, packet: &Packet<'_>, found: &mut impl FnMut(&str)) -> i64 {
        let text = self.describe(command, took);
        found(&text);
        let until_ns = command.end_ns.max(packet.time_ns).saturating_add(self.after_ns);
        self.open_until_ns = Some(self.open_until_ns.map_or(until_ns, |open_ns| open_ns.max(until_ns)));
        // the packet that completed it, unless it was released already
        let frame = if command.end_frame > self.released { command.end_frame } else { packet.frame };
        let comment = self.comments.entry(frame).or_default();
        if !comment.is_empty() {
            comment.push('\n');
        }
        comment.push_str(&text);
        command.command_ns
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
            let comment = self.comments.remove(&kept.frame);
            self.released = kept.frame;
            release(&kept, comment.as_deref())?;
        }
        Ok(())
    }

    fn describe(&self, command: &EndedCommand, took: &str) -> String {
        let status = match command.status {
            Some(0) => String::new(),
            Some(status) => format!(", status {}", condition::status_in_words(status)),
            None => ", no status".to_owned(),
        };
        let blocks = match (command.lba, command.bytes) {
            (Some(lba), Some(bytes)) => format!(" of {bytes} bytes at LBA {lba}"),
            (_, Some(bytes)) => format!(" of {bytes} bytes"),
            _ => String::new(),
        };
        format!("{}: {}{blocks} {took}{status}, tag 0x{:08x}", self.text, command.operation, command.tag)
    }
}

fn milliseconds(command: &EndedCommand) -> f64 {
    (command.end_ns - command.command_ns) as f64 / 1e6
}

#[cfg(test)]
mod tests;
