//! What a process gives up once its inputs are open: capabilities, new privileges, programs, other folders and processes,
//! the network.
//!
//! A packet is a message of a stranger. If a parser had a mistake, the process around it could do little: read, and write
//! where its output goes. What the kernel does not support is reported and nothing else: a capture is worth more.

mod system_calls;

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{Access as Permissions, AtFlags, CWD, accessat};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

use crate::error::os_message;
use crate::report::Event;
use crate::settings::CaptureSettings;

/// The newest that is known here; an older kernel refuses what it can.
const NEWEST: ABI = ABI::V6;

/// What this thread, and those that it starts, may still do.
#[derive(Debug, Default, Clone)]
pub struct Confinement {
    /// Whether it opens interfaces later.
    pub has_interfaces: bool,
    /// Whether it reads files of other users, as root may.
    pub has_files_of_others: bool,
    /// Folders and files that it writes.
    pub written: Vec<PathBuf>,
    /// TCP ports at which it serves; 0 is any.
    pub ports: Vec<u16>,
    /// Processes that it started, and ends.
    pub children: Vec<i32>,
}

impl Confinement {
    /// Gives up everything else, for this thread and all that it starts later. Returns what the kernel refused.
    pub fn begin(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(error) = self.drop_capabilities() {
            problems.push(format!("capabilities stay: {}", os_message(&error)));
        }
        if let Err(error) = set_no_new_privs(true) {
            problems.push(format!("new privileges stay possible: {}", os_message(&error.into())));
        }
        match self.restrict() {
            Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {}
            Ok(RulesetStatus::NotEnforced) => problems.push("the kernel has no Landlock".to_owned()),
            Err(error) => problems.push(format!("Landlock: {error}")),
        }
        // last: what came before may need a call that is refused from now on
        if let Err(error) = system_calls::refuse(self.has_interfaces, !self.ports.is_empty(), &self.children) {
            problems.push(format!("system calls stay possible: {error}"));
        }
        problems
    }

    fn drop_capabilities(&self) -> io::Result<()> {
        let before = capabilities(None)?;
        let mut kept = CapabilitySet::empty();
        kept.set(CapabilitySet::NET_RAW, self.has_interfaces);
        kept.set(CapabilitySet::DAC_READ_SEARCH, self.has_files_of_others);
        kept &= before.permitted;
        // still permitted, and not in effect: what does it change?
        set_capabilities(None, CapabilitySets { effective: kept, ..before })?;
        if self.written.iter().any(|path| !may_write(path)) {
            kept |= before.permitted & CapabilitySet::DAC_OVERRIDE;
        }
        let after = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        Ok(set_capabilities(None, after)?)
    }

    fn restrict(&self) -> Result<RulesetStatus, RulesetError> {
        let writing = AccessFs::from_write(NEWEST);
        // the scope of signals has no exceptions
        let signals = if self.children.is_empty() { Scope::Signal.into() } else { BitFlags::EMPTY };
        let mut rules = Ruleset::default()
            .handle_access(writing | AccessFs::Execute)?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(signals | Scope::AbstractUnixSocket)?
            .create()?;
        for path in &self.written {
            // a path that does not exist is written by nobody
            let Ok(opened) = PathFd::new(path) else { continue };
            let allowed = if path.is_dir() { writing } else { writing & AccessFs::from_file(NEWEST) };
            rules = rules.add_rule(PathBeneath::new(opened, allowed))?;
        }
        for port in &self.ports {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
        }
        Ok(rules.restrict_self()?.ruleset)
    }
}

/// Gives up what the rest of a capture does not need, if that is wanted; returns what the kernel refused. `child`: a program
/// that captures, and is ended later.
pub fn of_capture(settings: &CaptureSettings, child: Option<i32>) -> Option<Event> {
    if !settings.is_confined {
        return None;
    }
    let path = &settings.output.path;
    let written = if path.as_os_str() == "-" { Vec::new() } else { vec![folder_of(path)] };
    let children = child.into_iter().collect();
    let problems = Confinement { has_interfaces: true, written, children, ..Confinement::default() }.begin();
    let text = format!("the capture runs with more rights than it needs: {}", problems.join("; "));
    (!problems.is_empty()).then_some(Event::Warning { text })
}

fn may_write(path: &Path) -> bool {
    let needed = Permissions::WRITE_OK | if path.is_dir() { Permissions::EXEC_OK } else { Permissions::empty() };
    accessat(CWD, path, needed, AtFlags::EACCESS).is_ok()
}

/// The folder of a path.
pub fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::TcpListener;
    use std::process::Command;
    use std::thread;

    /// In a thread of its own: the others stay free.
    #[test]
    fn a_confined_thread_writes_and_serves_where_it_may_and_starts_no_program() {
        let folder = std::env::temp_dir().join(format!("iscsitrace-confinement-{}", std::process::id()));
        let (inside, outside) = (folder.join("inside"), folder.join("outside"));
        fs::create_dir_all(&inside).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("old"), b"old").unwrap();
        let (own, other) = (inside.clone(), outside.clone());
        thread::spawn(move || {
            let confinement = Confinement { written: vec![own.clone()], ports: vec![0], ..Confinement::default() };
            let problems = confinement.begin();
            fs::write(own.join("new"), b"new").unwrap();
            fs::rename(own.join("new"), own.join("renamed")).unwrap();
            fs::remove_file(own.join("renamed")).unwrap();
            assert_eq!(fs::read(other.join("old")).unwrap(), b"old");
            let now = capabilities(None).unwrap();
            assert_eq!((now.effective, now.permitted), (CapabilitySet::empty(), CapabilitySet::empty()));
            assert!(rustix::thread::no_new_privs().unwrap());
            assert!(TcpListener::bind("127.0.0.1:0").is_ok());
            if problems.is_empty() {
                assert_eq!(fs::write(other.join("new"), b"new").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
                assert_eq!(fs::remove_file(other.join("old")).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
                assert!(Command::new("true").status().is_err());
                let taken = TcpListener::bind("127.0.0.1:34567").map_err(|error| error.kind());
                assert_eq!(taken.err(), Some(io::ErrorKind::PermissionDenied));
            } else {
                assert_eq!(problems, ["the kernel has no Landlock"]);
            }
        })
        .join()
        .unwrap();
        // this thread is as free as before
        fs::remove_dir_all(&folder).unwrap();
    }
}
