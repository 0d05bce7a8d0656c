//! Which connections are over, and the order of the rows that they handed over before they were closed.
//!
//! Connections that are over stay open for packets that come late; they hold little (`connection::over`). They are looked
//! for as new ones open, so memory grows with the connections that are under way, and a packet costs nothing.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::connection::TcpConnection;
use crate::context::Context;

/// Fewer connections are not searched.
const SEARCHED_MIN: usize = 64;

/// The connections that are not known to be over.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Settling {
    /// Slot and number of each, if they are searched at all.
    under_way: Option<Vec<(u32, u32)>>,
    /// They are searched once there are so many.
    search_at: usize,
    has_settled: bool,
}

impl Settling {
    /// From now on, connections are searched for those that are over.
    pub(crate) fn begin(&mut self) {
        self.under_way = Some(Vec::new());
        self.search_at = SEARCHED_MIN;
    }

    /// Notes a new connection, opened at `now_ns`, and settles those that are over.
    pub(crate) fn note(
        &mut self,
        (slot, number): (u32, u32),
        now_ns: i64,
        slots: &mut [Option<Box<TcpConnection>>],
        context: &mut Context,
    ) {
        let Some(under_way) = &mut self.under_way else { return };
        under_way.push((slot, number));
        if under_way.len() < self.search_at {
            return;
        }
        under_way.retain(|&(slot, number)| {
            let connection = slots.get_mut(slot as usize).and_then(Option::as_mut);
            let Some(connection) = connection.filter(|connection| connection.number == number) else { return false };
            let is_over = connection.is_over(now_ns);
            if is_over {
                connection.settle(context);
                self.has_settled = true;
            }
            !is_over
        });
        // each is looked at about twice
        self.search_at = (2 * under_way.len()).max(SEARCHED_MIN);
    }

    /// Brings what connections handed over into the order in which they were closed, that of their rows.
    pub(crate) fn sort(&self, closed: &[u32], context: &mut Context) {
        if !self.has_settled {
            return;
        }
        let places: FxHashMap<u32, usize> = closed.iter().copied().zip(0..).collect();
        let place = |connection: u32| places.get(&connection).copied().unwrap_or(usize::MAX);
        context.timelines.sort_by_key(|timeline| place(timeline.connection));
        context.tables.order_connections(place);
    }
}
