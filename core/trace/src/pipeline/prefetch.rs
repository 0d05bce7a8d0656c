//! The state of many connections is larger than the caches: it is prefetched while the packets before are processed.
//! With 10,000 connections that saves an eighth of the CPU time.
//!
//! ```text
//! packet        n                 n + 1               n + 2
//! prefetched    structs of n + 2, what those of n + 1 point to
//! ```

use iscsitrace_wire::frame::{LinkType, segment};

use super::Pipeline;
use crate::stream::table::Endpoint;

impl Pipeline {
    /// Whether the state of the open connections is larger than the caches.
    #[inline]
    pub(crate) fn has_many_connections(&self) -> bool {
        self.open_count() >= iscsitrace_sys::PREFETCHED_FROM
    }

    /// Prefetches the state of the connection of a frame that is processed after the next, and what the state of the next
    /// frame's connection points to. The link type is that of a frame before.
    pub(crate) fn prefetch(&mut self, link_type: LinkType, frame: &[u8]) {
        let coming = self.slot_of(link_type, frame);
        let next = std::mem::replace(&mut self.coming, coming);
        let connection = |slot: u32| self.slots.get(slot as usize)?.as_deref();
        if let Some(connection) = next.and_then(connection) {
            connection.prefetch_queues();
            if let Some(session) = connection.session()
                && let Some(state) = self.context.sessions.state(session)
            {
                iscsitrace_sys::prefetch_value(state);
            }
        }
        if let Some(connection) = coming.and_then(connection) {
            connection.prefetch();
        }
    }

    fn slot_of(&self, link_type: LinkType, frame: &[u8]) -> Option<u32> {
        let segment = segment(link_type, frame, 0).ok()?;
        let source = Endpoint { address: segment.source, port: segment.source_port };
        let destination = Endpoint { address: segment.destination, port: segment.destination_port };
        self.table.look_up(source, destination)
    }
}
