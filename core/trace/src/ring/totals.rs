//! What was counted of each connection before a period: its own counts are what came after.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::counters::Counter;
use crate::tables::{Columns, Connections, CounterRows, NULL_NS, NULL_U64, Senders, Tables};

/// The rows of connections and senders at the end of a period.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Totals {
    connections: Connections,
    senders: Senders,
    /// Commands missing from the capture, by connection.
    missing_commands: FxHashMap<u32, u64>,
}

impl Totals {
    /// Leaves in these tables what came after these totals; returns the new ones.
    pub(super) fn take_from(&self, tables: &mut Tables) -> Self {
        let totals = Self {
            connections: tables.connections.clone(),
            senders: tables.senders.clone(),
            missing_commands: FxHashMap::default(),
        };
        self.take_connections(&mut tables.connections);
        self.take_senders(&mut tables.senders);
        totals
    }

    fn take_connections(&self, now: &mut Connections) {
        let before: FxHashMap<u32, usize> = self.connections.connection.iter().copied().zip(0..).collect();
        for row in 0..now.row_count() {
            let Some(&place) = before.get(&now.connection[row]) else { continue };
            macro_rules! count_after {
                ($($column:ident)*) => { $(
                    now.$column[row] = now.$column[row].saturating_sub(self.connections.$column[place]);
                )* };
            }
            count_after!(packets_to_target stream_bytes_to_target captured_bytes_to_target gap_bytes_to_target
                cut_bytes_to_target explained_bytes_to_target pdu_count_to_target missing_pdu_count_to_target
                digest_errors_to_target retransmitted_packets_to_target retransmitted_bytes_to_target
                retransmitted_syns_to_target retransmitted_fins_to_target reordered_packets_to_target
                copied_packets_to_target);
            count_after!(packets_to_initiator stream_bytes_to_initiator captured_bytes_to_initiator gap_bytes_to_initiator
                cut_bytes_to_initiator explained_bytes_to_initiator pdu_count_to_initiator missing_pdu_count_to_initiator
                digest_errors_to_initiator retransmitted_packets_to_initiator retransmitted_bytes_to_initiator
                retransmitted_syns_to_initiator retransmitted_fins_to_initiator reordered_packets_to_initiator
                copied_packets_to_initiator);
            if now.reordered_packets_to_target[row] == 0 {
                now.reordered_late_to_target_max_ns[row] = NULL_NS;
            }
            if now.reordered_packets_to_initiator[row] == 0 {
                now.reordered_late_to_initiator_max_ns[row] = NULL_NS;
            }
        }
    }

    fn take_senders(&self, now: &mut Senders) {
        let keys = self.senders.connection.iter().copied().zip(self.senders.to_target.iter().copied());
        let before: FxHashMap<(u32, bool), usize> = keys.zip(0..).collect();
        for row in 0..now.row_count() {
            let Some(&place) = before.get(&(now.connection[row], now.to_target[row])) else { continue };
            macro_rules! count_after {
                ($($column:ident)*) => { $(
                    now.$column[row] = now.$column[row].saturating_sub(self.senders.$column[place]);
                )* };
            }
            count_after!(fast_retransmit_count timeout_count tail_probe_count unknown_retransmit_count spurious_count
                recovery_count restart_after_idle_count delayed_ack_wait_count);
            macro_rules! time_after {
                ($($column:ident)*) => { $(
                    if now.$column[row] != NULL_NS && self.senders.$column[place] != NULL_NS {
                        now.$column[row] = now.$column[row].saturating_sub(self.senders.$column[place]).max(0);
                    }
                )* };
            }
            time_after!(window_full_ns zero_window_ns rwnd_limited_ns cwnd_limited_ns sndbuf_limited_ns recovery_ns
                delayed_ack_wait_ns);
            if now.delayed_ack_wait_count[row] == 0 {
                now.delayed_ack_wait_frame[row] = NULL_U64;
            }
            // the same segment as before
            if now.blocked_frame[row] == self.senders.blocked_frame[place]
                && now.blocked_last_ns[row] == self.senders.blocked_last_ns[place]
            {
                (now.blocked_bytes[row], now.blocked_first_ns[row], now.blocked_last_ns[row]) =
                    (NULL_NS, NULL_NS, NULL_NS);
                (now.blocked_frame[row], now.blocked_retransmissions[row]) = (NULL_U64, 0);
                now.is_blocked_by_size[row] = false;
            }
        }
    }

    /// The same for the counter of missing commands, which is computed of the whole ring; the others count the period alone.
    pub(super) fn take_missing(&self, totals: &mut Self, counters: &mut CounterRows) {
        let name = Counter::CommandMissing.definition().name;
        let is_missing: Vec<bool> = counters.name.iter().map(|each| each == name).collect();
        for row in (0..counters.row_count()).filter(|&row| is_missing[row]) {
            let connection = counters.connection[row];
            totals.missing_commands.insert(connection, counters.count[row]);
            let before = self.missing_commands.get(&connection).copied().unwrap_or(0);
            counters.count[row] = counters.count[row].saturating_sub(before);
        }
        let is_kept: Vec<bool> =
            (0..counters.row_count()).map(|row| !is_missing[row] || counters.count[row] > 0).collect();
        counters.retain(&is_kept);
    }
}
