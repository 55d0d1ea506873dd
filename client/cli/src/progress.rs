//! Progress on standard error, if that is a terminal, from the second on that something takes.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use client::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use crate::text::escape;

/// Quick calls show nothing.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(120);

/// A line that shows what is waited for. Gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Line {
    bar: ProgressBar,
    delayed: Option<tokio::task::JoinHandle<()>>,
}

impl Line {
    /// A spinner with a message.
    pub(crate) fn waiting(message: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(style("{spinner} {msg} ({elapsed})"));
        bar.set_message(escape(message));
        Self::shown_later(bar)
    }

    /// A bar of bytes, or a counter if the total is not known.
    pub(crate) fn bytes(message: &str, total: Option<u64>) -> Self {
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

    pub(crate) fn message(&self, text: &str) {
        self.bar.set_message(escape(text));
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

    /// Shows a step of a start.
    pub(crate) fn step(&self, step: &Progress) {
        let text = match &step.message {
            Some(message) => format!("{}: {message}", step.status),
            None => step.status.to_string(),
        };
        self.message(&text);
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
