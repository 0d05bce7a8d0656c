//! The reference initiator as an application: the connections of all its sessions, by their numbers in the world.

use std::cmp::Reverse;

use super::client_session::Stage;
use super::{Client, Wake};
use crate::application::{Application, Closed, ConnectionNumber, Dial};

impl Application for Client {
    fn poll_connect(&mut self, now_ns: i64) -> Option<Dial> {
        if self.connecting_count + self.joining_count == 0 {
            return None;
        }
        for (index, client_session) in self.sessions.iter_mut().enumerate() {
            if let Some(connection) = client_session.session.poll_connect(now_ns) {
                let number = self.places.len();
                self.places.push(Some((index, connection)));
                // connections of a session are opened in the order of their numbers
                client_session.numbers.push(number);
                return Some(Dial { connection: number, to: client_session.address });
            }
        }
        None
    }

    fn connected(&mut self, now_ns: i64, connection: ConnectionNumber) {
        if let Some((index, connection)) = self.place(connection) {
            self.sessions[index].session.opened(now_ns, connection);
            self.pump(now_ns, index);
            self.proceed(now_ns);
        }
    }

    fn receive(&mut self, now_ns: i64, connection: ConnectionNumber, bytes: &[u8]) {
        if let Some((index, connection)) = self.place(connection) {
            let client_session = &mut self.sessions[index];
            client_session.session.receive(now_ns, connection, bytes, &mut client_session.volume);
            self.pump(now_ns, index);
            self.proceed(now_ns);
        }
    }

    fn unwanted(&self, connection: ConnectionNumber) -> usize {
        self.place(connection).map_or(0, |(index, connection)| {
            let client_session = &self.sessions[index];
            client_session.session.unwanted(connection, &client_session.volume)
        })
    }

    fn skip(&mut self, now_ns: i64, connection: ConnectionNumber, count: usize) {
        if let Some((index, connection)) = self.place(connection) {
            let client_session = &mut self.sessions[index];
            client_session.session.skip(now_ns, connection, count, &mut client_session.volume);
            self.pump(now_ns, index);
            self.proceed(now_ns);
        }
    }

    fn closed(&mut self, now_ns: i64, connection: ConnectionNumber, why: Closed) {
        if let Some((index, inner)) = self.place(connection) {
            self.places[connection] = None;
            self.sessions[index].span(inner).1 = Some(now_ns);
            self.sessions[index].session.closed(now_ns, inner, &why);
            self.pump(now_ns, index);
            self.proceed(now_ns);
        }
    }

    fn poll_transmit(&mut self, now_ns: i64, connection: ConnectionNumber, out: &mut Vec<u8>) {
        if let Some((index, connection)) = self.place(connection) {
            let client_session = &mut self.sessions[index];
            client_session.session.poll_transmit(now_ns, connection, out, &mut client_session.volume);
        }
    }

    fn poll_close(&mut self) -> Option<ConnectionNumber> {
        self.closing.pop_front()
    }

    fn poll_timeout(&self) -> Option<i64> {
        let wake = self.wakes.peek().map(|Reverse((at, ..))| *at);
        self.sessions.iter().filter_map(|client_session| client_session.session.poll_timeout()).chain(wake).min()
    }

    fn handle_timeout(&mut self, now_ns: i64) {
        for index in 0..self.sessions.len() {
            self.sessions[index].session.handle_timeout(now_ns);
            self.pump(now_ns, index);
        }
        while let Some(Reverse((at_ns, _, wake))) = self.wakes.peek().copied() {
            if at_ns > now_ns {
                break;
            }
            self.wakes.pop();
            match wake {
                Wake::Lane(lane) => self.end_pause(now_ns, lane),
                Wake::Ping(index) => self.ping(now_ns, index),
                Wake::Retry(retry) => self.retry(now_ns, retry),
                Wake::Measured(serial) => self.measured(now_ns, serial),
                Wake::Recovery(index) => self.reopen(index),
                Wake::Incident(incident) => self.incident(now_ns, incident),
            }
        }
        self.proceed(now_ns);
    }

    fn has_begun(&self) -> bool {
        self.run.started_ns.is_some()
    }

    fn is_finished(&self) -> bool {
        self.closing.is_empty()
            && self.sessions.iter().all(|client_session| matches!(client_session.stage, Stage::Over))
    }
}
