//! The initiator's end of plain TCP transfers: opens the connections, requests a transfer on each, and closes it when
//! it is complete. A connection that ends early is an error of the run.

use std::collections::VecDeque;

use super::blocks::{Receiving, Sending};
use super::message::{REPORT_BYTES, Report, Request, steady_bytes_per_s};
use super::results::{BulkConnection, BulkResults};
use crate::application::{Application, Closed, ConnectionNumber, Dial};
use crate::workload::client::results::{Progress, TargetResults};
use crate::workload::client::settings::{ClientSettings, InvalidClient};
use crate::workload::settings::{InvalidWorkload, Operation};

/// The state of a connection.
#[derive(Debug)]
enum Stage {
    /// To be opened.
    Waiting,
    /// Being opened.
    Dialed,
    /// The request is to be sent.
    Asks,
    /// Blocks are received.
    Receives(Receiving),
    /// Blocks are sent; the part of the report received so far.
    Sends(Sending, Vec<u8>),
    /// Ended.
    Over,
}

#[derive(Debug)]
struct Transfer {
    target: usize,
    request: Request,
    stage: Stage,
    started_ns: Option<i64>,
    ended_ns: i64,
    report: Option<Report>,
}

/// The initiator's end. Connections are numbered target by target, and share the bytes evenly.
#[derive(Debug)]
pub struct BulkInitiator {
    settings: ClientSettings,
    transfers: Vec<Transfer>,
    closing: VecDeque<ConnectionNumber>,
    errors: Vec<String>,
}

impl BulkInitiator {
    /// A run that begins with the first call into it. It uses the targets of the settings, and of the workload the
    /// operation, bytes, time, connections and block size, which is the size of a system call.
    ///
    /// # Errors
    /// Settings that are not valid.
    pub fn new(settings: ClientSettings) -> Result<Self, InvalidClient> {
        let workload = &settings.workload;
        if !workload.operation.is_socket() {
            return Err(InvalidWorkload::Operation("socket_read or socket_write").into());
        }
        workload.validate()?;
        if settings.targets.is_empty() {
            return Err(InvalidClient::NoTarget);
        }
        let per_target = usize::from(workload.connections);
        let count = (settings.targets.len() * per_target) as u64;
        if let Some(bytes) = workload.total_bytes.filter(|&bytes| bytes < count) {
            let bounds = "at least a byte for each connection";
            return Err(InvalidWorkload::OutOfBounds { name: "total_bytes", value: bytes.to_string(), bounds }.into());
        }
        let transfers = (0..count).map(|number| Transfer {
            target: number as usize / per_target,
            request: Request {
                is_write: workload.operation == Operation::SocketWrite,
                block_bytes: workload.block_size_bytes,
                limit_bytes: workload
                    .total_bytes
                    .map_or(u64::MAX, |bytes| bytes / count + u64::from(number < bytes % count)),
                limit_ns: workload.duration_ns.unwrap_or(i64::MAX),
            },
            stage: Stage::Waiting,
            started_ns: None,
            ended_ns: 0,
            report: None,
        });
        Ok(Self { transfers: transfers.collect(), closing: VecDeque::new(), errors: Vec::new(), settings })
    }

    /// Ends the run: sending ends with the next block, receiving immediately.
    pub fn stop(&mut self, now_ns: i64) {
        for number in 0..self.transfers.len() {
            match &mut self.transfers[number].stage {
                Stage::Sends(sending, _) => sending.stop(),
                Stage::Over => {}
                Stage::Waiting => self.transfers[number].stage = Stage::Over,
                Stage::Dialed | Stage::Asks | Stage::Receives(_) => self.end_transfer(now_ns, number),
            }
        }
    }

    /// Progress.
    #[must_use]
    pub fn progress(&self, now_ns: i64) -> Progress {
        let started_ns = self.transfers.iter().filter_map(|transfer| transfer.started_ns).min();
        Progress {
            is_running: started_ns.is_some(),
            bytes: self.transfers.iter().map(Transfer::bytes).sum(),
            calls: 0,
            total_bytes: self.settings.workload.total_bytes,
            elapsed_ns: started_ns.map_or(0, |started_ns| now_ns.saturating_sub(started_ns)),
            duration_ns: self.settings.workload.duration_ns,
            tuning: None,
        }
    }

    /// Results so far.
    #[must_use]
    pub fn results(&self) -> BulkResults {
        let started_ns = self.transfers.iter().filter_map(|transfer| transfer.started_ns).min();
        let ended_ns = self.transfers.iter().map(|transfer| transfer.ended_ns).max();
        let connections: Vec<BulkConnection> = (0..)
            .zip(&self.transfers)
            .map(|(connection, transfer)| BulkConnection {
                target: transfer.target,
                connection,
                bytes: transfer.report.map_or(0, |report| report.bytes),
                elapsed_ns: transfer.report.map_or(0, |report| report.last_ns.saturating_sub(report.first_ns)),
                steady_bytes_per_s: steady_bytes_per_s(transfer.report.iter()),
            })
            .collect();
        let targets = self.settings.targets.iter().map(|target| TargetResults {
            address: target.address,
            name: None,
            lun: target.lun,
            unit: None,
        });
        BulkResults {
            mode: "socket",
            elapsed_ns: started_ns
                .zip(ended_ns)
                .map_or(0, |(started_ns, ended_ns)| ended_ns.saturating_sub(started_ns).max(0)),
            started_ns,
            bytes: connections.iter().map(|connection| connection.bytes).fold(0, u64::saturating_add),
            steady_bytes_per_s: steady_bytes_per_s(self.transfers.iter().filter_map(|each| each.report.as_ref())),
            connections,
            targets: targets.collect(),
            error_count: self.errors.len() as u64,
            errors: self.errors.clone(),
        }
    }

