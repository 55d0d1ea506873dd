//! Runs requests in a shell: the algorithm of `docs/specs/executor.md`, section 4.4.
//!
//! A command that exceeds its timeout keeps running in the terminal. Later requests wait for it,
//! type into it or interrupt it. A shell that ends is replaced immediately.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::error::ShellError;
use super::launch_context::LaunchContext;
use super::prompt_report::PromptReport;
use super::request::{CommandOutcome, CommandUsage, Request, RunResponse};
use super::screen::Screen;
use super::terminal::Terminal;
use super::{key_names, messages, syntax};
use crate::serve::launch_dir;
use crate::serve::output_log::OutputLog;

/// Longest line that the terminal accepts in canonical mode, with some reserve, in bytes.
const MAX_TYPED_LINE: usize = 4000;

#[derive(Debug)]
pub(in crate::serve) struct Session {
    start: LaunchContext,
    /// Log of the output of the session that all commands share.
    log: Option<Arc<OutputLog>>,
    pub(in crate::serve) no_change: Duration,
    terminal: Terminal,
    pub(in crate::serve) working_dir: PathBuf,
    /// True if an earlier command was reported as still running.
    pending: bool,
    /// True if the last input was typed, so that the terminal has echoed it.
    typed: bool,
}

/// Condition that ends the wait of a request.
#[derive(Debug, Clone, Copy)]
enum WaitTarget {
    /// Total number of prompts.
    Prompts(u64),
    /// End of the command with this number. Another prompt may come first, for example when a
    /// program ended before it read all input. A command may also end a nested shell, and the
    /// outer shell does not report the number.
    Command { id: u64, shell: Option<i32> },
}

enum WaitResult {
    Completed,
    Ended(i32),
    NoChange,
    TimedOut(f64),
}

impl Session {
    /// Starts the session that all commands share, with a log, or one for a single command.
    pub(in crate::serve) async fn start(
        start: LaunchContext,
        no_change: Duration,
        log: Option<Arc<OutputLog>>,
    ) -> Result<Self, ShellError> {
        let terminal = Terminal::start(&start, log.as_ref()).await?;
        Ok(Self {
            working_dir: start.working_dir.clone(),
            start,
            log,
            no_change,
            terminal,
            pending: false,
            typed: false,
        })
    }

    /// Continues an unused session with another environment and directory. Another user, or
    /// variables that a running shell cannot take, need a new shell.
    pub(in crate::serve) async fn resume(
        mut self,
        start: LaunchContext,
        no_change: Duration,
    ) -> Result<Self, ShellError> {
        let changes = self.start.changes(&start);
        if let Some(variables) = changes.filter(|_| self.terminal.program.is_bash()) {
            let directory = start.launch_dir(Path::new("")).await;
            let directory = directory.map_err(ShellError::Directory)?;
            if self.terminal.enter(&directory, &variables).await.is_ok() {
                self.forget_output();
                self.working_dir.clone_from(&start.working_dir);
                return Ok(Self {
                    start,
                    no_change,
                    ..self
                });
            }
        }
        self.forget_output();
        let log = self.log.take();
        self.close().await;
        Self::start(start, no_change, log).await
    }

    /// Keeps the time before the first command from viewers.
    fn forget_output(&self) {
        if let Some(log) = &self.log {
            log.clear();
        }
    }

    /// Lets the shell of an unused session do something, so that its pages stay in memory.
    pub(in crate::serve) async fn touch(&mut self) -> Result<(), ShellError> {
        self.terminal.touch().await
    }

    /// The end and the usage of the command that is still running, if there is one.
    pub(in crate::serve) fn running_command(
        &self,
    ) -> Option<(
        impl Future<Output = ()> + Send + use<>,
        impl Fn() -> CommandUsage + Send + use<>,
    )> {
        let processes = self.terminal.processes();
        let mut screen = self.terminal.screen.subscribe();
        let output = screen.clone();
        let usage = move || CommandUsage {
            last_output: output.borrow().changed,
            cpu_ticks: processes.cpu_ticks(),
        };
        let ended = async move {
            // A closed terminal runs nothing either.
            let _ = screen.wait_for(|s| s.at_prompt || s.ended.is_some()).await;
        };
        self.is_busy().then_some((ended, usage))
    }

    /// Ends the shell and all processes of its session.
    pub(in crate::serve) async fn close(self) {
        self.terminal.close().await;
    }

