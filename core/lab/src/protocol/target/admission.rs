//! Who may connect: limits that one address, or connections that never log in, cannot use up for all others.

use std::net::IpAddr;

use rustc_hash::FxHashMap;

use super::ending::Ending;
use super::guesses::site;
use super::portal::Portal;

/// A login that sends nothing for so long gives way to others.
const IDLE_NS: i64 = 1_000_000_000;

impl Portal {
    /// Whether a new connection from an address may log in. At the limit it takes the place of a connection that is logging in
    /// from the address with most of these: the one that has been silent for longest. An address with as many of its own can
    /// do so only after [`IDLE_NS`] of silence.
    pub(super) fn makes_room(&mut self, now_ns: i64, address: IpAddr) -> bool {
        let limits = &self.settings.limits;
        if self.connections.len() >= limits.connection_count || self.guesses.has_to_wait(now_ns, address) {
            return false;
        }
        if self.half_open.len() < limits.half_open_count {
            return true;
        }
        let mut counts: FxHashMap<IpAddr, usize> = FxHashMap::default();
        let logging_in = || {
            let found = self.half_open.iter().filter_map(|number| Some((*number, self.connections.get(number)?)));
            found.map(|(number, connection)| (number, site(connection.peer.ip()), connection.last_received_ns))
        };
        logging_in().for_each(|(_, site, _)| *counts.entry(site).or_default() += 1);
        let own = counts.get(&site(address)).copied().unwrap_or(0);
        let Some((&greedy, &most)) = counts.iter().max_by_key(|(site, count)| (**count, **site)) else { return false };
        let theirs = logging_in().filter(|(_, site, _)| *site == greedy);
        let Some((number, _, idle_since_ns)) = theirs.min_by_key(|(number, _, since_ns)| (*since_ns, *number)) else {
            return false;
        };
        if 2 * own >= most && now_ns.saturating_sub(idle_since_ns) < IDLE_NS {
            return false;
        }
        self.end_connection(now_ns, number, Ending::GaveWay);
        true
    }
}
