//! How a connection was closed.

/// The end of a connection, as TCP shows it.
#[derive(Debug, Clone, Copy)]
pub struct Closing {
    /// FIN and RST of both sides.
    pub closes_ns: [Option<i64>; 4],
    /// Its last packet.
    pub last_ns: i64,
}

impl Closing {
    /// When a side closed it, for a command of that time: by the first FIN or RST since.
    pub fn of(&self, begun_ns: i64) -> Option<i64> {
        let closes = || self.closes_ns.into_iter().flatten();
        closes().filter(|&close_ns| close_ns >= begun_ns).min().or_else(|| closes().next().map(|_| begun_ns))
    }
}