    /// A transfer ended.
    fn end_transfer(&mut self, now_ns: i64, number: ConnectionNumber) {
        let transfer = &mut self.transfers[number];
        if let Stage::Receives(receiving) = &transfer.stage {
            transfer.report = Some(receiving.report());
        }
        transfer.ended_ns = now_ns;
        transfer.stage = Stage::Over;
        self.closing.push_back(number);
    }
}

impl Transfer {
    /// Bytes transferred so far.
    fn bytes(&self) -> u64 {
        match &self.stage {
            Stage::Receives(receiving) => receiving.bytes,
            Stage::Sends(sending, _) => sending.bytes,
            _ => self.report.map_or(0, |report| report.bytes),
        }
    }
}

impl Application for BulkInitiator {
    fn poll_connect(&mut self, _now_ns: i64) -> Option<Dial> {
        let connection = self.transfers.iter().position(|transfer| matches!(transfer.stage, Stage::Waiting))?;
        let transfer = &mut self.transfers[connection];
        transfer.stage = Stage::Dialed;
        Some(Dial { connection, to: self.settings.targets[transfer.target].address })
    }

    fn connected(&mut self, _now_ns: i64, connection: ConnectionNumber) {
        if let Some(transfer) = self.transfers.get_mut(connection)
            && matches!(transfer.stage, Stage::Dialed)
        {
            transfer.stage = Stage::Asks;
        }
    }

    fn unwanted(&self, connection: ConnectionNumber) -> usize {
        match self.transfers.get(connection).map(|transfer| &transfer.stage) {
            Some(Stage::Receives(receiving)) => receiving.unwanted(),
            _ => 0,
        }
    }

    fn skip(&mut self, now_ns: i64, connection: ConnectionNumber, count: usize) {
        let stage = self.transfers.get_mut(connection).map(|transfer| &mut transfer.stage);
        let Some(Stage::Receives(receiving)) = stage else { return };
        receiving.skip(now_ns, count);
        if receiving.is_over() {
            self.end_transfer(now_ns, connection);
        }
    }

    fn receive(&mut self, now_ns: i64, connection: ConnectionNumber, bytes: &[u8]) {
        let Some(transfer) = self.transfers.get_mut(connection) else { return };
        let is_over = match &mut transfer.stage {
            Stage::Receives(receiving) => {
                receiving.receive(now_ns, bytes);
                receiving.is_over()
            }
            Stage::Sends(_, report_bytes) => {
                report_bytes.extend_from_slice(&bytes[..bytes.len().min(REPORT_BYTES - report_bytes.len())]);
                let report = <&[u8; REPORT_BYTES]>::try_from(report_bytes.as_slice()).ok();
                if let Some(report) = report {
                    transfer.report = Report::from_bytes(report);
                }
                report.is_some()
            }
            _ => false,
        };
        if is_over {
            self.end_transfer(now_ns, connection);
        }
    }

    fn closed(&mut self, now_ns: i64, connection: ConnectionNumber, why: Closed) {
        let Some(transfer) = self.transfers.get(connection) else { return };
        if matches!(transfer.stage, Stage::Over) {
            return;
        }
        let address = self.settings.targets[transfer.target].address;
        let why = match why {
            Closed::ByPeer => "the target closed it".to_owned(),
            Closed::Failed(why) => why,
        };
        self.errors.push(format!("connection {connection} to {address} ended early: {why}"));
        self.end_transfer(now_ns, connection);
        // it is closed already
        self.closing.pop_back();
    }

    fn poll_transmit(&mut self, now_ns: i64, connection: ConnectionNumber, out: &mut Vec<u8>) {
        let Some(transfer) = self.transfers.get_mut(connection) else { return };
        match &mut transfer.stage {
            Stage::Asks => {
                out.extend_from_slice(&transfer.request.to_bytes());
                transfer.started_ns = Some(now_ns);
                transfer.stage = if transfer.request.is_write {
                    Stage::Sends(Sending::new(transfer.request, now_ns), Vec::new())
                } else {
                    Stage::Receives(Receiving::new(transfer.request))
                };
            }
            Stage::Sends(sending, _) => sending.poll_transmit(now_ns, out),
            _ => {}
        }
    }

    fn poll_close(&mut self) -> Option<ConnectionNumber> {
        self.closing.pop_front()
    }

    fn is_finished(&self) -> bool {
        self.closing.is_empty() && self.transfers.iter().all(|transfer| matches!(transfer.stage, Stage::Over))
    }
}
