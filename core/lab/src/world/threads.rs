//! The real world with blocking threads: one receiver and one sender per connection, as in kernel initiators, and the
//! caller's thread for everything else.
//!
//! ```text
//!   receiver   connects; then blocks in recv, and passes on received bytes
//!   sender     waits until there are bytes to send; then blocks in send
//!   caller's   opens connections, handles timers, calls `watch`
//! ```
//!
//! One lock protects the application. After each call into it, the calling thread polls it and wakes the senders of
//! connections with bytes to send; so the thread that sends a command is not the one that received the status before.
//! It opens connections and accepts none.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::Socket;

use super::clock::Clock;
use super::cpu::{CpuMeter, CpuTime};
use super::receiving::{Receive, Receiver, Taken};
use super::socket_settings::SocketSettings;
use super::sockets::Descriptors;
use crate::application::{Application, Closed, ConnectionNumber, Dial};

/// Interval of checks while connecting whether the connection is still wanted.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Threads over blocking sockets.
#[derive(Debug)]
pub struct Threads {
    settings: SocketSettings,
    receive: Receive,
    clock: Clock,
}

/// A connection, and what waits to be sent over it.
struct Line {
    socket: Arc<Socket>,
    wake: Arc<Condvar>,
    is_open: bool,
    is_closing: bool,
    /// Its sender is active, and polls for more bytes itself.
    is_sending: bool,
    out: Vec<u8>,
}

struct State<'a, A> {
    application: &'a mut A,
    lines: BTreeMap<ConnectionNumber, Line>,
    /// Ended, but not yet reported to `watch`.
    over: Vec<(ConnectionNumber, Arc<Socket>)>,
    dials: Vec<Dial>,
    /// When the wait of the caller's thread ends.
    waits_until_ns: i64,
    /// CPU time of threads that have ended.
    cpu: CpuTime,
}

struct Shared<'a, A> {
    state: Mutex<State<'a, A>>,
    /// The caller's thread has something to do.
    news: Condvar,
    clock: Clock,
}

impl Threads {
    /// A world without sockets yet.
    #[must_use]
    pub fn new(settings: SocketSettings, receive: Receive) -> Self {
        Self { settings, receive, clock: Clock::new() }
    }

    /// Runs an application until it is finished or `watch` stops it. `watch` is called every `period`, and before
    /// sockets are closed. Returns the CPU time of all threads, without that of `watch`.
    ///
    /// # Errors
    /// No thread can be created; a failed connection is reported to the application instead.
    pub fn run<A: Application + Send>(
        &mut self,
        application: &mut A,
        period: Duration,
        watch: &mut dyn FnMut(&mut A, i64, &Descriptors) -> ControlFlow<()>,
    ) -> io::Result<CpuTime> {
        let mut cpu = CpuMeter::new();
        let state = State {
            application,
            lines: BTreeMap::new(),
            over: Vec::new(),
            dials: Vec::new(),
            waits_until_ns: 0,
            cpu: CpuTime::default(),
        };
        let shared = Shared { state: Mutex::new(state), news: Condvar::new(), clock: self.clock };
        let result = thread::scope(|scope| {
            let result = self.attend(scope, &shared, &mut cpu, period, watch);
            // threads that still block find their socket shut down, or their connection removed
            let mut state = shared.lock();
            for line in std::mem::take(&mut state.lines).into_values() {
                let _ = line.socket.shutdown(Shutdown::Both);
                line.wake.notify_all();
            }
            result
        });
        let ended = shared.lock().cpu;
        result.map(|()| cpu.taken() + ended)
    }

