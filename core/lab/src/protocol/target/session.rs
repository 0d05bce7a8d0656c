//! One session: its connections, its command window and its tasks.

use std::collections::VecDeque;

use iscsitrace_wire::bhs::{LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::FxHashMap;

use super::command::{Command, Handle};
use super::management::Management;
use super::output::Credit;
use super::window::CommandWindow;
use crate::application::ConnectionNumber;
use crate::protocol::keys::Parameters;
use crate::scsi::Nexus;

/// Most tags of dropped tasks that are remembered because their data may still arrive.
const GONE_TAGS: usize = 1024;

/// A PDU that arrived before its turn.
#[derive(Debug)]
pub(super) enum Held {
    /// A SCSI command.
    Command(Handle),
    /// Another PDU.
    Pdu { connection: ConnectionNumber, header: [u8; LENGTH_BYTES], data: Vec<u8> },
    /// A placeholder that only consumes its CmdSN.
    Nothing,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    pub tsih: u16,
    pub initiator_name: String,
    pub isid: [u8; 6],
    /// Index of its target, and its nexus; none in a discovery session.
    pub target: Option<usize>,
    pub nexus: Option<Nexus>,
    /// Negotiated parameters of the session.
    pub parameters: Parameters,
    /// CID and number of each connection.
    pub connections: Vec<(u16, ConnectionNumber)>,
    pub window: CommandWindow<Held>,
    pub commands: Vec<Command>,
    free: Vec<u16>,
    by_tag: FxHashMap<u32, u16>,
    next_serial: u32,
    next_transfer: u16,
    /// Bytes of data that wait for the turn of their commands.
    pub early_bytes: usize,
    gone: VecDeque<u32>,
    pub managements: Vec<Management>,
}

impl Session {
    pub fn new(
        tsih: u16,
        initiator_name: String,
        isid: [u8; 6],
        parameters: Parameters,
        exp_cmd_sn: SerialNumber,
        depth: u32,
    ) -> Self {
        Self {
            tsih,
            initiator_name,
            isid,
            target: None,
            nexus: None,
            parameters,
            connections: Vec::new(),
            window: CommandWindow::new(exp_cmd_sn, depth),
            commands: Vec::new(),
            free: Vec::new(),
            by_tag: FxHashMap::default(),
            next_serial: 0,
            next_transfer: 0,
            early_bytes: 0,
            gone: VecDeque::new(),
            managements: Vec::new(),
        }
    }

    /// Opens a slot for a command that arrived.
    pub fn open(
        &mut self,
        connection: ConnectionNumber,
        header: [u8; LENGTH_BYTES],
        record: Option<usize>,
    ) -> Option<Handle> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u16::try_from(self.commands.len()).ok().filter(|slot| *slot < u16::MAX)?;
                self.commands.push(Command::new());
                slot
            }
        };
        self.next_serial = self.next_serial.wrapping_add(1);
        let command = self.commands.get_mut(usize::from(slot))?;
        command.open(connection, header, record);
        command.serial = self.next_serial;
        self.by_tag.insert(command.initiator_task_tag(), slot);
        Some(Handle { slot, serial: self.next_serial })
    }

    /// A command, if it still exists.
    pub fn command(&mut self, handle: Handle) -> Option<&mut Command> {
        let command = self.commands.get_mut(usize::from(handle.slot))?;
        (command.is_open && command.serial == handle.serial).then_some(command)
    }

    /// The command with this Initiator Task Tag.
    pub fn by_tag(&self, initiator_task_tag: u32) -> Option<Handle> {
        let slot = *self.by_tag.get(&initiator_task_tag)?;
        Some(Handle { slot, serial: self.commands.get(usize::from(slot))?.serial })
    }

    /// The command that may have this Target Transfer Tag.
    pub fn by_transfer(&self, target_transfer_tag: u32) -> Option<Handle> {
        let slot = (target_transfer_tag & 0xffff) as u16;
        let command = self.commands.get(usize::from(slot)).filter(|command| command.is_open)?;
        Some(Handle { slot, serial: command.serial })
    }

    /// A new Target Transfer Tag for a command: a count, then its slot, which is never 0xffff.
    pub fn transfer_tag(next_transfer: &mut u16, slot: u16) -> u32 {
        *next_transfer = next_transfer.wrapping_add(1);
        u32::from(*next_transfer) << 16 | u32::from(slot)
    }

    /// A command and the count of Target Transfer Tags.
    pub fn command_and_transfer(&mut self, handle: Handle) -> Option<(&mut Command, &mut u16)> {
        let command = self.commands.get_mut(usize::from(handle.slot))?;
        (command.is_open && command.serial == handle.serial).then_some((command, &mut self.next_transfer))
    }

    /// Every open command.
    pub fn handles(&self) -> Vec<Handle> {
        let open = self.commands.iter().enumerate().filter(|(_, command)| command.is_open);
        open.filter_map(|(slot, command)| Some(Handle { slot: u16::try_from(slot).ok()?, serial: command.serial }))
            .collect()
    }

    /// Closes a command: its slot is free.
    pub fn close(&mut self, handle: Handle) {
        let Some(command) = self.command(handle) else { return };
        command.is_open = false;
        command.task = None;
        let (tag, early) = (command.initiator_task_tag(), command.early.len());
        command.early.clear();
        self.early_bytes = self.early_bytes.saturating_sub(early);
        if self.by_tag.get(&tag) == Some(&handle.slot) {
            self.by_tag.remove(&tag);
        }
        self.free.push(handle.slot);
    }

    /// Remembers the tags of a dropped command, for which data may still arrive.
    pub fn remember(&mut self, handle: Handle) {
        let Some(command) = self.command(handle) else { return };
        let mut tags: Vec<u32> = command.data_out.tags().collect();
        if command.data_out.is_unsolicited_open() {
            tags.push(command.initiator_task_tag());
        }
        for tag in tags {
            if self.gone.len() >= GONE_TAGS {
                self.gone.pop_front();
            }
            self.gone.push_back(tag);
        }
    }

    /// Whether a Data-Out belongs to a dropped task.
    pub fn is_gone(&self, initiator_task_tag: u32, target_transfer_tag: u32) -> bool {
        let tag = if target_transfer_tag == RESERVED_TAG { initiator_task_tag } else { target_transfer_tag };
        self.gone.contains(&tag)
    }

    /// Whether a pending task management function ends this command.
    pub fn is_cleared(&mut self, handle: Handle) -> bool {
        let Some(command) = self.command(handle) else { return false };
        let (lun, cmd_sn, is_immediate) = (command.lun(), command.cmd_sn(), command.is_immediate());
        let is_before = |management: &Management| cmd_sn.is_before(management.cmd_sn) && !is_immediate;
        self.managements.iter().any(|management| management.covers(lun) && is_before(management))
    }

    /// A connection is gone: drops its functions, and returns their credit.
    pub fn drop_managements(&mut self, number: ConnectionNumber) {
        let gone = self.managements.extract_if(.., |management| management.connection == number);
        gone.filter(|management| management.credit == Credit::Window).for_each(|_| self.window.release());
    }

    /// A Data-Out for a dropped task arrived; task management functions may wait for the final one.
    pub fn answer_gone(&mut self, target_transfer_tag: u32, is_final: bool) {
        if is_final {
            for management in &mut self.managements {
                management.tags.retain(|tag| *tag != target_transfer_tag);
            }
        }
    }
}
