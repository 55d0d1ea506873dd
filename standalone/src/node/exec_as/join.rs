//! First step of a command in a running container: enters its cgroups and namespaces and installs
//! its system call filter. Then it runs the inner step from the container's read-only mount, so
//! that no program of the container can name a file of the host by `/proc/self/exe`.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;

use nix::libc;
use nix::sched::{CloneFlags, setns};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::set_no_new_privs;

use crate::node::seccomp::{self, FilterKind};

/// Enters the container with the first process `init`, a pidfd; child processes will be inside.
#[expect(unsafe_code, reason = "descriptors are inherited by number")]
pub(super) fn enter(init: RawFd, has_users: bool, cgroups: &[PathBuf]) -> io::Result<()> {
    for group in cgroups {
        fs::write(group.join("cgroup.procs"), "0")?;
    }
    let mut namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    namespaces.set(CloneFlags::CLONE_NEWUSER, has_users);
    // SAFETY: the node lets this process inherit the descriptor, and nothing closes it.
    let init = unsafe { BorrowedFd::borrow_raw(init) };
    Ok(setns(init, namespaces)?)
}

/// Confines as bubblewrap does: no container process can trace this one or open its executable.
#[expect(unsafe_code, reason = "no library has the call")]
pub(super) fn confine() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_no_new_privs(true)?;
    let mut program = seccomp::program(FilterKind::Sandbox);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len() / 8).map_err(io::Error::other)?,
        filter: program.as_mut_ptr().cast::<libc::c_void>().cast(),
    };
    // SAFETY: the kernel copies the program, of which `len` is the number of instructions.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