    pub(in crate::serve) async fn run(
        &mut self,
        request: &Request,
    ) -> Result<RunResponse, ShellError> {
        if let Some(refusal) = self.no_command_running(request) {
            return Ok(RunResponse::Outcome(refusal));
        }
        if request.only_one && !request.is_input && self.terminal.program.is_bash() {
            let several = syntax::split_commands(&request.command, &self.start.identity).await;
            if let Some(commands) = several {
                return Ok(RunResponse::Refused(messages::several(&commands)));
            }
        }
        if !self.pending && self.terminal.screen.borrow().ended.is_some() {
            // An earlier attempt to replace the shell has failed.
            self.replace_terminal().await?;
        }
        if self.pending && !request.is_input && !request.command.is_empty() && self.is_busy() {
            let suffix = messages::not_executed(&request.command);
            return Ok(RunResponse::Outcome(CommandOutcome {
                timed_out: false,
                ..self.still_running(request, suffix)
            }));
        }
        let target = self.send(request).await?;
        let outcome = match self.wait(request, target).await {
            WaitResult::Completed => self.completed(request),
            WaitResult::Ended(code) => self.restart(request, code).await?,
            WaitResult::NoChange => {
                let suffix = messages::no_change(self.no_change.as_secs());
                self.still_running(request, suffix)
            }
            WaitResult::TimedOut(seconds) => {
                self.still_running(request, messages::timed_out(seconds))
            }
        };
        Ok(RunResponse::Outcome(outcome))
    }

    /// Response to a request for a running command when there is none.
    fn no_command_running(&self, request: &Request) -> Option<CommandOutcome> {
        if self.pending {
            return None;
        }
        let text = match (request.command.is_empty(), request.is_input) {
            (true, _) => messages::NOTHING_TO_SHOW,
            (false, true) => messages::NOTHING_TO_TYPE_INTO,
            (false, false) => return None,
        };
        Some(CommandOutcome {
            content: text.to_owned(),
            no_command_running: true,
            ..CommandOutcome::default()
        })
    }

    fn is_busy(&self) -> bool {
        let screen = self.terminal.screen.borrow();
        !screen.at_prompt && screen.ended.is_none()
    }

    /// Sends the command, input or key of the request.
    async fn send(&mut self, request: &Request) -> Result<WaitTarget, ShellError> {
        let (prompts, busy, shell) = {
            let screen = self.terminal.screen.borrow();
            let shell = screen.report.as_ref().map(|report| report.shell);
            (screen.prompts, !screen.at_prompt, shell)
        };
        let command = request.command.as_str();
        self.typed = false;
        if command.is_empty() {
            return Ok(WaitTarget::Prompts(prompts + u64::from(busy)));
        }
        let control = key_names::control(command).map(|(byte, _)| byte);
        // At an idle prompt only an interrupt and an end of input are sent. Any other character
        // would become part of the next command.
        if !busy && control.is_some_and(|byte| !matches!(byte, 3 | 4)) {
            return Ok(WaitTarget::Prompts(prompts));
        }
        self.typed = control.is_none() && (request.is_input || self.must_be_typed(command).await);
        if !busy {
            self.terminal
                .screen
                .send_modify(Screen::stash_earlier_output);
        }
        if let Some(byte) = control {
            self.terminal.type_in(&[byte]).await?;
            return Ok(WaitTarget::Prompts(prompts + 1));
        }
        if !self.typed {
            let id = self.terminal.run(command).await?;
            return Ok(WaitTarget::Command { id, shell });
        }
        let application_cursor = self.terminal.screen.borrow().text.application_cursor;
        let key = key_names::named(command, application_cursor).filter(|_| request.is_input);
        // The byte of the Enter key: full-screen programs distinguish it from a line feed.
        let line = format!("{}\r", key.unwrap_or(command));
        self.terminal.type_in(line.as_bytes()).await?;
        Ok(WaitTarget::Prompts(prompts + 1))
    }

    /// Name of the shell.
    pub(in crate::serve) fn shell(&self) -> &str {
        self.terminal.program.name()
    }

    /// True for a command that bash would ask to complete.
    async fn must_be_typed(&self, command: &str) -> bool {
        self.terminal.program.is_bash()
            && is_typable(command)
            && syntax::is_incomplete(command, &self.start.identity).await
    }

