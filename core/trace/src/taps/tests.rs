//! Captures made packet by packet, whose truth is known, and random ones against a join that holds everything.

mod capture;
mod doubts;
mod hostile;
mod recut;
mod stories;
