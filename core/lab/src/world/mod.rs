//! Worlds: they move the bytes of applications, and have the clock.
//!
//! ```text
//! sockets    the kernel's TCP, on this machine's clock: one thread and epoll
//! threads    the same by blocking threads, two for each connection
//! tap        the link between two network namespaces, on this machine's clock
//! simulated  our TCP and link, in virtual time
//!
//! clock, socket_settings, receiving, cpu   shared by those in real time
//! ```

mod clock;
pub mod cpu;
pub mod receiving;
pub mod simulated;
pub mod socket_settings;
pub mod sockets;
pub mod tap;
pub mod threads;
