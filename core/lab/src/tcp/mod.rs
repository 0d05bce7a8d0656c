//! TCP as a state machine, for the simulated world: one end of one connection, without I/O or a clock.
//!
//! ```text
//! endpoint    what a world calls: connect, receive, write, readable, poll_transmit, poll_timeout ...
//! input       a segment arrives: handshake, acceptability, data, FIN, RST (RFC 9293)
//! output      segments of what is to be sent
//! sender      what may be sent now: windows, loss recovery, timers
//! receiver    bytes in order, the receive window, when to acknowledge
//! congestion  Tahoe, Reno and CUBIC
//! segment     one segment and its options
//! frame       a segment -> an Ethernet frame, for a capture
//! settings    the settings of one end
//! info        the fields of TCP_INFO
//! ```
//!
//! It behaves as Linux 6.1 with default settings, without segmentation offload and pacing. Not implemented: ECN, Fast
//! Open, keep-alive, urgent data, path MTU discovery, simultaneous open, autotuned buffers, TCP small queues and
//! deferral of half-empty bursts. Timers have nanosecond resolution, not ticks.

pub mod congestion;
pub mod endpoint;
pub mod frame;
pub mod info;
mod input;
mod output;
pub mod receiver;
pub mod segment;
pub mod sender;
pub mod settings;
#[cfg(test)]
mod tests;

pub use endpoint::{ConnectionError, Endpoint, Role, State};
pub use info::TcpInfo;
pub use segment::Segment;
pub use settings::{CongestionControl, Settings, SettingsError};
