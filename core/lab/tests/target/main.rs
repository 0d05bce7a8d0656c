//! Conversations of an initiator with the target portal.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod conversation;
mod faults;
mod hostile;
mod legal_sequences;
mod login;
mod management;
mod reads;
mod requests;
mod window;
mod writes;
