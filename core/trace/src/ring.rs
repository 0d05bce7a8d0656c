//! A pass over the captures of a ring that can be left between two of them, and continued from its state elsewhere.
//!
//! The state is that of the pipeline, as bytes. Nothing of it depends on where a capture ends, so the tables are those of one
//! pass over the whole ring.
//!
//! ```text
//! rows     which rows are of a period
//! totals   what was counted before a period
//! period   the ring's time in periods, each with the tables that a diagnosis needs
//! state    all that a pass knows, as bytes
//! ```

mod period;
mod rows;
mod state;
mod totals;

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::pass::{Interrupted, REPORT_EVERY_PACKETS};
use crate::pipeline::Pipeline;
use crate::pipeline::drain::Horizon;
use crate::reader::CaptureInfo;
use crate::reader::sequence::{Input, Progress, Sequence};
use crate::tables::{Tables, Wanted};
pub use period::Period;
use period::Periods;
pub use state::StateError;

/// A row waits that long after the end of its command or request for what may still change it: an ACK, bytes behind a hole, a
/// response.
const PATIENCE_NS: i64 = 600_000_000_000;
/// Packets of an earlier time than others are read at most that much later.
const SETTLE_NS: i64 = 1_000_000_000;

/// The pass.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ring {
    pipeline: Pipeline,
    /// Whether rows leave before the end: those of commands and other exchanges. The tables of TCP and of time are made of all of
    /// a connection, so with one of them they stay.
    is_bounded: bool,
    /// The periods, if they are wanted.
    periods: Option<Box<Periods>>,
    /// Number of the last frame, and its time.
    frame: u64,
    last_time_ns: i64,
    /// The latest time.
    latest_ns: i64,
}

impl Ring {
    /// A pass that has read nothing.
    pub fn new(wanted: Wanted) -> Self {
        let mut pipeline = Pipeline::new(wanted);
        pipeline.settle_early();
        Self {
            pipeline,
            is_bounded: wanted == Wanted { pdus: wanted.pdus, ..Wanted::NONE },
            periods: None,
            frame: 0,
            last_time_ns: i64::MIN,
            latest_ns: i64::MIN,
        }
    }

    /// The same, with the tables of a diagnosis of each period beside its own: of the tables on request only `pdus`, if
    /// `has_pdus`.
    pub fn with_periods(has_pdus: bool) -> Self {
        let ring = Self::new(Wanted { pdus: has_pdus, ..Periods::WANTED });
        Self { is_bounded: true, periods: Some(Box::default()), ..ring }
    }

    /// Continues a pass.
    ///
    /// # Errors
    /// The bytes are not a state, or one of another version.
    pub fn from_state(state: &[u8]) -> Result<Self, StateError> {
        state::read(state)
    }

    /// Writes the state, to continue from.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_state(&self, writer: impl Write) -> io::Result<()> {
        state::write(self, writer)
    }

    /// Reads one capture to its end. One that is empty or unreadable is counted, as in a pass over all of them. `report` is
    /// called now and then; after an error of its own the ring is of no more use. Returns the number of the first frame, and the
    /// metadata.
    ///
    /// # Errors
    /// No packet was read before, and the capture is unreadable or empty; or `report` returned an error.
    pub fn read<E>(
        &mut self,
        input: Input,
        mut report: impl FnMut(&Progress) -> Result<(), E>,
    ) -> Result<(u64, CaptureInfo), Interrupted<E>> {
        let first_frame = self.frame + 1;
        let reached = (self.frame, self.last_time_ns);
        let mut sequence = Sequence::open_after(input, reached, self.pipeline.counters())?;
        let progress = sequence.progress();
        let mut until_report = REPORT_EVERY_PACKETS;
        while let Some(packet) = sequence.next_packet(self.pipeline.counters())? {
            until_report -= 1;
            if until_report == 0 {
                until_report = REPORT_EVERY_PACKETS;
                report(&progress).map_err(Interrupted::Caller)?;
            }
            if let Some(periods) = &mut self.periods
                && periods.is_over(packet.time_ns, self.pipeline.cycles().next_id())
            {
                periods.end(packet.time_ns, &mut self.pipeline);
            }
            if let Some(periods) = &mut self.periods {
                periods.note_packet(packet.time_ns);
            }
            self.pipeline.packet(&packet);
        }
        report(&progress).map_err(Interrupted::Caller)?;
        (self.frame, self.last_time_ns) = sequence.reached();
        let info = sequence.infos().next().cloned().unwrap_or_default();
        self.latest_ns = self.latest_ns.max(info.time_last_ns.unwrap_or(i64::MIN));
        Ok((first_frame, info))
    }

    /// Moves the rows out that can no longer change.
    pub fn take(&mut self) -> Tables {
        if !self.is_bounded {
            return Tables::default();
        }
        // rows of a period stay to its end
        let before_ns = self.periods.as_ref().map_or(i64::MAX, |periods| periods.before_ns());
        let horizon = Horizon {
            until_ns: self.latest_ns.saturating_sub(SETTLE_NS).min(before_ns),
            patience_ns: PATIENCE_NS,
            keep_ns: 0,
            is_endless: false,
            stay: self.periods.as_ref().map(|periods| periods.starts()),
        };
        self.pipeline.drain_final(&horizon).left
    }

    /// The periods that ended since the last call, each once.
    pub fn take_periods(&mut self) -> Vec<Period> {
        self.periods.as_mut().map(|periods| periods.take()).unwrap_or_default()
    }

    /// The period that has not ended yet, as if it ended now; none without packets.
    pub fn open_period(&mut self) -> Option<Period> {
        self.periods.as_ref().and_then(|periods| periods.current(&mut self.pipeline))
    }

    /// All other rows.
    pub fn finish(mut self) -> Tables {
        if let Some(periods) = self.periods.take() {
            periods.leave(&mut self.pipeline);
        }
        self.pipeline.finish()
    }
}
