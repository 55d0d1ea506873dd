//! One run of CRIU: starts it, passes images and messages, and ends it at the time limit.

use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags,
    SocketType, recvmsg, send, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::images::ImageTransfer;
use super::log::LogTail;
use super::messages::{Response, notify_reply, parse_response};
use crate::deadline::{Deadline, to_timespec};
use crate::error::FailureReason;

/// Number of the message socket in CRIU; those that it inherits for the tree follow.
const RPC_DESCRIPTOR: i32 = 3;
pub(super) const FIRST_INHERITED: i32 = 10;
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Time in which CRIU undoes its work after a failure, before it is killed.
const UNDO_GRACE: Duration = Duration::from_secs(2);
/// Time in which a killed CRIU ends.
const KILL_GRACE: Duration = Duration::from_secs(1);

pub(super) struct Session {
    child: Child,
    /// Readable once CRIU has ended. Its children may keep the socket open after it.
    exit: OwnedFd,
    socket: OwnedFd,
    log_pipe: File,
    pub(super) log: LogTail,
    deadline: Deadline,
    limit: Duration,
    /// Descriptors that came with messages: masters of terminals.
    pub(super) received: Vec<OwnedFd>,
}

/// CRIU's final response.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) success: bool,
    pub(super) pid: Option<i32>,
    pub(super) error: String,
}

