//! What to type into the shell and what to answer: the algorithm of spec 4.4.
//!
//! A command that outlives its time stays in the terminal; later requests look at it, type into
//! it or interrupt it. If the shell itself ends, the next one takes its place at once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;
use tokio::time::Instant;

use super::report::Report;
use super::screen::Screen;
use super::terminal::{ShellError, Start, Terminal};
use super::{keys, messages, processes, syntax};

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
    /// Sessions of earlier shells whose jobs may still run.
    earlier: Vec<Pid>,
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
            earlier: Vec::new(),
        })
    }

    pub(in crate::serve) fn working_dir(&self) -> &Path {
        &self.working_dir
    }

    /// Ends the shell and everything it has started.
    pub(in crate::serve) async fn close(self) {
        for session in self.earlier {
            processes::kill_all_of(session);
        }
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
        let prompts = self.send(request).await?;
        match self.wait(request, prompts).await {
            Wait::Completed => Ok(self.completed(request)),
            Wait::Ended(code) => self.restart(code).await,
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
            ..Outcome::default()
        })
    }

    fn is_busy(&self) -> bool {
        let screen = self.terminal.screen();
        !screen.at_prompt && screen.ended.is_none()
    }

    /// Types what the request asks for; the number of prompts after which it is done.
    async fn send(&mut self, request: &Request) -> Result<u64, ShellError> {
        let (prompts, busy) = {
            let screen = self.terminal.screen();
            (screen.prompts, !screen.at_prompt)
        };
        let command = request.command.as_str();
        if command.is_empty() {
            return Ok(if busy { prompts + 1 } else { prompts });
        }
        if let Some((byte, _)) = keys::control(command) {
            return self.press(byte, busy, prompts).await;
        }
        self.typed = request.is_input || self.must_be_typed(command).await;
        if self.typed {
            let input = keys::named(command).filter(|_| request.is_input);
            let line = format!("{}\n", input.unwrap_or(command));
            self.terminal.type_in(line.as_bytes()).await?;
        } else {
            self.terminal.run(command).await?;
        }
        Ok(prompts + 1)
    }

    /// A command that bash would ask to complete.
    async fn must_be_typed(&self, command: &str) -> bool {
        is_typable(command) && syntax::is_incomplete(command, &self.start.identity).await
    }

    /// At an idle prompt only an interrupt and an end of input mean anything; another character
    /// would wait there to spoil the next command.
    async fn press(&mut self, byte: u8, busy: bool, prompts: u64) -> Result<u64, ShellError> {
        let (interrupt, end) = (byte == 3, byte == 4);
        if !busy && !interrupt && !end {
            return Ok(prompts);
        }
        if !busy {
            self.terminal.change(|screen| screen.text.clear());
        }
        self.terminal.type_in(&[byte]).await?;
        Ok(prompts + 1)
    }

    async fn wait(&self, request: &Request, prompts: u64) -> Wait {
        let began = Instant::now();
        let hard = request.timeout.filter(|seconds| *seconds > 0.0);
        let hard_limit = hard.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let deadline = hard_limit.and_then(|limit| began.checked_add(limit));
        let mut screen = self.terminal.watch();
        loop {
            let changed = match look(&screen.borrow_and_update(), prompts) {
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
            let content = trim(&screen.text.since_mark(), self.echo(request));
            let cut = screen.text.is_cut() && !screen.text.is_marked();
            let prefix = cut.then(|| messages::cut(content.lines().count()));
            (content, prefix.unwrap_or_default(), screen.report.clone())
        };
        self.terminal.change(|screen| screen.text.clear());
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
            timed_out: false,
        }
    }

    fn still_running(&mut self, request: &Request, suffix: String) -> Outcome {
        let (content, marked) = {
            let text = &self.terminal.screen().text;
            (
                trim(&text.since_mark(), self.echo(request)),
                text.is_marked(),
            )
        };
        self.terminal.change(|screen| screen.text.mark());
        self.pending = true;
        let prefix = if marked { messages::CONTINUED } else { "" };
        Outcome {
            content,
            prefix: prefix.to_owned(),
            suffix,
            report: None,
            timed_out: true,
        }
    }

    /// The shell itself has ended: tells so, and goes on in a new one at the same place.
    async fn restart(&mut self, code: i32) -> Result<Outcome, ShellError> {
        let content = trim(&self.terminal.screen().text.since_mark(), "");
        let places = [&self.working_dir, &self.start.working_dir];
        let place = places.into_iter().find(|place| place.is_dir());
        let start = Start {
            working_dir: place.cloned().unwrap_or_else(|| PathBuf::from("/")),
            ..self.start.clone()
        };
        let fresh = Terminal::start(&start, self.main).await?;
        let ended = std::mem::replace(&mut self.terminal, fresh);
        self.earlier.push(ended.session);
        self.earlier
            .retain(|session| processes::is_any_alive_of(*session));
        ended.retire().await;
        self.pending = false;
        self.working_dir = start.working_dir;
        let report = self.terminal.screen().report.clone();
        let place = self.working_dir.display().to_string();
        Ok(Outcome {
            content,
            prefix: String::new(),
            suffix: messages::completed(code) + &messages::restarted(&place),
            report: report.map(|report| Report {
                exit_code: code,
                ..report
            }),
            timed_out: false,
        })
    }
}

/// The outcome that the screen shows, or when it last changed.
fn look(screen: &Screen, prompts: u64) -> Result<Wait, Instant> {
    match screen.ended {
        Some(code) => Ok(Wait::Ended(code)),
        None if screen.prompts >= prompts && screen.at_prompt => Ok(Wait::Completed),
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
