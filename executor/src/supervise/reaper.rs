//! Duties of PID 1: it reaps orphans and receives the signals of the container. Children are not
//! started through tokio, whose reaping would compete with this one.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::time::Instant;

/// Time in which killed processes end.
const KILL_GRACE: Duration = Duration::from_secs(5);
const KILL_INTERVAL: Duration = Duration::from_millis(1);

const FORWARDED: [(Signal, SignalKind); 6] = [
    (Signal::TERM, SignalKind::terminate()),
    (Signal::INT, SignalKind::interrupt()),
    (Signal::HUP, SignalKind::hangup()),
    (Signal::QUIT, SignalKind::quit()),
    (Signal::USR1, SignalKind::user_defined1()),
    (Signal::USR2, SignalKind::user_defined2()),
];

/// Signal that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalEvent {
    Child,
    Forward(Signal),
}

pub(super) struct Reaper {
    children: Stream,
    forwarded: Vec<(Signal, Stream)>,
    /// Signals that are received once more.
    returned: Vec<Signal>,
}

impl Reaper {
    pub(super) fn new() -> io::Result<Self> {
        if rustix::process::getpid() != Pid::INIT {
            // Only PID 1 gets orphans without this.
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        }
        let listen = |(name, kind)| signal(kind).map(|stream| (name, stream));
        let forwarded = FORWARDED.into_iter().map(listen);
        Ok(Self {
            children: signal(SignalKind::child())?,
            forwarded: forwarded.collect::<io::Result<_>>()?,
            returned: Vec::new(),
        })
    }

    /// Gives back a signal that could not be dealt with.
    pub(super) fn give_back(&mut self, signal: Signal) {
        self.returned.push(signal);
    }

    pub(super) async fn next_event(&mut self) -> SignalEvent {
        if let Some(signal) = self.returned.pop() {
            return SignalEvent::Forward(signal);
        }
        std::future::poll_fn(|context| {
            for (name, stream) in &mut self.forwarded {
                if stream.poll_recv(context).is_ready() {
                    return SignalEvent::Forward(*name).into();
                }
            }
            self.children.poll_recv(context).map(|_| SignalEvent::Child)
        })
        .await
    }
}

/// Reaps all ended children. Returns the exit status of `child` if it is one of them.
pub(super) fn reap(child: Option<Pid>) -> Option<u8> {
    let mut code = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if Some(pid) == child {
            code = Some(exit_code(status));
        }
    }
    code
}

/// Kills all processes of the container, also those that the kubelet has started in it. Outside of a
/// PID namespace of its own, the descendants alone.
pub(super) fn kill_all() {
    if rustix::process::getpid() == Pid::INIT {
        // The group of PID 1 stands for all processes but the caller (`kill -1`).
        let _ = rustix::process::kill_process_group(Pid::INIT, Signal::KILL);
    }
    kill_all_children();
}

/// Kills and reaps the remaining processes. Their orphans become children of this process, so it
/// repeats until there are no children. One that hangs in a system call is given up: it ends later,
/// without another instruction.
pub(super) fn kill_all_children() {
    let end = Instant::now() + KILL_GRACE;
    loop {
        for pid in children() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        reap(None);
        let left = children().len();
        if left == 0 {
            return;
        }
        if Instant::now() >= end {
            tracing::error!(left, "killed processes do not end");
            return;
        }
        std::thread::sleep(KILL_INTERVAL);
    }
}

fn children() -> Vec<Pid> {
    let pid = std::process::id();
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let Ok(list) = list else {
        return Vec::new();
    };
    let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter_map(Pid::from_raw).collect()
}

/// Exit status as a shell reports it: 128 + n after signal n.
fn exit_code(status: WaitStatus) -> u8 {
    let code = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
