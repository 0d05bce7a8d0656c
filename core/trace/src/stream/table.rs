//! Assigns packets to connections.
//!
//! Connections are numbered from 0, as Wireshark's `tcp.stream`. A SYN between known endpoints opens a new connection
//! if its sequence number differs (Wireshark's rule), or if the old connection had a FIN or RST (tshark 4.0 keeps such a
//! SYN in the old stream). So reused ports do not mix streams.

use iscsitrace_wire::frame::Address;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    /// IPv4 or IPv6 address.
    pub address: Address,
    /// TCP port.
    pub port: u16,
}

/// The two ends, the smaller first, so that both directions have the same key.
type Key = (Endpoint, Endpoint);

/// The slots of connections by their endpoints; the caller assigns the slots.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct ConnectionTable {
    slots: FxHashMap<Key, u32>,
    /// The pair of the last packet: the next packet often has the same.
    last: Option<(Endpoint, Endpoint, u32)>,
}

impl ConnectionTable {
    /// The slot of the connection between two ends, if there is one.
    #[inline]
    pub fn find(&mut self, source: Endpoint, destination: Endpoint) -> Option<u32> {
        if let Some((a, b, slot)) = self.last
            && ((a == source && b == destination) || (a == destination && b == source))
        {
            return Some(slot);
        }
        let slot = self.look_up(source, destination)?;
        self.last = Some((source, destination, slot));
        Some(slot)
    }

    /// The same for a packet whose turn is not yet.
    #[inline]
    pub fn look_up(&self, source: Endpoint, destination: Endpoint) -> Option<u32> {
        self.slots.get(&key(source, destination)).copied()
    }

    /// Assigns a slot to the connection between two ends.
    pub fn insert(&mut self, source: Endpoint, destination: Endpoint, slot: u32) {
        self.slots.insert(key(source, destination), slot);
        self.last = Some((source, destination, slot));
    }

    /// Removes the connection between two ends from this slot.
    pub fn remove(&mut self, source: Endpoint, destination: Endpoint, slot: u32) {
        let key = key(source, destination);
        if self.slots.get(&key) == Some(&slot) {
            self.slots.remove(&key);
        }
        self.last = None;
    }
}

fn key(a: Endpoint, b: Endpoint) -> Key {
    if a <= b { (a, b) } else { (b, a) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(last: u8, port: u16) -> Endpoint {
        Endpoint { address: Address::v4([10, 0, 0, last]), port }
    }

    #[test]
    fn both_directions_are_one_connection() {
        let mut table = ConnectionTable::default();
        let (a, b, c) = (endpoint(1, 5000), endpoint(2, 3260), endpoint(1, 5001));
        assert_eq!(table.find(a, b), None);
        table.insert(a, b, 0);
        table.insert(c, b, 1);
        assert_eq!((table.find(b, a), table.find(c, b)), (Some(0), Some(1)));
        table.remove(b, a, 0);
        assert_eq!((table.find(a, b), table.find(b, c)), (None, Some(1)));
    }
}
