//! Arbitrary input through every reader of the core: each target takes any bytes, and panics where a rule is broken.
//!
//! `tests/corpus.rs` runs every target over its committed inputs; `tools/fuzz` has libFuzzer search for others.

mod anonymise;
mod capture;
#[path = "../../trace/tests/conversation/mod.rs"]
mod conversation;
mod endpoint;
mod frame;
mod framer;
mod initiator;
mod live;
mod login_text;
mod packets;
mod pipeline;
mod steps;
mod target;
pub mod targets;
