//! What the system demands and the compiler cannot check: the moment between fork and exec, and
//! memory that the kernel maps. All `unsafe` of this crate is here.

use std::fs;
use std::io;

use rustix::mm::Advice;
use rustix::process::{Gid, Uid};
use rustix::thread::CapabilitySet;
use tokio::process::Command;

/// Changes the calling thread for good. Unlike the C library's functions these do not touch the
/// other threads; in a forked child there are none.
pub(crate) fn become_user(uid: Uid, gid: Gid, groups: &[Gid]) -> io::Result<()> {
    rustix::thread::set_thread_groups(groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Whether this process has what [`become_user`] takes. Unknown counts as yes: the attempt will tell.
pub(crate) fn may_change_user() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    rustix::thread::capabilities(None).map_or(true, |own| own.effective.contains(needed))
}

/// Makes a command run as a user. The standard library's `uid` and `gid` would drop the
/// supplementary groups.
#[expect(unsafe_code, reason = "runs between fork and exec: system calls only")]
pub(crate) fn run_as(command: &mut Command, uid: Uid, gid: Gid, groups: Vec<Gid>) {
    // SAFETY: the closure allocates nothing and makes three system calls.
    unsafe {
        command.pre_exec(move || become_user(uid, gid, &groups));
    }
}

/// Lets go of the program's code. Who waits for hours needs little of what starting took; the rest
/// comes back from the page cache when it is called.
#[expect(unsafe_code, reason = "tells the kernel which pages it may drop")]
pub(crate) fn give_back_code() {
    // Without `/proc` it just stays.
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, end) in maps.lines().filter_map(code) {
        let address = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the pages are a file's and cannot be written, so the kernel reads the same again.
        let _ = unsafe { rustix::mm::madvise(address, end - start, Advice::LinuxDontNeed) };
    }
}

/// The place of a mapping that is a file's code: `START-END r-xp OFFSET DEVICE INODE PATH`.
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
    fn only_a_files_code_is_given_back() {
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
        give_back_code();
        assert_eq!(code(line), Some((0x7f00, 0x9f00)));
    }
}
