//! The real world: an application over the kernel's TCP sockets, on one thread, until it is finished or stopped.
//!
//! Waits are precise to microseconds: epoll counts milliseconds, so a kernel timer is registered with the sockets.
//! During short waits the thread polls instead of sleeping: sleeping would also delay the peer, which has to wake this
//! side.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::clock::Clock;
use super::cpu::{CpuMeter, CpuTime};
use super::receiving::{Receive, Receiver, Taken};
pub use super::socket_settings::SocketSettings;
use crate::application::{Application, Closed, ConnectionNumber};

/// Listeners take their tokens from the top, connections theirs from 0 on; the timer's is below the listeners'.
const LISTENERS_FROM: usize = usize::MAX - 1024;
const TIMER: Token = Token(LISTENERS_FROM - 1);
/// Bytes of one connection before the others' turn.
const BYTES_IN_A_ROW: usize = 4 << 20;
/// Longest short wait: about the time of going to sleep and waking up.
const SHORT_NS: i64 = 30_000;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A kernel timer with nanosecond resolution.
struct Timer {
    descriptor: OwnedFd,
    /// When it goes off.
    at_ns: i64,
}

impl Timer {
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self { descriptor: timerfd_create(TimerfdClockId::Monotonic, flags)?, at_ns: i64::MIN })
    }

    /// Goes off at `at_ns`, which is later than `now_ns`.
    fn set(&mut self, now_ns: i64, at_ns: i64) -> io::Result<()> {
        if self.at_ns == at_ns {
            return Ok(());
        }
        self.at_ns = at_ns;
        let wait_ns = at_ns.saturating_sub(now_ns);
        let it_value = Timespec { tv_sec: wait_ns / 1_000_000_000, tv_nsec: wait_ns % 1_000_000_000 };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        Ok(())
    }
}

/// A socket, and what waits to be sent over it.
struct Connection {
    stream: TcpStream,
    is_open: bool,
    is_writable: bool,
    /// Edges are reported once: there may be more to read.
    is_readable: bool,
    /// An end of stream or an error may follow the bytes to be read, without a separate edge.
    is_ended: bool,
    is_closing: bool,
    out: Vec<u8>,
    sent: usize,
}

/// Sockets of an application, for the caller's `watch`; with each, whether it is closed after this call.
pub type Descriptors = Vec<(ConnectionNumber, RawFd, bool)>;

/// The sockets of one application.
pub struct Sockets {
    poll: Poll,
    timer: Timer,
    clock: Clock,
    settings: SocketSettings,
    /// Where to listen.
    addresses: Vec<SocketAddr>,
    /// One for each address, or none while the application accepts nothing.
    listeners: Vec<TcpListener>,
    connections: BTreeMap<ConnectionNumber, Connection>,
    /// Ended, but not yet reported to `watch`.
    over: Vec<(ConnectionNumber, TcpStream)>,
    receiver: Receiver,
    /// Whether the last wait was short; then the next one probably is.
    was_short: bool,
}

impl Sockets {
    /// A world without sockets yet.
    ///
    /// # Errors
    /// The kernel refuses an epoll instance.
    pub fn new(settings: SocketSettings) -> io::Result<Self> {
        let (poll, timer) = (Poll::new()?, Timer::new()?);
        poll.registry().register(&mut SourceFd(&timer.descriptor.as_raw_fd()), TIMER, Interest::READABLE)?;
        Ok(Self {
            poll,
            timer,
            clock: Clock::new(),
            settings,
            addresses: Vec::new(),
            listeners: Vec::new(),
            connections: BTreeMap::new(),
            over: Vec::new(),
            receiver: Receiver::new(Receive::Copy),
            was_short: false,
        })
    }

    /// The same, with another way of receiving.
    #[must_use]
    pub fn receiving(self, how: Receive) -> Self {
        Self { receiver: Receiver::new(how), ..self }
    }