    /// The caller's thread.
    fn attend<'scope, 'env, A: Application + Send>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        shared: &'scope Shared<'_, A>,
        cpu: &mut CpuMeter,
        period: Duration,
        watch: &mut dyn FnMut(&mut A, i64, &Descriptors) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let period_ns = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX);
        let mut state = shared.lock();
        let mut watch_ns = self.clock.now_ns();
        shared.settle(&mut state);
        loop {
            for dial in std::mem::take(&mut state.dials) {
                self.open(scope, shared, &mut state, dial)?;
            }
            let now_ns = self.clock.now_ns();
            if state.application.poll_timeout().is_some_and(|timeout_ns| timeout_ns <= now_ns) {
                state.application.handle_timeout(now_ns);
                shared.settle(&mut state);
            }
            let is_over = state.is_over();
            if is_over || !state.over.is_empty() || now_ns >= watch_ns {
                watch_ns = if now_ns >= watch_ns { now_ns.saturating_add(period_ns) } else { watch_ns };
                let descriptors = state.descriptors();
                let decision = cpu.leave_out(|| watch(&mut *state.application, now_ns, &descriptors));
                for (_, socket) in state.over.drain(..) {
                    // its threads may still block on it
                    let _ = socket.shutdown(Shutdown::Both);
                }
                if is_over || decision.is_break() {
                    return Ok(());
                }
                // `watch` may have stopped it
                shared.settle(&mut state);
                continue;
            }
            if !state.dials.is_empty() {
                continue;
            }
            let wake_ns = state.application.poll_timeout().map_or(watch_ns, |timeout_ns| timeout_ns.min(watch_ns));
            state.waits_until_ns = wake_ns;
            let wait = Duration::from_nanos(u64::try_from(wake_ns.saturating_sub(now_ns)).unwrap_or(0));
            state =
                shared.news.wait_timeout(state, wait).map_or_else(|poison| poison.into_inner().0, |waited| waited.0);
        }
    }

    /// Opens a connection, in the thread that then receives.
    fn open<'scope, 'env, A: Application + Send>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        shared: &'scope Shared<'_, A>,
        state: &mut State<'_, A>,
        dial: Dial,
    ) -> io::Result<()> {
        let number = dial.connection;
        let socket = match self.settings.to_connect(dial.to) {
            Ok(socket) => Arc::new(socket),
            Err(error) => {
                state.application.closed(self.clock.now_ns(), number, Closed::Failed(error.to_string()));
                shared.settle(state);
                return Ok(());
            }
        };
        let wake = Arc::new(Condvar::new());
        let line = Line {
            socket: Arc::clone(&socket),
            wake: Arc::clone(&wake),
            is_open: false,
            is_closing: false,
            is_sending: false,
            out: Vec::new(),
        };
        state.lines.insert(number, line);
        let (receive, sending) = (self.receive, Arc::clone(&socket));
        let spawn = |name: String, work: Box<dyn FnOnce() + Send + 'scope>| {
            thread::Builder::new().name(name).spawn_scoped(scope, move || {
                let cpu = CpuMeter::new();
                work();
                shared.lock().count(cpu.taken());
            })
        };
        spawn(format!("sender {number}"), Box::new(move || shared.send(number, &sending, &wake)))?;
        let receiver = move || shared.receive(number, dial.to, &socket, Receiver::new(receive));
        spawn(format!("receiver {number}"), Box::new(receiver))?;
        Ok(())
    }
}

impl<A: Application> State<'_, A> {
    fn is_over(&self) -> bool {
        self.application.is_finished() && self.lines.is_empty()
    }

    fn count(&mut self, cpu: CpuTime) {
        self.cpu = self.cpu + cpu;
    }

    fn descriptors(&self) -> Descriptors {
        let open = self.lines.iter().map(|(&number, line)| (number, line.socket.as_raw_fd(), false));
        open.chain(self.over.iter().map(|(number, socket)| (*number, socket.as_raw_fd(), true))).collect()
    }

    /// Removes a connection; returns whether its application had closed it, none if there is none.
    fn remove(&mut self, number: ConnectionNumber) -> Option<bool> {
        let Line { socket, wake, is_closing, .. } = self.lines.remove(&number)?;
        self.over.push((number, socket));
        wake.notify_all();
        Some(is_closing)
    }

    fn end(&mut self, number: ConnectionNumber, now_ns: i64, why: Closed) {
        if self.remove(number) == Some(false) {
            self.application.closed(now_ns, number, why);
        }
    }
}

