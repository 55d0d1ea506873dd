//! Progress on standard error, if that is a terminal, from the second on that something takes.
//!
//! A command has one line, which says what is waited for. Output takes its place.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use client::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::text::escape;

/// Quick calls show nothing.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(120);

static CURRENT: Mutex<Current> = Mutex::new(Current {
    line: None,
    is_off: false,
});

/// The line of the command.
struct Current {
    line: Option<Line>,
    /// The terminal belongs to a program.
    is_off: bool,
}

/// Keeps the terminal free of lines until it is dropped.
#[derive(Debug)]
pub(crate) struct Off(());

/// Says what the command waits for, until it prints something.
pub(crate) fn waiting(message: &str) {
    let mut current = CURRENT.lock();
    if !current.is_off {
        let line = current.line.get_or_insert_with(Line::spinner);
        line.bar.set_message(escape(message));
    }
}

/// Shows a step of a start.
pub(crate) fn step(step: &Progress) {
    match &step.message {
        Some(message) => waiting(&format!("{}: {message}", step.status)),
        None => waiting(step.status.as_str()),
    }
}

/// Removes the line, because something else is shown.
pub(crate) fn clear() {
    CURRENT.lock().line = None;
}

/// Gives the terminal to a program.
pub(crate) fn off() -> Off {
    *CURRENT.lock() = Current {
        line: None,
        is_off: true,
    };
    Off(())
}

impl Drop for Off {
    fn drop(&mut self) {
        CURRENT.lock().is_off = false;
    }
}

/// A spinner, or the progress of a copy. Gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Line {
    bar: ProgressBar,
    delayed: Option<tokio::task::JoinHandle<()>>,
}

impl Line {
    fn spinner() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(style("{spinner} {msg} ({elapsed})"));
        Self::shown_later(bar)
    }

    /// A bar of bytes in place of the line, or a counter if the total is not known.
    pub(crate) fn bytes(message: &str, total: Option<u64>) -> Self {
        clear();
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        bar.set_style(match total {
            Some(_) => style(
                "{msg} {bar:24} {binary_bytes} of {binary_total_bytes} ({binary_bytes_per_sec})",
            ),
            None => style("{spinner} {msg} {binary_bytes} ({binary_bytes_per_sec})"),
        });
        bar.set_message(escape(message));
        Self::shown_later(bar)
    }

    fn shown_later(bar: ProgressBar) -> Self {
        let is_shown = io::stderr().is_terminal();
        let delayed = is_shown.then(|| {
            let bar = bar.clone();
            let begin = Instant::now() + SHOWN_AFTER;
            tokio::spawn(async move {
                tokio::time::sleep_until(begin).await;
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(TICK);
            })
        });
        Self { bar, delayed }
    }

    pub(crate) fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    pub(crate) fn position(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// Sets the position from another task.
    pub(crate) fn reporter(&self) -> impl Fn(u64) + Clone + Send + use<> {
        let bar = self.bar.clone();
        move |bytes| bar.set_position(bytes)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(delayed) = &self.delayed {
            delayed.abort();
        }
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
