//! System calls that need `unsafe`: code between fork and exec, a seccomp filter, and `madvise` on
//! mapped code. All `unsafe` of this crate is here.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use rustix::mm::Advice;
use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};
use tokio::process::Command;

/// Changes the credentials of the calling thread only, unlike the functions of the C library.
pub(crate) fn set_thread_credentials(uid: Uid, gid: Gid, groups: &[Gid]) -> io::Result<()> {
    rustix::thread::set_thread_groups(groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Hides environment and memory of this process from others of the same user: commands of the
/// sandbox must not read keys there. Programs that this process starts are not affected.
pub(crate) fn hide_from_own_user() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        eprintln!("sandbox-executor: cannot hide its environment: {error}");
    }
}

/// Returns whether this process may change its user; true if unknown, so that the attempt fails.
pub(crate) fn may_change_user() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    rustix::thread::capabilities(None).map_or(true, |own| own.effective.contains(needed))
}

/// Returns whether a file can be executed by some user.
pub(crate) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Makes a command run as a user. The standard library would drop the supplementary groups.
#[expect(unsafe_code, reason = "runs between fork and exec: system calls only")]
pub(crate) fn run_as(command: &mut Command, uid: Uid, gid: Gid, groups: Vec<Gid>) {
    // SAFETY: the closure allocates nothing and makes three system calls.
    unsafe {
        command.pre_exec(move || set_thread_credentials(uid, gid, &groups));
    }
}

/// Capabilities that a container has for the supervisor alone: to mount its root, and to save and
/// restore processes.
pub(crate) const SUPERVISOR_CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// Makes a program and all that it starts run without capabilities.
#[expect(unsafe_code, reason = "runs between fork and exec: system calls only")]
pub(crate) fn remove_capabilities(command: &mut std::process::Command, removed: CapabilitySet) {
    // SAFETY: the closure allocates nothing and makes system calls only.
    unsafe {
        command.pre_exec(move || drop_capabilities(removed));
    }
}

fn drop_capabilities(removed: CapabilitySet) -> io::Result<()> {
    let mut sets = capabilities(None)?;
    // Older kernels do not know each of them.
    let is_bound = |capability| capability_is_in_bounding_set(capability).unwrap_or(false);
    // The bounding set first: that needs SETPCAP, which may be one of them.
    for capability in removed.iter().filter(|capability| is_bound(*capability)) {
        if sets.effective.contains(CapabilitySet::SETPCAP) {
            remove_capability_from_bounding_set(capability)?;
        } else {
            // Users other than root could gain it by a program of root's only.
            set_no_new_privs(true)?;
        }
        // Fails only without ambient capabilities.
        let _ = configure_capability_in_ambient_set(capability, false);
    }
    sets.effective.remove(removed);
    sets.permitted.remove(removed);
    sets.inheritable.remove(removed);
    Ok(set_capabilities(None, sets)?)
}

/// Numbers of the calls of `io_uring`, the same on all architectures.
const IO_URING: [u32; 2] = [425, 427];

/// Hides `io_uring` from this process and from all that it starts: a process that uses it cannot be
/// saved, and programs such as Node.js do without it. CRIU is patched to take a filter that it runs
/// under itself for no filter of the tree.
///
/// # Errors
/// Without `SYS_ADMIN`, unless privileges cannot be gained.
#[expect(
    unsafe_code,
    reason = "libraries also set no_new_privs, which breaks sudo"
)]
pub(crate) fn hide_io_uring() -> io::Result<()> {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let [first, last] = IO_URING;
    let result = |value| step(0x06, 0, 0, value);
    let mut program = [
        step(0x20, 0, 0, 0),     // load the number of the call
        step(0x35, 0, 2, first), // below: allow
        step(0x25, 1, 0, last),  // above: allow
        result(libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        result(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len().try_into().map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, of which `len` is the number of steps.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const filter,
        )
    };
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!(
            "thread {thread} has another filter"
        ))),
    }
}

/// Releases code pages: a process that waits for hours needs few; the kernel reads them on use.
#[expect(unsafe_code, reason = "madvise on mapped code")]
pub(crate) fn release_code_pages() {
    // Without `/proc` the pages stay.
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, end) in maps.lines().filter_map(code) {
        let address = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the pages are a file's and cannot be written, so the kernel reads the same again.
        let _ = unsafe { rustix::mm::madvise(address, end - start, Advice::LinuxDontNeed) };
    }
}

/// Address range of a mapping of a file's code: `START-END r-xp OFFSET DEVICE INODE PATH`.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()? == "r-xp" && fields.nth(2)? != "0";
    let address = |text| usize::from_str_radix(text, 16).ok();
    is_code.then_some((address(start)?, address(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_file_code_are_released() {
        let line = "7f00-9f00 r-xp 0012b000 fe:00 1234                       /bin/x y";
        assert_eq!(code(line), Some((0x7f00, 0x9f00)));
        for line in [
            "7f00-9f00 r--p 0012b000 fe:00 1234   /bin/x",
            "7f00-9f00 rwxp 0012b000 fe:00 1234   /bin/x",
            "7f00-9f00 r-xp 00000000 00:00 0      [vdso]",
            "",
        ] {
            assert_eq!(code(line), None);
        }
        release_code_pages();
        assert_eq!(code(line), Some((0x7f00, 0x9f00)));
    }
}
