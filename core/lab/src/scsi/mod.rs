//! A SCSI device server over disks in memory (SAM-5, SPC-4, SBC-3). It knows nothing of iSCSI, never does I/O, and
//! is instant: the target adds delays.
//!
//! ```text
//!   target                                            device
//!   a session logs in                        ->       nexus_established(port)      returns the Nexus
//!   SCSI Command                             ->       execute(nexus, lun, cdb)     returns the Task
//!     its Expected Data Transfer Length      ->       task.expect_data_out(length) of a write
//!     Data-In, any range, in any order       <-       append_data_in(task, offset, length, out)
//!     immediate data, Data-Out, in any order ->       write_data_out(task, offset, bytes)
//!   data is complete, or no more comes       ->       finish(task)                 returns status and sense
//!   task management                          ->       reset_logical_unit, clear_task_set, reset
//!   after each call: tasks to abort, if any  <-       poll_abort
//!   the session ended                        ->       nexus_lost(nexus)
//! ```
//!
//! A task is a plain value that the target keeps; dropping it aborts it. The data length of a command is known
//! immediately ([`Task::data_in_length`], [`Task::data_out_length`]): the target transfers the smaller of that and the
//! Expected Data Transfer Length, and reports the difference as residual. A refused command has both lengths 0, and its
//! status. Data in is copied directly from the medium when it is fetched; data out is stored directly when it arrives.
//! A command with data in may be finished before its data is fetched.

mod block;
mod capacity;
mod device;
mod execution;
mod field;
mod identity;
mod inquiry;
mod logical_unit;
mod medium;
mod mode;
mod mode_pages;
mod nexus;
mod persistent_reservation;
mod persistent_reserve;
mod provisioning;
mod reservation;
mod sense;
mod settings;
mod sparse;
mod supported;
mod task;

#[cfg(test)]
mod tests;

pub use device::{Abort, Device, Reset};
pub use iscsitrace_wire::sense::SenseKey;
pub use iscsitrace_wire::status::Status;
pub use nexus::{InitiatorPort, Nexus};
pub use sense::Sense;
pub use settings::{DeviceSettings, LogicalUnitSettings, MediumKind, SettingsError};
pub use task::{Completion, Task};
