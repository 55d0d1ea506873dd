//! What to type into the shell and what to answer: the algorithm of spec 4.4.
//!
//! A command that outlives its time stays in the terminal; later requests look at it, type into
//! it or interrupt it. If the shell itself ends, the next one takes its place at once.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::report::Report;
use super::screen::Screen;
use super::terminal::{ShellError, Start, Terminal};
use super::{keys, messages, syntax};

/// The terminal takes no longer line while it collects lines.
const MAX_TYPED_LINE: usize = 4000;

#[derive(Debug, Clone)]
pub(in crate::serve) struct Request {
    /// Without blanks around it.
    pub(in crate::serve) command: String,
    pub(in crate::serve) is_input: bool,
    /// Do not stop waiting because nothing is written.
    pub(in crate::serve) blocking: bool,
    pub(in crate::serve) timeout: Option<f64>,
    /// Refuse several commands on lines of their own.
    pub(in crate::serve) only_one: bool,
}

/// The answer to a request.
#[derive(Debug)]
pub(in crate::serve) enum Answer {
    Outcome(Outcome),
    /// Nothing was done; the text says why.
    Refused(String),
}

/// What came of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct Outcome {
    pub(in crate::serve) content: String,
    pub(in crate::serve) prefix: String,
    pub(in crate::serve) suffix: String,
    /// There was no command to speak of.
    pub(in crate::serve) nothing_there: bool,
    /// Present if the command has ended.
    pub(in crate::serve) report: Option<Report>,
    /// The command is still running because its time was over.
    pub(in crate::serve) timed_out: bool,
}

#[derive(Debug)]
pub(in crate::serve) struct Session {
    start: Start,
    main: bool,
    no_change: Duration,
    terminal: Terminal,
    working_dir: PathBuf,
    /// An earlier command was reported as still running.
    pending: bool,
    /// The last input went through the terminal, which has echoed it.
    typed: bool,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy)]
enum Goal {
    /// So many prompts.
    Prompts(u64),
    /// The end of the command with this number. Another prompt may come before, as when a program
    /// has ended before it read all that was typed; but a command may also end this very shell,
    /// and what prompts next has not heard of it.
    Command { id: u64, shell: Option<i32> },
}

/// Why waiting ended.
enum Wait {
    Completed,
    Ended(i32),
    NoChange,
    TimedOut(f64),
}

impl Session {
    /// The one session that all ordinary commands share.
    pub(in crate::serve) async fn main(
        start: Start,
        no_change: Duration,
    ) -> Result<Self, ShellError> {
        Self::open(start, no_change, true).await
    }

    /// A session for one command.
    pub(in crate::serve) async fn fresh(
        start: Start,
        no_change: Duration,
    ) -> Result<Self, ShellError> {
        Self::open(start, no_change, false).await
    }

    async fn open(start: Start, no_change: Duration, main: bool) -> Result<Self, ShellError> {
        let terminal = Terminal::start(&start, main).await?;
        Ok(Self {
            working_dir: start.working_dir.clone(),
            start,
            main,
            no_change,
            terminal,
            pending: false,
            typed: false,
        })
    }

    pub(in crate::serve) fn working_dir(&self) -> &Path {
        &self.working_dir
    }

    /// Ends when the command does that is still running, if there is one.
    pub(in crate::serve) fn rest(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let mut screen = self.terminal.watch();
        self.is_busy().then_some(async move {
            // A terminal that is gone runs nothing either.
            let _ = screen.wait_for(|s| s.at_prompt || s.ended.is_some()).await;
        })
    }

    /// Ends the shell and what belongs to it.
    pub(in crate::serve) async fn close(self) {
        self.terminal.close().await;
    }

