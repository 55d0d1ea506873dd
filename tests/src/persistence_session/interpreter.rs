//! An interactive Python on a terminal of a sandbox, which gets a line after each pause.

use client::{NewTerminal, Terminal, TerminalEvent};

use super::pause;
use crate::session::Session;

const BEGIN: &str = "import hashlib, os; data = os.urandom(1 << 20); n = 0\r";
/// Prints the digest of the data and the number of the question.
const ASK: &str = "n += 1; print(hashlib.sha256(data).hexdigest(), n)\r";

/// Starts the interpreter, pauses and resumes: it goes on each time, with its data.
pub async fn interpreter_survives_pauses(session: &Session, rounds: u32) {
    let new = NewTerminal {
        command: vec!["python3".into(), "-i".into()],
        ..NewTerminal::default()
    };
    let terminal = session.sandbox.open_terminal(&new).await.unwrap();
    let first = ask(session, &terminal, BEGIN, 1).await;
    for round in 1..=rounds {
        let paused = pause(session).await;
        assert_eq!(paused["persisted"]["level"], "Memory", "{paused}");
        session.resume().await;
        session.ready().await;
        assert_eq!(ask(session, &terminal, "", round + 1).await, first);
    }
}

/// Types into the terminal; the digest of the answer with this number.
async fn ask(session: &Session, terminal: &Terminal, before: &str, number: u32) -> String {
    let mut viewer = session.sandbox.attach(terminal, false).await.unwrap();
    let input = viewer.input();
    for line in [before, ASK] {
        input.write(line.as_bytes()).await.unwrap();
    }
    let (mut seen, end) = (String::new(), format!(" {number}"));
    while let Some(event) = viewer.next().await.unwrap() {
        if let TerminalEvent::Output(data) = event {
            seen.push_str(&String::from_utf8_lossy(&data));
        }
        let mut digests = seen.lines().filter_map(|line| line.strip_suffix(&end));
        let is_digest =
            |text: &&str| text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
        if let Some(digest) = digests.find(is_digest) {
            return digest.to_owned();
        }
    }
    panic!("the interpreter has ended: {seen}");
}
