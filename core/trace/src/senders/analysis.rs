//! Where the analysis of a connection's senders is.

use serde::{Deserialize, Serialize};

use super::SenderPair;
use super::apart::Apart;
use super::early::Early;
use super::observation::Observation;
use super::timeline::{Hosts, Timeline};
use crate::tables::Tables;

/// The analysis of the senders of one connection.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub enum Analysis {
    /// It is not wanted, or the connection is not iSCSI.
    #[default]
    None,
    /// It begins with the first payload.
    Early(Early),
    /// Here.
    Here(Box<SenderPair>),
    /// In the thread, with this key.
    Apart(u32),
}

impl Analysis {
    /// The analysis, if it is here.
    pub fn here(&self) -> Option<&SenderPair> {
        if let Self::Here(senders) = self { Some(senders) } else { None }
    }

    /// The same, to change it.
    pub fn here_mut(&mut self) -> Option<&mut SenderPair> {
        if let Self::Here(senders) = self { Some(senders) } else { None }
    }

    /// Begins it before a packet, if that has payload, or so many came without.
    #[inline]
    pub fn begin_with(&mut self, has_payload: bool, connection: u32, apart: &mut Apart) {
        if let Self::Early(early) = self
            && (has_payload || early.is_full())
        {
            let early = std::mem::take(early);
            *self = match apart.running() {
                Some(thread) => Self::Apart(thread.begin(connection, early)),
                None => Self::Here(early.begin(connection)),
            };
        }
    }

    /// Processes a packet. Captured copies and packets of other streams are not passed in.
    #[inline]
    pub fn observe(&mut self, seen: &Observation, apart: &mut Apart) {
        match self {
            Self::None => {}
            Self::Early(early) => early.keep(seen),
            Self::Here(senders) => senders.observe(seen),
            Self::Apart(key) => {
                if let Some(thread) = apart.running() {
                    thread.observe(*key, seen);
                }
            }
        }
    }

    /// Ends it with its connection: its rows go to the tables. Returns its timeline, if it is here.
    pub fn end(
        &mut self,
        is_client_initiator: bool,
        hosts: Hosts,
        tables: &mut Tables,
        apart: &mut Apart,
    ) -> Option<Timeline> {
        match std::mem::take(self) {
            Self::Here(senders) => Some(senders.end(is_client_initiator, hosts, tables)),
            Self::Apart(key) => {
                apart.running()?.end(key, is_client_initiator, hosts);
                None
            }
            Self::None | Self::Early(_) => None,
        }
    }

    /// Cancels it: the connection is not iSCSI.
    #[cold]
    pub fn cancel(&mut self, apart: &mut Apart) {
        if let Self::Apart(key) = std::mem::take(self)
            && let Some(thread) = apart.running()
        {
            thread.cancel(key);
        }
    }
}
