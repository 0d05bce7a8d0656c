//! The state of a connection, prefetched for a packet that comes soon: first its structs, then the ends of its queues.

use super::TcpConnection;
use crate::connection::content::Content;
use crate::iscsi::spans::Spans;

impl TcpConnection {
    /// Prefetches its structs.
    pub(crate) fn prefetch(&self) {
        iscsitrace_sys::prefetch_value(self);
        if let Content::Iscsi(iscsi) = &self.content {
            iscsitrace_sys::prefetch_value(&**iscsi);
        }
        if let Some(senders) = self.analysis.here() {
            iscsitrace_sys::prefetch_value(senders);
        }
    }

    /// Prefetches what its structs point to: they must be in the caches by now.
    pub(crate) fn prefetch_queues(&self) {
        self.halves.iter().for_each(|half| half.order.prefetch());
        if let Content::Iscsi(iscsi) = &self.content {
            iscsi.connection.spans.iter().for_each(Spans::prefetch);
            iscsi.connection.prefetch_judge();
        }
        if let Some(senders) = self.analysis.here() {
            senders.prefetch_queues();
        }
    }

    /// Its session, if it is known to have one.
    pub(crate) fn session(&self) -> Option<u32> {
        if let Content::Iscsi(iscsi) = &self.content { iscsi.connection.session } else { None }
    }
}
