//! Who moves the bytes of applications, and tells them the time.
//!
//! ```text
//! sockets    the kernel's TCP, on this machine's clock
//! tap        the link between two network namespaces, on this machine's clock
//! simulated  our TCP and link, in virtual time
//! lateness   how late a world in real time was
//! ```

pub mod lateness;
pub mod simulated;
pub mod sockets;
pub mod tap;
