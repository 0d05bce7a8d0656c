//! Reports of dropped packets, while the capture goes on and at its end.

use std::time::{Duration, Instant};

use crate::files::InterfaceDescription;
use crate::report::{Event, Progress};

/// Time between two reports of drops.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Reports new drops, at most once per interval.
pub(crate) struct DropReporter {
    reported: Vec<u64>,
    reported_at: Option<Instant>,
}

impl DropReporter {
    /// For that many interfaces, without drops so far.
    pub(crate) fn new(interface_count: usize) -> Self {
        Self { reported: vec![0; interface_count], reported_at: None }
    }

    /// Adds an event for each interface with new drops; the last report does not wait. Returns whether there were any.
    pub(crate) fn report(
        &mut self,
        interfaces: &[InterfaceDescription],
        progress: &mut Progress,
        is_last: bool,
    ) -> bool {
        if !is_last && self.reported_at.is_some_and(|reported_at| reported_at.elapsed() < TOLD_EVERY) {
            return false;
        }
        let mut has_news = false;
        for (described, reported) in interfaces.iter().zip(&mut self.reported) {
            let total = described.counts.dropped + described.counts.dropped_by_interface;
            if total > *reported {
                let interface = described.name.clone();
                progress.events.push(Event::Dropped { interface, count: total - *reported, total });
                *reported = total;
                self.reported_at = Some(Instant::now());
                has_news = true;
            }
        }
        has_news
    }
}
