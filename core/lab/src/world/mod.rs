//! Who moves the bytes of applications, and tells them the time.
//!
//! ```text
//! sockets    the kernel's TCP, on this machine's clock: one thread that waits for whatever comes
//! threads    the same by threads that block, two for each connection
//! tap        the link between two network namespaces, on this machine's clock
//! simulated  our TCP and link, in virtual time
//!
//! clock, socket_settings, receiving, cpu   what sockets and threads have alike
//! lateness   how late a world in real time was
//! ```

mod clock;
pub mod cpu;
pub mod lateness;
pub mod receiving;
pub mod simulated;
pub mod socket_settings;
pub mod sockets;
pub mod tap;
pub mod threads;