    pub(in crate::serve) async fn run(&mut self, request: &Request) -> Result<Answer, ShellError> {
        if let Some(refusal) = self.nothing_there(request) {
            return Ok(Answer::Outcome(refusal));
        }
        if request.only_one && !request.is_input {
            let several = syntax::several(&request.command, &self.start.identity).await;
            if let Some(commands) = several {
                return Ok(Answer::Refused(messages::several(&commands)));
            }
        }
        if self.pending && !request.is_input && !request.command.is_empty() && self.is_busy() {
            let suffix = messages::not_executed(&request.command);
            return Ok(Answer::Outcome(Outcome {
                timed_out: false,
                ..self.still_running(request, suffix)
            }));
        }
        self.perform(request).await.map(Answer::Outcome)
    }

    async fn perform(&mut self, request: &Request) -> Result<Outcome, ShellError> {
        let goal = self.send(request).await?;
        match self.wait(request, goal).await {
            Wait::Completed => Ok(self.completed(request)),
            Wait::Ended(code) => self.restart(request, code).await,
            Wait::NoChange => {
                let suffix = messages::no_change(self.no_change.as_secs());
                Ok(self.still_running(request, suffix))
            }
            Wait::TimedOut(seconds) => {
                Ok(self.still_running(request, messages::timed_out(seconds)))
            }
        }
    }

    /// Requests about a running command when there is none.
    fn nothing_there(&self, request: &Request) -> Option<Outcome> {
        if self.pending {
            return None;
        }
        let text = match (request.command.is_empty(), request.is_input) {
            (true, _) => messages::NOTHING_TO_SHOW,
            (false, true) => messages::NOTHING_TO_TYPE_INTO,
            (false, false) => return None,
        };
        Some(Outcome {
            content: text.to_owned(),
            nothing_there: true,
            ..Outcome::default()
        })
    }

    fn is_busy(&self) -> bool {
        let screen = self.terminal.screen();
        !screen.at_prompt && screen.ended.is_none()
    }

    /// Types what the request asks for.
    async fn send(&mut self, request: &Request) -> Result<Goal, ShellError> {
        let (prompts, busy, shell) = {
            let screen = self.terminal.screen();
            let shell = screen.report.as_ref().map(|report| report.shell);
            (screen.prompts, !screen.at_prompt, shell)
        };
        let command = request.command.as_str();
        self.typed = false;
        if command.is_empty() {
            return Ok(Goal::Prompts(prompts + u64::from(busy)));
        }
        if let Some((byte, _)) = keys::control(command) {
            return self.press(byte, busy, prompts).await;
        }
        self.typed = request.is_input || self.must_be_typed(command).await;
        if !busy {
            self.terminal.change(Screen::set_aside);
        }
        if !self.typed {
            let id = self.terminal.run(command).await?;
            return Ok(Goal::Command { id, shell });
        }
        let key = keys::named(command).filter(|_| request.is_input);
        // What the key says: programs that draw tell it from a line feed.
        let line = format!("{}\r", key.unwrap_or(command));
        self.terminal.type_in(line.as_bytes()).await?;
        Ok(Goal::Prompts(prompts + 1))
    }

    /// A command that bash would ask to complete.
    async fn must_be_typed(&self, command: &str) -> bool {
        is_typable(command) && syntax::is_incomplete(command, &self.start.identity).await
    }

    /// At an idle prompt only an interrupt and an end of input mean anything; another character
    /// would wait there to spoil the next command.
    async fn press(&mut self, byte: u8, busy: bool, prompts: u64) -> Result<Goal, ShellError> {
        let (interrupt, end) = (byte == 3, byte == 4);
        if !busy && !interrupt && !end {
            return Ok(Goal::Prompts(prompts));
        }
        if !busy {
            self.terminal.change(Screen::set_aside);
        }
        self.terminal.type_in(&[byte]).await?;
        Ok(Goal::Prompts(prompts + 1))
    }

