//! Two endpoints over a naive pipe.
#![allow(clippy::unwrap_used)]

mod acknowledgments;
mod growth;
mod handshake;
mod hostile;
mod linux;
mod loss;
mod pipe;
mod scoreboard;
mod transfer;
mod window;
