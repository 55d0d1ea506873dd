//! Log of a test, line by line.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tracing::subscriber::DefaultGuard;

/// Captures the log of this thread until it is dropped.
#[derive(Debug)]
pub struct CapturedLog {
    lines: Lines,
    _guards: (tracing::Dispatch, DefaultGuard),
}

#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CapturedLog {
    pub fn start() -> Self {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        // With only one subscriber in the process, another test without a subscriber could disable a
        // callsite for both.
        let second = tracing::Dispatch::new(tracing_subscriber::registry());
        let guard = tracing::subscriber::set_default(subscriber);
        Self {
            lines,
            _guards: (second, guard),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.lines.0.lock().clone()).unwrap()
    }

    /// Lines of this target, each with the fields.
    pub fn of(&self, target: &str, fields: &[&str]) -> Vec<Value> {
        let text = self.text();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines = lines.filter(|line| line["target"] == target);
        lines
            .map(|line| fields.iter().map(|field| line[field].clone()).collect())
            .collect()
    }
}
