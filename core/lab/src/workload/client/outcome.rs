//! Progress, results and logs of a run.

use super::Client;
use super::results::{
    ConnectionResults, OperationResults, Progress, Results, TargetResults, TaskRecord, TuningProgress,
};
use super::run::Count;
use super::settings::Mode;
use crate::protocol::initiator::Session;
use crate::protocol::pdu_log::PduRecord;

impl Client {
    /// Progress.
    #[must_use]
    pub fn progress(&self, now_ns: i64) -> Progress {
        let mut progress = self.run.progress(now_ns);
        if self.settings.mode == Mode::Ping {
            progress.calls = self.pings.summary().count;
        }
        progress.tuning = self.tuning.as_ref().map(|tuning| {
            let latest = tuning.latest();
            TuningProgress {
                connections: tuning.connection_count() as u16,
                step_count: latest.map_or(0, |(_, count)| count),
                step: latest.map(|(step, _)| step.clone()),
            }
        });
        progress
    }

    /// The connections of a session, since it was last recovered.
    pub(super) fn connection_results(&self, session: usize) -> impl Iterator<Item = ConnectionResults> {
        let client_session = &self.sessions[session];
        client_session.numbers.iter().enumerate().map(move |(index, connection)| ConnectionResults {
            session,
            target: client_session.target,
            connection: *connection,
            cid: index as u16,
            parameters: client_session.session.parameters(index).cloned(),
            joined_ns: client_session.spans.get(index).and_then(|span| span.0),
            left_ns: client_session.spans.get(index).and_then(|span| span.1),
            commands: client_session.counts.get(index).map_or(0, |counts| counts.0),
            bytes: client_session.counts.get(index).map_or(0, |counts| counts.1),
        })
    }

    /// Results so far.
    #[must_use]
    pub fn results(&self) -> Results {
        let run = &self.run;
        let connections = (0..self.sessions.len())
            .flat_map(|index| self.sessions[index].past.iter().cloned().chain(self.connection_results(index)));
        let targets = self.settings.targets.iter().enumerate().map(|(index, target)| TargetResults {
            address: target.address,
            name: target.name.clone(),
            lun: target.lun,
            unit: self
                .sessions
                .iter()
                .find(|client_session| client_session.target == index)
                .and_then(|client_session| client_session.unit.clone()),
        });
        let sessions = self.sessions.iter().map(|client_session| &client_session.session);
        let operation = |count: &Count| OperationResults {
            commands: count.commands,
            bytes: count.bytes,
            latency_ns: count.latencies.summary(),
        };
        Results {
            mode: self.settings.mode,
            elapsed_ns: run.elapsed_ns(),
            started_ns: run.started_ns,
            bytes: run.bytes,
            calls: run.calls_done,
            call_latency_ns: run.call_latencies.summary(),
            read: operation(&run.read),
            write: operation(&run.write),
            ping_ns: self.pings.summary(),
            slices: run.slices.clone(),
            connections: connections.collect(),
            targets: targets.collect(),
            discovered: self.discovered.clone(),
            error_count: self.error_count,
            errors: self.errors.clone(),
            retry_count: run.retry_count,
            data_digest_error_count: sessions.clone().map(Session::data_digest_error_count).sum(),
            verify_error_count: run.verify_error_count,
            first_mismatch: run.first_mismatch,
            tuning: self.tuning.as_ref().map(|tuning| tuning.results(run.started_ns)),
            remarks: self.remarks.iter().chain(sessions.flat_map(|session| session.remarks())).cloned().collect(),
        }
    }

    /// Takes the commands logged so far, if the settings enable the log.
    pub fn take_task_log(&mut self) -> Vec<TaskRecord> {
        std::mem::take(&mut self.run.task_log)
    }

    /// Takes the PDUs logged so far, if the settings enable the log.
    pub fn take_pdu_log(&mut self) -> Vec<PduRecord> {
        (0..self.sessions.len()).for_each(|index| self.collect_pdu_log(index));
        std::mem::take(&mut self.pdu_log)
    }

    pub(super) fn collect_pdu_log(&mut self, index: usize) {
        let client_session = &mut self.sessions[index];
        for mut record in client_session.session.take_pdu_log() {
            record.connection = client_session.numbers.get(record.connection).copied().unwrap_or(record.connection);
            self.pdu_log.push(record);
        }
    }
}
