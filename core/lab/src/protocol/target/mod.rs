//! A target portal in memory: the target's side of iSCSI at ErrorRecoveryLevel 0 (RFC 7143), without I/O or a clock.
//!
//! ```text
//! settings, delay, fault     settings
//! breach                     rules that it breaks on purpose
//! portal                     connections, timers, endings: the Application
//! login_phase                admission, and the session of a connection
//! receive                    bytes -> PDUs; their order: window
//! deliver, transfer          SCSI commands until their status: command, data_out
//! nop, text_request, logout, task_management   the other requests
//! transmit                   bytes of a system call: output
//! connection, session, management   state
//! log, ending                logs
//! ```
//!
//! A world provides connections, bytes and the time ([`crate::application::Application`]); the portal returns bytes and
//! a log. [`crate::scsi`] executes commands.

mod admission;
mod breach;
mod command;
mod connection;
mod data_out;
mod delay;
mod deliver;
mod ending;
mod fault;
mod guesses;
mod injection;
mod log;
mod login_phase;
mod logout;
mod management;
mod nop;
mod output;
mod portal;
mod receive;
mod rule;
mod session;
mod settings;
mod task_management;
mod text_request;
mod transfer;
mod transmit;
mod window;

pub use delay::{ServiceDelay, ServiceOrder};
pub use ending::Ending;
pub use fault::{Fault, FaultOperation, FaultSettings};
pub use log::{ConnectionRecord, PortalCounters, PortalLog, TaskEnd, TaskRecord};
pub use portal::{InvalidPortal, Portal};
pub use rule::TargetRule;
pub use settings::{Limits, PortalSettings, R2tOrder, StatusDelivery};
