//! The login phase of a connection, both sides (RFC 7143 section 6.3).
//!
//! ```text
//! initiator                                target
//!   InitiatorLogin::new -> request     ->    TargetLogin::receive -> an answer: always one response
//!   receive(response) -> a request     ->    ...
//!   ... until Step::Done               <-    ... until Outcome::Done, or Outcome::Failed: send, then close
//! ```
//!
//! Both state machines exchange [`LoginRequest`] and [`LoginResponse`], which hold the fields of the login phase. The
//! caller handles common fields (Initiator Task Tag, CmdSN, StatSN) and the login timeout. Everything that a peer sends
//! is bounded: text, keys, rounds.

mod directory;
mod failure;
mod initiator;
mod logged_in;
mod names;
mod pdu;
mod received_keys;
mod security;
mod settings;
mod target;
#[cfg(test)]
mod tests;

pub use directory::{Admission, Directory, SessionPlace, Wanted};
pub use failure::LoginFailure;
pub use initiator::{InitiatorLogin, LoginError, Redirection, Step};
pub use iscsitrace_wire::login_status::LoginStatus;
pub use logged_in::LoggedIn;
pub use names::SessionType;
pub use pdu::{LoginRequest, LoginResponse, Stage};
pub use security::Authentication;
pub use settings::{InitiatorLoginSettings, InvalidSettings, SessionIdentity};
pub use target::{Answer, Outcome, TargetLogin};
