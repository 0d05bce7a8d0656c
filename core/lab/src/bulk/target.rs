//! The target's end of plain TCP transfers: serves requests on any number of connections until it is stopped.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::blocks::{Receiving, Sending};
use super::message::{REQUEST_BYTES, Request};
use crate::application::{Application, Closed, ConnectionNumber};

/// The state of a connection.
#[derive(Debug)]
enum Stage {
    /// Waits for the rest of the request.
    Asked(Vec<u8>),
    /// Sends blocks; then the initiator closes.
    Sends(Sending),
    /// Receives blocks.
    Receives(Receiving),
    /// All blocks arrived; the report is sent or about to be.
    Reports(Option<Receiving>),
}

/// The target's end.
#[derive(Debug, Default)]
pub struct BulkTarget {
    stages: BTreeMap<ConnectionNumber, Stage>,
    closing: VecDeque<ConnectionNumber>,
    accepted_count: usize,
}

impl BulkTarget {
    /// Transfers in progress.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.stages.len()
    }
}

impl Stage {
    /// The state after these bytes; none when they are not valid.
    fn after(self, now_ns: i64, bytes: &[u8]) -> Option<Self> {
        match self {
            Self::Asked(mut asked) => {
                let (more, rest) = bytes.split_at(bytes.len().min(REQUEST_BYTES - asked.len()));
                asked.extend_from_slice(more);
                let Ok(request) = <&[u8; REQUEST_BYTES]>::try_from(asked.as_slice()) else {
                    return Some(Self::Asked(asked));
                };
                let request = Request::from_bytes(request)?;
                let next = if request.is_write {
                    Self::Receives(Receiving::new(request))
                } else {
                    Self::Sends(Sending::new(request, now_ns))
                };
                if rest.is_empty() { Some(next) } else { next.after(now_ns, rest) }
            }
            Self::Receives(mut receiving) => {
                receiving.receive(now_ns, bytes);
                Some(if receiving.is_over() { Self::Reports(Some(receiving)) } else { Self::Receives(receiving) })
            }
            Self::Sends(_) | Self::Reports(_) => None,
        }
    }
}

impl Application for BulkTarget {
    fn accept(&mut self, _now_ns: i64, _peer: SocketAddr, _local: SocketAddr) -> Option<ConnectionNumber> {
        let number = self.accepted_count;
        self.accepted_count += 1;
        self.stages.insert(number, Stage::Asked(Vec::new()));
        Some(number)
    }

    fn receive(&mut self, now_ns: i64, connection: ConnectionNumber, bytes: &[u8]) {
        let Some(stage) = self.stages.remove(&connection) else { return };
        match stage.after(now_ns, bytes) {
            Some(stage) => {
                self.stages.insert(connection, stage);
            }
            None => self.closing.push_back(connection),
        }
    }

    fn closed(&mut self, _now_ns: i64, connection: ConnectionNumber, _why: Closed) {
        self.stages.remove(&connection);
    }

    fn poll_transmit(&mut self, now_ns: i64, connection: ConnectionNumber, out: &mut Vec<u8>) {
        match self.stages.get_mut(&connection) {
            Some(Stage::Sends(sending)) => sending.poll_transmit(now_ns, out),
            Some(Stage::Reports(received)) => {
                if let Some(received) = received.take() {
                    out.extend_from_slice(&received.report().to_bytes());
                }
            }
            _ => {}
        }
    }

    fn poll_close(&mut self) -> Option<ConnectionNumber> {
        self.closing.pop_front()
    }
}
