//! Conversations with the target portal: what an initiator sends, and what it gets.

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
