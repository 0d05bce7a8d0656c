//! The system calls that a confined thread is refused, by a filter of the kernel (seccomp).
//!
//! Everything else stays allowed: Python, NumPy and matplotlib use other calls with every version, and a list of what they
//! need would end a command that has nothing wrong. Refused is what carries data out, reaches other processes, or leaves
//! the confinement. Landlock refuses by path; this refuses what has no path.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

/// Refused whatever their arguments are.
const REFUSED: &[c_long] = &[
    // to others over a network or a local socket
    libc::SYS_connect,
    // with requests that this filter does not see
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // other programs and processes
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    // other name spaces and mounts
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    // files by other ways than their paths
    libc::SYS_open_by_handle_at,
    // parts of the kernel that no reader needs
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];
/// Their arguments are in memory, which a filter cannot read. As on an older kernel, the C library uses other calls then.
const ABSENT: &[c_long] = &[libc::SYS_clone3, libc::SYS_openat2];

/// Calls that set the mode of a file, and which argument that is.
const MODES: &[(c_long, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_openat, 3),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];
/// The same number on every architecture.
const FCHMODAT2: c_long = 452;
/// Name spaces that `clone` may make.
const NAME_SPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// The type of a socket without its flags.
const TYPE_MASK: i32 = 0xf;
/// With this bit a call has the form for 64-bit registers and 32-bit pointers, if the kernel has that form.
const X32: c_long = 0x4000_0000;

/// What is refused: by call, rules of which one is enough; without a rule always.
struct Refusals(BTreeMap<c_long, Vec<SeccompRule>>);

impl Refusals {
    fn always(&mut self, call: c_long) {
        self.0.insert(call, Vec::new());
    }

    /// Where all conditions hold: which argument, and what it is.
    fn where_all(&mut self, call: c_long, conditions: &[(u8, SeccompCmpOp, i32)]) -> Result<(), BackendError> {
        let conditions = conditions.iter().map(|(argument, operation, value)| {
            // as the kernel sees an int: 32 bits
            SeccompCondition::new(*argument, Dword, operation.clone(), u64::from(*value as u32))
        });
        let rule = SeccompRule::new(conditions.collect::<Result<_, _>>()?)?;
        self.0.entry(call).or_default().push(rule);
        Ok(())
    }

    fn where_bit(&mut self, call: c_long, argument: u8, bit: i32) -> Result<(), BackendError> {
        self.where_all(call, &[(argument, MaskedEq(u64::from(bit as u32)), bit)])
    }

    fn where_none(&mut self, call: c_long, argument: u8, allowed: &[i32]) -> Result<(), BackendError> {
        let conditions: Vec<_> = allowed.iter().map(|&value| (argument, Ne, value)).collect();
        self.where_all(call, &conditions)
    }

    /// Sockets: none; or those of a server at a TCP port; or those with which libpcap opens an interface.
    fn sockets(&mut self, has_interfaces: bool, serves: bool) -> Result<(), BackendError> {
        if !serves {
            self.always(libc::SYS_listen);
        }
        let mut families = Vec::new();
        if serves {
            families.extend([libc::AF_INET, libc::AF_INET6]);
            // MPTCP would get around Landlock, which knows TCP
            let only_tcp = [(2, Ne, 0), (2, Ne, libc::IPPROTO_TCP)];
            self.where_all(libc::SYS_socket, &only_tcp)?;
        }
        if has_interfaces {
            families.extend([libc::AF_PACKET, libc::AF_NETLINK, libc::AF_INET]);
        }
        let refused_type = match (serves, has_interfaces) {
            (false, false) => {
                self.always(libc::SYS_socket);
                return Ok(());
            }
            (true, _) => libc::SOCK_DGRAM,
            (false, true) => libc::SOCK_STREAM,
        };
        self.where_none(libc::SYS_socket, 0, &families)?;
        for family in [libc::AF_INET, libc::AF_INET6] {
            for refused in [refused_type, libc::SOCK_RAW, libc::SOCK_SEQPACKET, libc::SOCK_DCCP] {
                let is_type = MaskedEq(TYPE_MASK as u64);
                self.where_all(libc::SYS_socket, &[(0, Eq, family), (1, is_type, refused)])?;
            }
        }
        Ok(())
    }

    fn of(has_interfaces: bool, serves: bool, children: &[i32]) -> Result<Self, BackendError> {
        let mut refusals = Self(BTreeMap::new());
        REFUSED.iter().for_each(|&call| refusals.always(call));
        refusals.sockets(has_interfaces, serves)?;
        // TCP fast open connects and sends at once
        refusals.where_bit(libc::SYS_sendto, 3, libc::MSG_FASTOPEN)?;
        refusals.where_bit(libc::SYS_sendmsg, 2, libc::MSG_FASTOPEN)?;
        refusals.where_bit(libc::SYS_sendmmsg, 3, libc::MSG_FASTOPEN)?;
        // a thread is no process
        refusals.where_all(libc::SYS_clone, &[(0, MaskedEq(libc::CLONE_THREAD as u64), 0)])?;
        for name_space in NAME_SPACES {
            refusals.where_bit(libc::SYS_clone, 0, name_space)?;
        }
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let reached: Vec<i32> = std::iter::once(own).chain(children.iter().copied()).collect();
        refusals.where_none(libc::SYS_kill, 0, &reached)?;
        refusals.where_none(libc::SYS_tgkill, 0, &[own])?;
        refusals.where_none(libc::SYS_prlimit64, 0, &[0, own])?;
        for &(call, argument) in MODES {
            refusals.where_bit(call, argument, libc::S_ISUID as i32)?;
            refusals.where_bit(call, argument, libc::S_ISGID as i32)?;
        }
        // keys for a terminal, as if its user had typed them
        refusals.where_all(libc::SYS_ioctl, &[(1, Eq, libc::TIOCSTI as i32)])?;
        refusals.where_all(libc::SYS_ioctl, &[(1, Eq, TIOCLINUX)])?;
        Ok(refusals)
    }

    fn apply(self, number: i32) -> Result<(), Error> {
        let mut rules = self.0;
        if cfg!(target_arch = "x86_64") {
            let again: Vec<_> = rules.iter().map(|(call, refused)| (call | X32, refused.clone())).collect();
            rules.extend(again);
        }
        let refused = SeccompAction::Errno(number as u32);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, std::env::consts::ARCH.try_into()?)?;
        let program: BpfProgram = filter.try_into().map_err(Error::Backend)?;
        apply_filter(&program)
    }
}

/// Selects and pastes on a console of the kernel.
const TIOCLINUX: i32 = 0x541c;

/// Refuses them to this thread and all that it starts later. `has_interfaces`: it opens interfaces with libpcap; `serves`: at
/// TCP ports; `children`: processes that it may signal.
pub(super) fn refuse(has_interfaces: bool, serves: bool, children: &[i32]) -> Result<(), Error> {
    let mut absent = Refusals(BTreeMap::new());
    ABSENT.iter().for_each(|&call| absent.always(call));
    absent.apply(libc::ENOSYS)?;
    Refusals::of(has_interfaces, serves, children)?.apply(libc::EPERM)
}
