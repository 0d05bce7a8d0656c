//! A target portal in memory: the target's side of iSCSI at ErrorRecoveryLevel 0 (RFC 7143), without I/O and clock.
//!
//! ```text
//! settings, delay, fault     what a user sets
//! portal                     connections, time, endings: the Application
//! login_phase                who may come in, to which session
//! receive                    bytes -> PDUs; whose turn a PDU is: window
//! deliver, transfer          SCSI commands until they have a status: command, data_out
//! nop, text_request, logout, task_management   the other requests
//! transmit                   what a system call sends: output
//! connection, session, management   what is kept of each
//! log, ending                what happened
//! ```
//!
//! A world gives it connections, bytes and the time ([`crate::application::Application`]); it gives back bytes, and a
//! log. What commands do is told by [`crate::scsi`].

mod command;
mod connection;
mod data_out;
mod delay;
mod deliver;
mod ending;
mod fault;
mod log;
mod login_phase;
mod logout;
mod management;
mod nop;
mod output;
mod portal;
mod receive;
mod session;
mod settings;
mod task_management;
mod text_request;
mod transfer;
mod transmit;
mod window;

pub use delay::{ServiceDelay, ServiceOrder};
pub use ending::Ending;
pub use fault::{Fault, FaultOperation, FaultRule};
pub use log::{ConnectionRecord, PortalCounters, PortalLog, TaskEnd, TaskRecord};
pub use portal::{InvalidPortal, Portal};
pub use settings::{ChapSettings, Limits, PortalSettings, R2tOrder, StatusDelivery};
