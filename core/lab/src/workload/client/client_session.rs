//! One session of a run: its protocol side, its data, and its commands.

use std::net::SocketAddr;

use super::probe::{LogicalUnit, Probe};
use super::results::ConnectionResults;
use super::volume::{Purpose, Volume};
use crate::application::ConnectionNumber;
use crate::protocol::initiator::{Command, Direction, Session};
use crate::workload::dealing::Dealer;

/// The stage of a session.
#[derive(Debug)]
pub(super) enum Stage {
    /// Connections and logins.
    Connecting,
    /// Identifying the logical unit.
    Probing(Box<Probe>),
    /// The work of the mode.
    Ready,
    /// Lost: it waits for the next connection.
    Recovering,
    /// Ended.
    Over,
}

/// What a session beside those of the workload is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FurtherPurpose {
    /// SendTargets.
    Discovery,
    /// A login.
    Login,
}

/// A session beside those of the workload, and the incident that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Further {
    pub purpose: FurtherPurpose,
    pub incident: usize,
}

/// A command of the workload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    /// Index of its call.
    pub call: usize,
    pub is_read: bool,
    pub byte: u64,
    pub length_bytes: u32,
    pub submitted_ns: i64,
    pub tries: u32,
}

#[derive(Debug)]
pub(super) struct ClientSession {
    pub session: Session,
    pub target: usize,
    pub address: SocketAddr,
    pub hop_count: u32,
    pub volume: Volume,
    pub dealer: Dealer,
    pub stage: Stage,
    /// Numbers of its connections in the world.
    pub numbers: Vec<ConnectionNumber>,
    /// Commands in flight, by Initiator Task Tag.
    pub commands: Vec<Option<Pending>>,
    /// Completed commands and their bytes, per connection.
    pub counts: Vec<(u64, u64)>,
    /// When each connection entered the full feature phase, and when it was closed.
    pub spans: Vec<(Option<i64>, Option<i64>)>,
    pub unit: Option<LogicalUnit>,
    pub pings_left: u64,
    pub ping_connection: usize,
    pub ping_sent_ns: i64,
    /// Since when the session is lost.
    pub lost_ns: Option<i64>,
    /// Commands to be submitted again when it is back.
    pub lost_commands: Vec<Pending>,
    /// Connections before the session was last recovered.
    pub past: Vec<ConnectionResults>,
    /// Set for a session that is not of the workload.
    pub further: Option<Further>,
}

impl ClientSession {
    /// The time span of a connection.
    pub(super) fn span(&mut self, connection: usize) -> &mut (Option<i64>, Option<i64>) {
        self.spans.resize(self.spans.len().max(connection + 1), (None, None));
        &mut self.spans[connection]
    }

    /// The first connection, from `first` on, that accepts requests; none when the session is ending.
    pub(super) fn usable_connection(&self, first: usize) -> Option<usize> {
        let count = self.session.connection_count();
        (first..first + count).map(|place| place % count).find(|connection| self.session.is_usable(*connection))
    }

    /// Whether its commands wait: it is lost, or it is over and its end is still to be handled.
    pub(super) fn keeps_commands(&self) -> bool {
        self.lost_ns.is_some() || self.session.is_over() && !matches!(self.stage, Stage::Over)
    }

    /// Sends a command that identifies the logical unit.
    pub(super) fn ask(&mut self, now_ns: i64, command: Command) {
        let connection = self.usable_connection(0);
        if let Some(tag) = connection.and_then(|connection| self.session.submit(now_ns, connection, command)) {
            self.volume.begin(tag, Purpose::Answer);
        }
    }

    /// Submits a command of the workload; false when no connection accepts it.
    pub(super) fn submit(&mut self, now_ns: i64, lun: [u8; 8], purpose: Purpose, pending: Pending) -> bool {
        let block_length = self.unit.as_ref().map_or(512, |unit| unit.block_length_bytes);
        let (lba, blocks) = (pending.byte / u64::from(block_length), pending.length_bytes / block_length);
        let direction = if pending.is_read { Direction::Read } else { Direction::Write };
        let cdb = cdb(pending.is_read, lba, blocks);
        let command = Command { lun, cdb, direction, length_bytes: pending.length_bytes };
        while let Some(connection) = self.dealer.deal() {
            let Some(tag) = self.session.submit(now_ns, connection, command) else {
                self.dealer.retire(connection);
                continue;
            };
            self.volume.begin(tag, purpose);
            let index = tag as usize;
            if self.commands.len() <= index {
                self.commands.resize(index + 1, None);
            }
            self.commands[index] = Some(pending);
            return true;
        }
        false
    }
}

/// READ or WRITE, (10) if its fields can hold the numbers, else (16).
fn cdb(is_read: bool, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    match (u32::try_from(lba), u16::try_from(blocks)) {
        (Ok(lba), Ok(blocks)) => {
            cdb[0] = if is_read { 0x28 } else { 0x2a };
            cdb[2..6].copy_from_slice(&lba.to_be_bytes());
            cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        }
        _ => {
            cdb[0] = if is_read { 0x88 } else { 0x8a };
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        }
    }
    cdb
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::cdb::decode;

    use super::cdb;

    #[test]
    fn the_cdb_is_the_shortest_that_holds_the_numbers() {
        for (is_read, lba, blocks, name) in [
            (true, 7, 1, "READ(10)"),
            (false, 0xffff_ffff, 0xffff, "WRITE(10)"),
            (true, 1 << 32, 1, "READ(16)"),
            (false, 0, 0x1_0000, "WRITE(16)"),
        ] {
            let read = decode(&cdb(is_read, lba, blocks), None);
            assert_eq!((read.name, read.lba, read.block_count), (name, Some(lba), Some(blocks)));
        }
    }
}
