//! A connection that is over, before its row: what no later packet can need is handed over or dropped.
//!
//! ```text
//! both FINs acknowledged, quiet since QUIET_NS    no byte can follow; a packet that comes after all repeats one
//! RST, quiet since QUIET_RESET_NS                 the same, unless the RST was not accepted (RFC 5961): hence the time
//! ```
//!
//! Packets that come later are counted in its row as before. The analysis of its senders does not see them.

use super::TcpConnection;
use crate::connection::content::Content;
use crate::context::Context;
use crate::stream::half::Half;

/// Packets in another order than they were sent come within this time.
const QUIET_NS: i64 = super::AWAITED_NS;
/// A peer that did not accept the RST is heard of within this time: TCP retransmits at most 120 s later (Linux).
const QUIET_RESET_NS: i64 = 120_000_000_000;

impl TcpConnection {
    /// Whether no new byte can come, `now_ns` being the time of another packet.
    pub(crate) fn is_over(&self, now_ns: i64) -> bool {
        let quiet_ns = now_ns.saturating_sub(self.time_last_ns);
        let is_complete = |half: &Half| {
            let acknowledged = half.reassembly.acknowledged();
            half.fin_offset.is_some_and(|end| acknowledged >= end && acknowledged >= half.reassembly.highest())
                && !half.reassembly.has_hole()
        };
        if self.capture_order.waiting_since_ns().is_some() {
            return false;
        }
        quiet_ns > QUIET_NS && self.halves.iter().all(is_complete) || quiet_ns > QUIET_RESET_NS && self.has_rst()
    }

    /// Hands over what is known of its senders, and drops what only a connection under way needs.
    pub(crate) fn settle(&mut self, context: &mut Context) {
        self.is_settled = true;
        self.hand_over(context);
        self.list_keys(context);
        self.halves.iter_mut().for_each(Half::shrink);
        if let Some(iscsi) = self.content.iscsi() {
            iscsi.shrink();
        } else if !self.has_rst() {
            // no byte follows that could show what it is
            self.content = Content::Other;
        }
    }
}