impl Session {
    pub(super) fn start(
        program: &Path,
        limit: Duration,
        inherited: Vec<OwnedFd>,
    ) -> Result<Self, FailureReason> {
        let (socket, remote) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let (log_pipe, log_end) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&log_pipe, OFlags::NONBLOCK)?;
        let mut mappings = vec![FdMapping {
            parent_fd: remote,
            child_fd: RPC_DESCRIPTOR,
        }];
        mappings.extend(
            (FIRST_INHERITED..)
                .zip(inherited)
                .map(|(child_fd, parent_fd)| FdMapping {
                    parent_fd,
                    child_fd,
                }),
        );
        let mut command = Command::new(program);
        // Configuration files and plugins could be the workload's: none is read. A folder of
        // descriptors has no plugins.
        command
            .args(["--no-default-config", "--libdir", "/proc/self/fdinfo"])
            .args(["--stream", "swrk"])
            .arg(RPC_DESCRIPTOR.to_string())
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_end)
            .fd_mappings(mappings)
            .map_err(|_| FailureReason::Protocol)?;
        let child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => FailureReason::ProgramMissing(program.to_owned()),
            ErrorKind::PermissionDenied => FailureReason::NotPermitted,
            _ => FailureReason::Io(error),
        })?;
        let exit = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok(Self {
            child,
            exit,
            socket,
            log_pipe: log_pipe.into(),
            log: LogTail::default(),
            deadline: Deadline::after(limit),
            limit,
            received: Vec::new(),
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(super) fn send(&self, message: &[u8]) -> Result<(), FailureReason> {
        send(&self.socket, message, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Runs until CRIU's final response. `reached` is called at each step, once the images of
    /// before it have arrived; an error makes CRIU undo its work.
    pub(super) fn run<T: ImageTransfer>(
        &mut self,
        transfer: &mut T,
        mut reached: impl FnMut(&str, &mut T) -> Result<(), FailureReason>,
    ) -> Result<Outcome, FailureReason> {
        let mut failure = None;
        let mut step: Option<String> = None;
        loop {
            // With a step at hand, what is ready is passed on first.
            let was_quiet = match self.wait(transfer, step.is_some()) {
                Ok(Event::Message(Response::Notify(name))) => {
                    step = Some(name);
                    false
                }
                Ok(Event::Message(Response::Done {
                    success,
                    pid,
                    error,
                })) => {
                    let outcome = Outcome {
                        success,
                        pid,
                        error,
                    };
                    return failure.map_or(Ok(outcome), Err);
                }
                Ok(Event::Ended) => return failure.map_or(Err(FailureReason::Criu), Err),
                Ok(Event::Quiet) => transfer.is_idle(),
                Ok(Event::Progress) => false,
                Err(error) if failure.is_some() => return failure.map_or(Err(error), Err),
                Err(error) => {
                    transfer.abort();
                    self.deadline = Deadline::after(UNDO_GRACE);
                    failure = Some(error);
                    false
                }
            };
            if (was_quiet || failure.is_some())
                && let Some(name) = step.take()
            {
                let answer = match &failure {
                    None => reached(&name, transfer),
                    Some(_) => Err(FailureReason::Criu),
                };
                self.send(&notify_reply(answer.is_ok()))?;
                if let Err(error) = answer {
                    failure.get_or_insert(error);
                }
            }
        }
    }

    /// Ends CRIU, at the latest after its grace, and reads the rest of its log.
    pub(super) fn finish(mut self) -> (LogTail, Vec<OwnedFd>) {
        let deadline = self.deadline.min(Deadline::after(UNDO_GRACE));
        while let Some(rest) = deadline.remaining() {
            let mut ends = [PollFd::new(&self.socket, PollFlags::IN)];
            let is_ready = poll(&mut ends, Some(&to_timespec(rest))) == Ok(1);
            if !is_ready || matches!(self.receive(), Ok(Event::Ended) | Err(_)) {
                break;
            }
        }
        // CRIU closes the socket as its last step. One that has not ended by now hangs.
        let _ = self.child.kill();
        // One that hangs in a system call ends later, without another instruction. Process 1 reaps
        // it.
        let mut end = [PollFd::new(&self.exit, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut end, Some(&to_timespec(KILL_GRACE)))) == Ok(1) {
            let _ = self.child.wait();
        }
        self.read_log();
        (self.log, self.received)
    }

    fn wait<T: ImageTransfer>(
        &mut self,
        transfer: &mut T,
        at_once: bool,
    ) -> Result<Event, FailureReason> {
        let rest = self
            .deadline
            .remaining()
            .ok_or(FailureReason::TimeLimit(self.limit))?;
        let rest = if at_once { Duration::ZERO } else { rest };
        let ready: Vec<PollFlags> = {
            let mut waiting = vec![
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::from_borrowed_fd(self.log_pipe.as_fd(), PollFlags::IN),
                PollFd::new(&self.exit, PollFlags::IN),
            ];
            waiting.extend(transfer.interests());
            match poll(&mut waiting, Some(&to_timespec(rest))) {
                Err(rustix::io::Errno::INTR) => return Ok(Event::Progress),
                result => result?,
            };
            waiting.iter().map(PollFd::revents).collect()
        };
        if !ready[1].is_empty() {
            self.read_log();
        }
        if ready[3..].iter().any(|ready| !ready.is_empty()) {
            transfer.handle(&ready[3..])?;
            return Ok(Event::Progress);
        }
        if ready[0].is_empty() && !ready[2].is_empty() {
            return Ok(Event::Ended);
        }
        if ready[0].is_empty() {
            return Ok(if at_once {
                Event::Quiet
            } else {
                Event::Progress
            });
        }
        self.receive()
    }

    fn receive(&mut self) -> Result<Event, FailureReason> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut message = vec![0; MAX_MESSAGE_BYTES];
        let received = recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut message)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        );
        for attached in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = attached {
                self.received.extend(descriptors);
            }
        }
        let length = match received {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(rustix::io::Errno::AGAIN) => return Ok(Event::Progress),
            Err(error) => return Err(error.into()),
        };
        if length == 0 {
            return Ok(Event::Ended);
        }
        let response = parse_response(&message[..length]).ok_or(FailureReason::Protocol)?;
        Ok(Event::Message(response))
    }

    fn read_log(&mut self) {
        let mut buffer = [0; 4096];
        // The pipe is non-blocking: it ends with an error when it is empty.
        while let Ok(length @ 1..) = self.log_pipe.read(&mut buffer) {
            self.log.append(&buffer[..length]);
        }
    }
}

enum Event {
    Message(Response),
    /// Images or log were passed on.
    Progress,
    /// Nothing was ready.
    Quiet,
    /// CRIU closed the socket.
    Ended,
}
