//! The list of all targets.

use crate::{anonymise, capture, endpoint, frame, framer, initiator, live, login_text, packets, pipeline, target};

/// The name of a target, which is also that of its folder of inputs, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 11] = [
    ("anonymise", anonymise::run),
    ("capture", capture::run),
    ("endpoint", endpoint::run),
    ("frame", frame::run),
    ("framer", framer::run),
    ("initiator", initiator::run),
    ("live", live::run),
    ("login_text", login_text::run),
    ("packets", packets::run),
    ("pipeline", pipeline::run),
    ("target", target::run),
];