    /// Listens at one more address; returns it, with the port that was chosen if it was 0.
    ///
    /// # Errors
    /// The address is taken, or not of this machine.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let address = self.open_listener(address)?;
        self.addresses.push(address);
        Ok(address)
    }

    /// Listens while the application accepts connections: the kernel refuses them meanwhile, as for a program that is
    /// down.
    fn listen_if(&mut self, is_accepting: bool) -> io::Result<()> {
        if !is_accepting {
            self.listeners.clear();
        }
        while is_accepting && let Some(&address) = self.addresses.get(self.listeners.len()) {
            self.open_listener(address)?;
        }
        Ok(())
    }

    fn open_listener(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let socket = self.settings.socket(address)?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let mut listener = TcpListener::from_std(socket.into());
        let token = Token(LISTENERS_FROM + self.listeners.len());
        self.poll.registry().register(&mut listener, token, Interest::READABLE)?;
        let address = listener.local_addr()?;
        self.listeners.push(listener);
        Ok(address)
    }

    /// Runs an application until it is finished or `watch` stops it. `watch` is called every `period`, and before
    /// sockets are closed. Returns the CPU time, without that of `watch`.
    ///
    /// # Errors
    /// A system call fails; a failed connection is reported to the application instead.
    pub fn run<A: Application>(
        &mut self,
        application: &mut A,
        period: Duration,
        watch: &mut dyn FnMut(&mut A, i64, &Descriptors) -> ControlFlow<()>,
    ) -> io::Result<CpuTime> {
        let mut cpu = CpuMeter::new();
        let mut events = Events::with_capacity(256);
        let period_ns = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX);
        let mut watch_ns = self.clock.now_ns();
        loop {
            self.listen_if(application.is_accepting(self.clock.now_ns()))?;
            self.serve(application);
            if !self.over.is_empty() {
                let (now_ns, descriptors) = (self.clock.now_ns(), self.descriptors());
                let decision = cpu.leave_out(|| watch(application, now_ns, &descriptors));
                self.over.clear();
                if decision.is_break() {
                    return Ok(cpu.taken());
                }
            }
            if application.is_finished() && self.connections.is_empty() {
                let now_ns = self.clock.now_ns();
                let _ = cpu.leave_out(|| watch(application, now_ns, &Vec::new()));
                return Ok(cpu.taken());
            }
            let now_ns = self.clock.now_ns();
            if now_ns >= watch_ns {
                watch_ns = now_ns.saturating_add(period_ns);
                let descriptors = self.descriptors();
                if cpu.leave_out(|| watch(application, now_ns, &descriptors)).is_break() {
                    return Ok(cpu.taken());
                }
                continue;
            }
            let wake_ns = application.poll_timeout().map_or(watch_ns, |timeout_ns| timeout_ns.min(watch_ns));
            let has_more = self.connections.values().any(|connection| connection.is_open && connection.is_readable);
            let is_waiting = !has_more && wake_ns > now_ns;
            if is_waiting {
                self.timer.set(now_ns, wake_ns)?;
            }
            match if is_waiting { self.wait(&mut events) } else { self.poll.poll(&mut events, Some(Duration::ZERO)) } {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                if event.token().0 >= LISTENERS_FROM {
                    self.accept(event.token().0 - LISTENERS_FROM, application);
                } else if let Some(connection) = self.connections.get_mut(&event.token().0) {
                    connection.is_ended |= event.is_read_closed() || event.is_error();
                    connection.is_readable |= event.is_readable() || connection.is_ended;
                    connection.is_writable |= event.is_writable();
                }
            }
            let now_ns = self.clock.now_ns();
            if application.poll_timeout().is_some_and(|timeout_ns| timeout_ns <= now_ns) {
                application.handle_timeout(now_ns);
            }
        }
    }

    /// Waits for an event: polls first if the last wait was short, then sleeps.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let short_until_ns = self.clock.now_ns() + SHORT_NS;
        while self.was_short {
            self.poll.poll(events, Some(Duration::ZERO))?;
            if !events.is_empty() {
                return Ok(());
            }
            std::thread::yield_now();
            self.was_short = self.clock.now_ns() < short_until_ns;
        }
        self.poll.poll(events, None)?;
        self.was_short = !self.settings.sleeps_at_once && self.clock.now_ns() < short_until_ns;
        Ok(())
    }

    fn descriptors(&self) -> Descriptors {
        let open = self.connections.iter().map(|(&number, connection)| (number, connection.stream.as_raw_fd(), false));
        open.chain(self.over.iter().map(|(number, stream)| (*number, stream.as_raw_fd(), true))).collect()
    }

    /// Removes a connection; returns whether its application had closed it, none if there is none.
    fn remove(&mut self, number: ConnectionNumber) -> Option<bool> {
        let Connection { stream, is_closing, .. } = self.connections.remove(&number)?;
        self.over.push((number, stream));
        Some(is_closing)
    }

    /// Does everything that is possible without waiting.
    fn serve(&mut self, application: &mut impl Application) {
        while let Some(dial) = application.poll_connect(self.clock.now_ns()) {
            match self.connect(dial.to) {
                Ok(stream) => {
                    if let Err(error) = self.add(dial.connection, stream, false) {
                        application.closed(self.clock.now_ns(), dial.connection, Closed::Failed(error.to_string()));
                    }
                }
                Err(error) => {
                    application.closed(self.clock.now_ns(), dial.connection, Closed::Failed(error.to_string()));
                }
            }
        }
        let numbers: Vec<ConnectionNumber> = self.connections.keys().copied().collect();
        for &number in &numbers {
            self.receive(number, application);
        }
        for &number in &numbers {
            self.transmit(number, application);
        }
        // the application may close a connection with its last bytes
        while let Some(number) = application.poll_close() {
            self.close(number, application);
        }
    }

    /// Closes a connection once its pending bytes are sent; immediately if it was never open.
    fn close(&mut self, number: ConnectionNumber, application: &mut impl Application) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.is_closing = true;
        if connection.is_open {
            self.transmit(number, application);
        } else {
            self.remove(number);
        }
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.settings.to_connect(to)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            // in progress
            Err(error) if error.raw_os_error() == Some(EINPROGRESS) => {}
            result => result?,
        }
        Ok(TcpStream::from_std(socket.into()))
    }

    fn add(&mut self, number: ConnectionNumber, mut stream: TcpStream, is_open: bool) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, Token(number), interests)?;
        let connection = Connection {
            stream,
            is_open,
            is_writable: is_open,
            is_readable: is_open,
            is_ended: false,
            is_closing: false,
            out: Vec::new(),
            sent: 0,
        };
        self.connections.insert(number, connection);
        Ok(())
    }

    /// Accepts waiting connections; they inherit the listener's socket options.
    fn accept(&mut self, listener: usize, application: &mut impl Application) {
        loop {
            let (stream, peer) = match self.listeners.get(listener).map(TcpListener::accept) {
                Some(Ok(accepted)) => accepted,
                // a connection that was aborted while it waited: those behind it have no new edge
                Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                _ => return,
            };
            let now_ns = self.clock.now_ns();
            // a refused or aborted connection is closed as it goes out of scope
            let Ok(local) = stream.local_addr() else { continue };
            let Some(number) = application.accept(now_ns, peer, local) else { continue };
            let added = stream.set_nodelay(!self.settings.is_nagle).and_then(|()| self.add(number, stream, true));
            if let Err(error) = added {
                application.closed(now_ns, number, Closed::Failed(error.to_string()));
            }
        }
    }

    /// Reads available bytes, up to a limit that leaves the other connections their turn.
    fn receive(&mut self, number: ConnectionNumber, application: &mut impl Application) {
        let mut left = BYTES_IN_A_ROW;
        while left > 0 {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            if !connection.is_readable || !connection.is_open {
                return;
            }
            let unwanted = if self.receiver.is_discarding() { application.unwanted(number) } else { 0 };
            let result = self.receiver.take(&connection.stream, unwanted);
            let now_ns = self.clock.now_ns();
            match result {
                Ok((Taken::Bytes([]), _)) => return self.end(number, now_ns, Closed::ByPeer, application),
                Ok((taken, may_have_more)) => {
                    // fewer than requested: everything available, except an end of stream
                    connection.is_readable = may_have_more || connection.is_ended;
                    left = left.saturating_sub(taken.count());
                    match taken {
                        Taken::Bytes(bytes) => application.receive(now_ns, number, bytes),
                        Taken::Gone(count) => application.skip(now_ns, number, count),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.is_readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.end(number, now_ns, Closed::Failed(error.to_string()), application),
            }
        }
    }

    /// Sends what the application has, as far as the send buffer takes it.
    fn transmit(&mut self, number: ConnectionNumber, application: &mut impl Application) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if !connection.is_writable {
            return;
        }
        if !connection.is_open {
            let now_ns = self.clock.now_ns();
            match connection.stream.take_error() {
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => {
                    return self.end(number, now_ns, Closed::Failed(error.to_string()), application);
                }
            }
            match connection.stream.peer_addr() {
                Ok(_) => connection.is_open = true,
                Err(_) => return,
            }
            application.connected(now_ns, number);
        }
        loop {
            if connection.sent == connection.out.len() {
                connection.out.clear();
                connection.sent = 0;
                application.poll_transmit(self.clock.now_ns(), number, &mut connection.out);
                if connection.out.is_empty() {
                    break;
                }
            }
            match connection.stream.write(&connection.out[connection.sent..]) {
                Ok(count) => connection.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.is_writable = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let now_ns = self.clock.now_ns();
                    return self.end(number, now_ns, Closed::Failed(error.to_string()), application);
                }
            }
        }
        if connection.is_closing {
            self.remove(number);
        }
    }

    fn end(&mut self, number: ConnectionNumber, now_ns: i64, why: Closed, application: &mut impl Application) {
        if self.remove(number) == Some(false) {
            application.closed(now_ns, number, why);
        }
    }
}

/// Error of `connect` for a connection in progress.
const EINPROGRESS: i32 = 115;
