//! iSCSI as state machines, without sockets, clock or threads (RFC 7143).
//!
//! ```text
//! pdu        stream bytes <-> PDUs; pdu_log: their log
//! breach     rules that a side breaks on purpose
//! keys       offers -> negotiated parameters
//! text       key=value pairs: encoding, splitting, joining
//! login      from the first PDU to the full feature phase; chap: authentication
//! initiator  the initiator's side of a session
//! target     a target portal with its sessions
//! ```

pub mod breach;
pub mod chap;
pub mod initiator;
pub mod keys;
pub mod login;
pub mod pdu;
pub mod pdu_log;
pub mod target;
pub mod text;
