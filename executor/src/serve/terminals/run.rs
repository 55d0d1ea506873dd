//! Tasks of one terminal: its program, its input and its output, until it is not needed any more.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::outputs::Outputs;
use super::program::{Input, Program, Streams};
use super::request::TerminalRequest;
use super::terminal::{SizeChange, Terminal};
use crate::serve::output_log::Pace;

/// Messages of input that a program has not read yet; a viewer waits with the next one.
const MAX_QUEUED_INPUTS: usize = 4;
/// Time for which a program on a terminal waits for viewers. It runs on then, and they skip.
const SLOW_VIEWER_GRACE: Duration = Duration::from_millis(100);

/// Program with what its tasks need.
#[derive(derive_more::Debug)]
pub(super) struct Running {
    program: Program,
    #[debug(skip)]
    input: Input,
    queued: mpsc::Receiver<Bytes>,
    outputs: Outputs,
}

/// Makes a terminal of a program that has started.
pub(super) fn attach(
    id: String,
    command: Vec<String>,
    request: &TerminalRequest,
    (program, streams): (Program, Streams),
) -> (Arc<Terminal>, Running) {
    let (input, queued) = mpsc::channel(MAX_QUEUED_INPUTS);
    let size = SizeChange {
        size: request.size,
        by: None,
    };
    let terminal = Arc::new(Terminal {
        id,
        command,
        tty: request.tty,
        created_at: Timestamp::now(),
        output: Arc::default(),
        size: watch::Sender::new(size),
        exit: watch::Sender::new(None),
        input: Mutex::new(Some(input)),
        control: streams.control,
        is_seen: AtomicBool::new(false),
        deleted: CancellationToken::new(),
    });
    let running = Running {
        program,
        input: streams.input,
        queued,
        outputs: streams.outputs,
    };
    (terminal, running)
}

impl Running {
    /// Runs until the program has ended. Its last output may wait for viewers beyond that; the
    /// returned task ends with it, or when it is dropped.
    pub(super) async fn until_exit(mut self, terminal: &Arc<Terminal>) -> AbortOnDropHandle<()> {
        let _typing = spawn(type_in(self.input, self.queued));
        let pace = if terminal.tty {
            Pace::UpTo(SLOW_VIEWER_GRACE)
        } else {
            Pace::Complete
        };
        let exited = CancellationToken::new();
        let (log, has_exited) = (Arc::clone(&terminal.output), exited.clone());
        let outputs = self.outputs;
        let copying = spawn(async move {
            outputs.copy_to(&log, pace, &has_exited).await;
            // Viewers learn the exit after the output.
            has_exited.cancelled().await;
            log.end();
        });
        let exit = tokio::select! {
            exit = self.program.wait() => exit,
            () = terminal.deleted.cancelled() => self.program.end().await,
        };
        terminal.close_input();
        terminal.exit.send_replace(Some(exit));
        exited.cancel();
        copying
    }
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// Writes input until its end, or until the program has closed its own.
async fn type_in(mut input: Input, mut queued: mpsc::Receiver<Bytes>) {
    while let Some(bytes) = queued.recv().await {
        if input.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