    async fn wait(&self, request: &Request, target: WaitTarget) -> WaitResult {
        let began = Instant::now();
        let hard = request.timeout.filter(|seconds| *seconds > 0.0);
        let hard_limit = hard.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let deadline = hard_limit.and_then(|limit| began.checked_add(limit));
        let mut screen = self.terminal.screen.subscribe();
        loop {
            let changed = match check_screen(&screen.borrow_and_update(), target) {
                Ok(wait) => return wait,
                Err(changed) => changed.max(began),
            };
            let quiet = (!request.blocking).then(|| changed + self.no_change);
            tokio::select! {
                changed = screen.changed() => if changed.is_err() { return WaitResult::Ended(-1) },
                () = until(quiet) => return WaitResult::NoChange,
                () = until(deadline) => return WaitResult::TimedOut(hard.unwrap_or_default()),
            }
        }
    }

    /// Unreported output without surrounding blanks and the echo of the terminal.
    fn output(&self, request: &Request) -> String {
        let text = self.terminal.screen.borrow().unreported_text();
        let echo = if self.typed { &request.command } else { "" };
        let text = text.trim();
        text.strip_prefix(echo).unwrap_or(text).trim().to_owned()
    }

    fn completed(&mut self, request: &Request) -> CommandOutcome {
        let content = self.output(request);
        let (prefix, report) = {
            let screen = self.terminal.screen.borrow();
            let cut = screen.text.is_cut() && !screen.text.has_reported;
            let prefix = cut.then(|| messages::cut(content.lines().count()));
            (prefix.unwrap_or_default(), screen.report.clone())
        };
        self.terminal.screen.send_modify(Screen::clear);
        self.pending = false;
        let code = report.as_ref().map_or(-1, |report| report.exit_code);
        if let Some(report) = &report {
            self.working_dir = PathBuf::from(&report.working_dir);
        }
        let suffix = match key_names::control(&request.command) {
            Some((_, key)) => messages::completed_by_key(code, key),
            None => messages::completed(code),
        };
        CommandOutcome {
            content,
            prefix,
            suffix,
            report,
            ..CommandOutcome::default()
        }
    }

    fn still_running(&mut self, request: &Request, suffix: String) -> CommandOutcome {
        let content = self.output(request);
        let continued = self.terminal.screen.borrow().text.has_reported;
        self.terminal.screen.send_modify(Screen::mark_reported);
        self.pending = true;
        let prefix = if continued { messages::CONTINUED } else { "" };
        CommandOutcome {
            content,
            prefix: prefix.to_owned(),
            suffix,
            timed_out: true,
            ..CommandOutcome::default()
        }
    }

    /// Reports the end of the shell and starts a new one in the same directory.
    async fn restart(
        &mut self,
        request: &Request,
        code: i32,
    ) -> Result<CommandOutcome, ShellError> {
        let content = self.output(request);
        self.pending = false;
        self.replace_terminal().await?;
        let report = self.terminal.screen.borrow().report.clone();
        let directory = self.working_dir.display().to_string();
        Ok(CommandOutcome {
            content,
            suffix: messages::completed(code) + &messages::restarted(&directory),
            report: report.map(|report| PromptReport {
                exit_code: code,
                ..report
            }),
            ..CommandOutcome::default()
        })
    }

    async fn replace_terminal(&mut self) -> Result<(), ShellError> {
        let mut start = LaunchContext {
            working_dir: PathBuf::from("/"),
            ..self.start.clone()
        };
        for directory in [&self.working_dir, &self.start.working_dir] {
            // One that does not respond counts as missing: commands must work again.
            let exists = launch_dir::is_dir(&start.identity, directory.clone()).await;
            if exists.unwrap_or(false) {
                start.working_dir.clone_from(directory);
                break;
            }
        }
        let fresh = Terminal::start(&start, self.log.as_ref()).await?;
        let ended = std::mem::replace(&mut self.terminal, fresh);
        ended.detach().await;
        self.working_dir = start.working_dir;
        Ok(())
    }
}

/// Returns the result that the screen shows, or the time of its last change.
fn check_screen(screen: &Screen, target: WaitTarget) -> Result<WaitResult, Instant> {
    let reached = || match (target, &screen.report) {
        (WaitTarget::Prompts(prompts), _) => screen.prompts >= prompts,
        (WaitTarget::Command { id, shell }, Some(report)) => {
            report.command_id == id || Some(report.shell) != shell
        }
        (WaitTarget::Command { .. }, None) => true,
    };
    match screen.ended {
        Some(code) => Ok(WaitResult::Ended(code)),
        None if screen.at_prompt && reached() => Ok(WaitResult::Completed),
        None => Err(screen.changed),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn is_typable(command: &str) -> bool {
    let printable = |character: char| !character.is_control() || matches!(character, '\n' | '\t');
    command.chars().all(printable) && command.lines().all(|line| line.len() < MAX_TYPED_LINE)
}
