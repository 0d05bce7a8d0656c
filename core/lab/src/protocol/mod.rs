//! iSCSI as state machines, without sockets, clock or threads (RFC 7143).
//!
//! ```text
//! pdu        stream bytes <-> PDUs; pdu_log: where they lay
//! keys       what a side offers -> what is in force
//! text       key=value pairs, written and split
//! login      from the first PDU to the full feature phase; chap: who is who
//! initiator  a session as its initiator sees it
//! target     a target portal with its sessions
//! ```

pub mod chap;
pub mod initiator;
pub mod keys;
pub mod login;
pub mod pdu;
pub mod pdu_log;
pub mod target;
pub mod text;
