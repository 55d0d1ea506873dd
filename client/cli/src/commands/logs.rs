//! `sandbox logs`.

use std::io::{self, IsTerminal as _};

use client::{Client, LogEnd, LogEvent, LogLine, LogOptions};

use crate::failure::Failure;
use crate::names;
use crate::output::{hint, print};
use crate::text::escape_lines;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id, runtime id or unique prefix
    name: String,
    /// Print further lines as they are written
    #[arg(long, short = 'f', conflicts_with = "previous")]
    follow: bool,
    /// Lines before the present end, at most 5000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=5000))]
    tail: u32,
    /// Print the log of the run before the last restart of the container
    #[arg(long)]
    previous: bool,
    /// Begin each line with its time
    #[arg(long)]
    timestamps: bool,
}

pub(crate) async fn run(client: &Client, args: &Args) -> Result<(), Failure> {
    let info = names::find(client, &args.name).await?;
    let options = LogOptions {
        tail: Some(args.tail),
        follow: args.follow,
        previous: args.previous,
    };
    let mut log = client.logs(&info.runtime_id, options).await?;
    let is_terminal = io::stdout().is_terminal();
    loop {
        match log.next().await? {
            LogEvent::Line(line) => print(render(&line, args.timestamps, is_terminal))?,
            LogEvent::End(LogEnd::Replaced) => {
                hint("the Pod of the sandbox was replaced; its log follows");
            }
            LogEvent::End(end) => return finish(end),
        }
    }
}

/// One line as it is printed. A terminal gets no control characters.
fn render(line: &LogLine, has_time: bool, is_terminal: bool) -> String {
    let text = if is_terminal {
        escape_lines(&line.text)
    } else {
        line.text.clone()
    };
    let time = line.time.filter(|_| has_time);
    let time = time.map_or_else(String::new, |time| format!("{time} "));
    let cut = if line.cut { " […]" } else { "" };
    format!("{time}{text}{cut}\n")
}

fn finish(end: LogEnd) -> Result<(), Failure> {
    match end {
        LogEnd::Unavailable => {
            let text = "the cluster does not give the log; try again later";
            return Err(client::Error::Unavailable(text.into()).into());
        }
        LogEnd::Starting => hint("the sandbox has no output yet; -f waits for it"),
        LogEnd::Paused => hint("the sandbox is paused"),
        LogEnd::Stopped => hint("the sandbox was stopped"),
        LogEnd::Failed => hint("the sandbox has failed"),
        LogEnd::Complete | LogEnd::Replaced | LogEnd::Unknown => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_gets_no_control_characters() {
        let line = LogLine {
            time: "2026-01-01T00:00:00.5Z".parse().ok(),
            text: "a\u{1b}[2J\tb\r".into(),
            cut: true,
        };
        assert_eq!(render(&line, false, true), "a\\u{1b}[2J\tb\\r […]\n");
        let plain = "2026-01-01T00:00:00.5Z a\u{1b}[2J\tb\r […]\n";
        assert_eq!(render(&line, true, false), plain);
    }
}
