//! The duties of PID 1: every orphan ends here and must be waited for, and the signals meant for
//! the container must reach its command. Children are not started through tokio, whose own
//! waiting would compete with this one.

use std::io;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

const FORWARDED: [(Signal, SignalKind); 6] = [
    (Signal::TERM, SignalKind::terminate()),
    (Signal::INT, SignalKind::interrupt()),
    (Signal::HUP, SignalKind::hangup()),
    (Signal::QUIT, SignalKind::quit()),
    (Signal::USR1, SignalKind::user_defined1()),
    (Signal::USR2, SignalKind::user_defined2()),
];

/// What the kernel wants.
pub(super) enum Wake {
    Child,
    Forward(Signal),
}

pub(super) struct Reaper {
    children: Stream,
    forwarded: Vec<(Signal, Stream)>,
}

impl Reaper {
    pub(super) fn new() -> io::Result<Self> {
        if rustix::process::getpid() != Pid::INIT {
            // Any process but PID 1 must ask for its orphans.
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        }
        let listen = |(name, kind)| signal(kind).map(|stream| (name, stream));
        let forwarded = FORWARDED.into_iter().map(listen);
        Ok(Self {
            children: signal(SignalKind::child())?,
            forwarded: forwarded.collect::<io::Result<_>>()?,
        })
    }

    pub(super) async fn wake(&mut self) -> Wake {
        std::future::poll_fn(|context| {
            for (name, stream) in &mut self.forwarded {
                if stream.poll_recv(context).is_ready() {
                    return Wake::Forward(*name).into();
                }
            }
            self.children.poll_recv(context).map(|_| Wake::Child)
        })
        .await
    }
}

/// Waits for everything that has ended; the exit status of `child` if it was among them.
pub(super) fn reap(child: Option<Pid>) -> Option<u8> {
    let mut code = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if Some(pid) == child {
            code = Some(exit_code(status));
        }
    }
    code
}

/// Kills and waits for whatever the command left behind. Each death may hand over grandchildren,
/// so this goes on until the kernel knows of no child any more.
pub(super) fn end_all_children() {
    loop {
        let children = children();
        if children.is_empty() {
            return;
        }
        for pid in children {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
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

/// As a shell reports it: 128 + n for a death by signal n.
fn exit_code(status: WaitStatus) -> u8 {
    let code = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