    async fn wait(&self, request: &Request, goal: Goal) -> Wait {
        let began = Instant::now();
        let hard = request.timeout.filter(|seconds| *seconds > 0.0);
        let hard_limit = hard.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let deadline = hard_limit.and_then(|limit| began.checked_add(limit));
        let mut screen = self.terminal.watch();
        loop {
            let changed = match look(&screen.borrow_and_update(), goal) {
                Ok(wait) => return wait,
                Err(changed) => changed.max(began),
            };
            let quiet = (!request.blocking).then(|| changed + self.no_change);
            tokio::select! {
                news = screen.changed() => if news.is_err() { return Wait::Ended(-1) },
                () = until(quiet) => return Wait::NoChange,
                () = until(deadline) => return Wait::TimedOut(hard.unwrap_or_default()),
            }
        }
    }

    fn echo<'a>(&self, request: &'a Request) -> &'a str {
        if self.typed { &request.command } else { "" }
    }

    fn completed(&mut self, request: &Request) -> Outcome {
        let (content, prefix, report) = {
            let screen = self.terminal.screen();
            let content = trim(&screen.new_text(), self.echo(request));
            let cut = screen.text.is_cut() && !screen.text.is_told();
            let prefix = cut.then(|| messages::cut(content.lines().count()));
            (content, prefix.unwrap_or_default(), screen.report.clone())
        };
        self.terminal.change(Screen::clear);
        self.pending = false;
        let code = report.as_ref().map_or(-1, |report| report.exit_code);
        if let Some(report) = &report {
            self.working_dir = PathBuf::from(&report.working_dir);
        }
        let suffix = match keys::control(&request.command) {
            Some((_, key)) => messages::completed_by_key(code, key),
            None => messages::completed(code),
        };
        Outcome {
            content,
            prefix,
            suffix,
            report,
            ..Outcome::default()
        }
    }

    fn still_running(&mut self, request: &Request, suffix: String) -> Outcome {
        let (content, told) = {
            let screen = self.terminal.screen();
            let content = trim(&screen.new_text(), self.echo(request));
            (content, screen.text.is_told())
        };
        self.terminal.change(Screen::tell);
        self.pending = true;
        let prefix = if told { messages::CONTINUED } else { "" };
        Outcome {
            content,
            prefix: prefix.to_owned(),
            suffix,
            timed_out: true,
            ..Outcome::default()
        }
    }

    /// The shell itself has ended: tells so, and goes on in a new one at the same place.
    async fn restart(&mut self, request: &Request, code: i32) -> Result<Outcome, ShellError> {
        let content = trim(&self.terminal.screen().new_text(), self.echo(request));
        let places = [&self.working_dir, &self.start.working_dir];
        let place = places.into_iter().find(|place| place.is_dir());
        let start = Start {
            working_dir: place.cloned().unwrap_or_else(|| PathBuf::from("/")),
            ..self.start.clone()
        };
        let fresh = Terminal::start(&start, self.main).await?;
        let ended = std::mem::replace(&mut self.terminal, fresh);
        ended.retire().await;
        self.pending = false;
        self.working_dir = start.working_dir;
        let report = self.terminal.screen().report.clone();
        let place = self.working_dir.display().to_string();
        Ok(Outcome {
            content,
            suffix: messages::completed(code) + &messages::restarted(&place),
            report: report.map(|report| Report {
                exit_code: code,
                ..report
            }),
            ..Outcome::default()
        })
    }
}

/// The outcome that the screen shows, or when it last changed.
fn look(screen: &Screen, goal: Goal) -> Result<Wait, Instant> {
    let reached = || match (goal, &screen.report) {
        (Goal::Prompts(prompts), _) => screen.prompts >= prompts,
        (Goal::Command { id, shell }, Some(report)) => {
            report.command_id == id || Some(report.shell) != shell
        }
        (Goal::Command { .. }, None) => true,
    };
    match screen.ended {
        Some(code) => Ok(Wait::Ended(code)),
        None if screen.at_prompt && reached() => Ok(Wait::Completed),
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

/// Output without blanks around it, and without what the terminal echoed.
fn trim(text: &str, echo: &str) -> String {
    let text = text.trim();
    text.strip_prefix(echo).unwrap_or(text).trim().to_owned()
}