impl<'a, A: Application> Shared<'a, A> {
    fn lock(&self) -> MutexGuard<'_, State<'a, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After each call into the application: polls it, and wakes the threads that have work.
    fn settle(&self, state: &mut State<'_, A>) {
        let now_ns = self.clock.now_ns();
        while let Some(dial) = state.application.poll_connect(now_ns) {
            state.dials.push(dial);
        }
        let State { application, lines, .. } = &mut *state;
        for (&number, line) in lines.iter_mut().filter(|(_, line)| line.is_open && !line.is_sending) {
            application.poll_transmit(now_ns, number, &mut line.out);
            if !line.out.is_empty() {
                line.is_sending = true;
                line.wake.notify_one();
            }
        }
        // the application may close a connection with its last bytes
        while let Some(number) = state.application.poll_close() {
            match state.lines.get_mut(&number) {
                Some(line) if line.is_open => {
                    line.is_closing = true;
                    line.wake.notify_one();
                }
                Some(line) => {
                    line.is_closing = true;
                    state.remove(number);
                }
                None => {}
            }
        }
        let is_due = || state.application.poll_timeout().is_some_and(|at_ns| at_ns < state.waits_until_ns);
        if !state.dials.is_empty() || !state.over.is_empty() || state.is_over() || is_due() {
            self.news.notify_one();
        }
    }

    /// The receiver of a connection.
    fn receive(&self, number: ConnectionNumber, to: SocketAddr, socket: &Socket, mut receiver: Receiver) {
        let connected = self.connect(number, to, socket);
        let mut state = self.lock();
        // closed before it was open
        let Some(line) = state.lines.get_mut(&number) else { return };
        match connected {
            Ok(()) => {
                line.is_open = true;
                state.application.connected(self.clock.now_ns(), number);
                self.settle(&mut state);
            }
            Err(error) => return self.finish(state, number, Closed::Failed(error.to_string())),
        }
        drop(state);
        let mut unwanted = 0;
        loop {
            let taken = match receiver.take(socket, unwanted) {
                Ok((taken, _)) => taken,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return self.finish(self.lock(), number, Closed::Failed(error.to_string())),
            };
            let mut state = self.lock();
            let now_ns = self.clock.now_ns();
            match taken {
                _ if !state.lines.contains_key(&number) => return,
                Taken::Bytes([]) => return self.finish(state, number, Closed::ByPeer),
                Taken::Bytes(bytes) => state.application.receive(now_ns, number, bytes),
                Taken::Gone(count) => state.application.skip(now_ns, number, count),
            }
            self.settle(&mut state);
            // only bytes that this thread passes on change which are unwanted
            unwanted = if receiver.is_discarding() { state.application.unwanted(number) } else { 0 };
        }
    }

    /// Connects a socket, which blocks from then on; ends early when the connection is no longer wanted.
    fn connect(&self, number: ConnectionNumber, to: SocketAddr, socket: &Socket) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {
                let mut watched = [PollFd::new(socket, PollFlags::OUT)];
                while poll(&mut watched, Some(&LOOK))? == 0 && self.lock().lines.contains_key(&number) {}
                socket.take_error()?.map_or(Ok(()), Err)?;
            }
            result => result?,
        }
        socket.set_nonblocking(false)
    }

    /// The sender of a connection.
    fn send(&self, number: ConnectionNumber, mut socket: &Socket, wake: &Condvar) {
        let mut state = self.lock();
        loop {
            let State { application, lines, .. } = &mut *state;
            let Some(line) = lines.get_mut(&number) else { return };
            if line.is_open && line.out.is_empty() {
                application.poll_transmit(self.clock.now_ns(), number, &mut line.out);
            }
            line.is_sending = !line.out.is_empty();
            if line.is_sending {
                let bytes = std::mem::take(&mut line.out);
                drop(state);
                let result = socket.write_all(&bytes);
                state = self.lock();
                if let Err(error) = result {
                    return self.finish(state, number, Closed::Failed(error.to_string()));
                }
                if let Some(line) = state.lines.get_mut(&number) {
                    line.out = bytes;
                    line.out.clear();
                }
            } else if line.is_closing {
                state.remove(number);
                self.news.notify_one();
                return;
            } else {
                state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// A connection ended.
    fn finish(&self, mut state: MutexGuard<'_, State<'a, A>>, number: ConnectionNumber, why: Closed) {
        state.end(number, self.clock.now_ns(), why);
        self.settle(&mut state);
    }
}
