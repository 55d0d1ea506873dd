//! This terminal, or these pipes, connected to a program in a sandbox.

mod raw_mode;
mod signals;

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use client::{Session, SessionInput, Size, TerminalEvent};
use tokio::sync::mpsc;

use self::raw_mode::RawMode;
use self::signals::Resizes;
pub(crate) use self::signals::Signals;
use crate::failure::{Failure, exit_code};
use crate::progress;

const INPUT_BYTES: usize = 32 << 10;
/// Chunks that wait while the program does not read.
const INPUT_QUEUE: usize = 4;
/// Ctrl-P Ctrl-Q, as in Docker.
const DETACH_KEYS: [u8; 2] = [0x10, 0x11];
/// Most columns and rows of a terminal in a sandbox.
const MAX_SIZE: u16 = 1000;
const END_OF_TRANSMISSION: u8 = 4;
/// Exit code of a viewer that has left a program which goes on.
const DETACHED: u8 = 0;

/// A program to connect to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) tty: bool,
    /// Read standard input.
    pub(crate) input: bool,
    /// End the program when this tool is ended, and forget it afterwards.
    pub(crate) owned: bool,
}

/// Size of the terminal of standard output, or of standard error.
pub(crate) fn size() -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    let size = size
        .or_else(|_| rustix::termios::tcgetwinsize(rustix::stdio::stderr()))
        .ok()?;
    let is_known = size.ws_col > 0 && size.ws_row > 0;
    is_known.then(|| Size {
        width: size.ws_col.min(MAX_SIZE),
        height: size.ws_row.min(MAX_SIZE),
    })
}

/// True if a person types and reads here.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Connects until the program ends; its exit code.
pub(crate) async fn follow(mut session: Session, connection: Connection) -> Result<u8, Failure> {
    let _progress = progress::off();
    let raw_mode = if connection.tty && connection.input && io::stdin().is_terminal() {
        Some(RawMode::enter()?)
    } else {
        None
    };
    let (mut signals, mut resizes) = (Signals::new()?, Resizes::new()?);
    let input = session.input();
    let (detach, mut detached) = mpsc::channel(1);
    let pump = connection
        .input
        .then(|| tokio::spawn(pump(input.clone(), connection, detach.clone())));
    let done = loop {
        tokio::select! {
            event = session.next() => match event {
                Ok(Some(TerminalEvent::Exit(status))) => break Ok(exit_code(&status)),
                Ok(Some(event)) => if let Err(failure) = show(&event) {
                    break Err(failure);
                },
                Ok(None) => break Err(Failure::Local("the program ended without a status".into())),
                Err(error) => break Err(error.into()),
            },
            _ = detached.recv() => break Ok(DETACHED),
            // A broken connection is noticed by the output side.
            () = resizes.next(), if connection.tty && connection.input => if let Some(size) = size() {
                let input = input.clone();
                tokio::spawn(async move { input.resize(size).await });
            },
            signal = signals.ended() => break Err(Failure::Interrupted(signal)),
        }
    };
    drop(raw_mode);
    if let Some(pump) = pump {
        pump.abort();
    }
    if connection.owned {
        // The server forgets it by itself later.
        let _ = session.close().await;
    }
    done
}

fn show(event: &TerminalEvent) -> Result<(), Failure> {
    match event {
        TerminalEvent::Output(data) => {
            let mut out = io::stdout().lock();
            out.write_all(data)?;
            out.flush()?;
        }
        TerminalEvent::ErrorOutput(data) => io::stderr().lock().write_all(data)?,
        TerminalEvent::Skipped(count) => {
            // A terminal in raw mode does not return to the first column by itself.
            let text = format!("\r\n[{count} bytes of output were skipped]\r\n");
            io::stderr().lock().write_all(text.as_bytes())?;
        }
        TerminalEvent::Resized(_) | TerminalEvent::Offset(_) | TerminalEvent::Exit(_) => {}
    }
    Ok(())
}

/// Passes standard input on. A failure is that of the session, whose output side reports it.
async fn pump(input: SessionInput, connection: Connection, detach: mpsc::Sender<()>) {
    let mut chunks = read_input();
    let mut last = 0;
    while let Some(chunk) = chunks.recv().await {
        let ends = |pair: [u8; 2]| pair == DETACH_KEYS && connection.tty && !connection.owned;
        let previous = std::mem::replace(&mut last, chunk.last().copied().unwrap_or(0));
        let is_detach = chunk.windows(2).any(|pair| ends([pair[0], pair[1]]))
            || chunk.first().is_some_and(|first| ends([previous, *first]));
        if is_detach {
            let _ = detach.send(()).await;
            return;
        }
        if input.write(&chunk).await.is_err() {
            return;
        }
    }
    let _ = if connection.tty {
        input.write(&[END_OF_TRANSMISSION]).await
    } else {
        input.end().await
    };
    // The program goes on without input; the sender of detachments must live as long.
    detach.closed().await;
}

/// Reads standard input on a thread that does not hold up the end of the process.
fn read_input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(INPUT_QUEUE);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut buffer = vec![0; INPUT_BYTES];
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => {
                    if sender.blocking_send(buffer[..read].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    receiver
}
