//! Moves the counter of process numbers, so that new processes do not take those of a saved tree.

use std::io;
use std::thread;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::thread::gettid;

/// A thread that only tells its number needs one page and the room of the thread library.
const STACK_BYTES: usize = 32 * 1024;

/// Threads that run at one time. One by one, each would wait for the scheduler.
const BATCH_THREADS: u32 = 64;

/// Moves the counter until the next number of this PID namespace is above `last`, and returns the
/// highest one taken. Without the right to set it, numbers are taken by threads, at up to 0.1 ms each.
pub fn reserve_pids(last: u32) -> io::Result<u32> {
    let mut highest = take_pids(1)?;
    if highest < last && set_last_pid(last).is_ok() {
        highest = take_pids(1)?;
    }
    while highest < last {
        let reached = take_pids((last - highest).min(BATCH_THREADS))?;
        // The counter starts again at the namespace's maximum.
        if reached <= highest {
            break;
        }
        highest = reached;
    }
    Ok(highest)
}

/// Sets the number that was taken last, which needs `SYS_ADMIN` over the mounts. Containers have
/// `/proc/sys` read-only, by a mount of its own: the copy of `/proc` has no mounts, and is nowhere
/// attached.
fn set_last_pid(last: u32) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let proc = open_tree(CWD, c"/proc", flags)?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(&proc, c"sys/kernel/ns_last_pid", flags, Mode::empty())?;
    rustix::io::write(&file, last.to_string().as_bytes())?;
    Ok(())
}

/// Takes a number for each thread, and returns that of the last one, which is the highest.
fn take_pids(count: u32) -> io::Result<u32> {
    let mut threads = Vec::new();
    for _ in 0..count {
        threads.push(
            thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn(|| gettid().as_raw_nonzero().get().unsigned_abs())?,
        );
    }
    let mut last = 0;
    for thread in threads {
        last = thread
            .join()
            .map_err(|_| io::Error::other("a thread that took a process number panicked"))?;
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_process_number_is_above_reserved_ones() {
        let now = take_pids(1).unwrap();
        let reserved = reserve_pids(now + 50).unwrap();
        assert!(reserved >= now + 50);
        assert!(take_pids(1).unwrap() > reserved);
    }

    #[test]
    fn reserving_a_lower_number_takes_one() {
        let now = take_pids(1).unwrap();
        assert!(reserve_pids(1).unwrap() > now);
    }
}
