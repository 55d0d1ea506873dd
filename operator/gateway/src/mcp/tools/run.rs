//! `run`: a command in the shell of a sandbox.
//!
//! A long command is waited for in slices: so a cancelled call can interrupt it after at most one
//! slice, since the shell takes one action at a time.

use std::time::Duration;

use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::{Effect, arguments, describe};
use crate::mcp::backend::ToolError;
use crate::mcp::call::{
    Call, CommandMetadata, Observation, Runtime, check_length, content, seconds,
};
use crate::mcp::output::{BoundedText, ToolResult, bounded, structured_parts};

const MAX_COMMAND_BYTES: usize = 64 << 10;
const DEFAULT_SECONDS: u64 = 120;
const MAX_SECONDS: u64 = 3600;
/// Longest time that one action takes.
const SLICE: Duration = Duration::from_secs(10);
/// Least time between two actions of a call. A server other than the executor may answer at once.
const ACTION_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the present slice, and for the program to react.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(40);
/// Part of the answer to a command while another one runs (`docs/specs/executor.md`, section 4.5, T3).
const NOT_EXECUTED: &str = "is NOT executed";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the sandbox, as returned by create.
    #[schemars(length(min = 1, max = 256))]
    sandbox: String,
    /// Shell command. Join several with && or ;. Empty: wait for more output of
    /// the command that is still running.
    #[schemars(length(max = 65536))]
    command: String,
    /// Seconds to wait for the end. A command that takes longer goes on in the background.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3600), extend("default" = 120))]
    timeout: Option<u64>,
    /// True: command is typed into the program that is running, followed by Enter. C-c interrupts it,
    /// C-d ends its input.
    #[serde(default)]
    input: bool,
}

pub(super) fn tool() -> Tool {
    describe::<Arguments>(
        "run",
        "Run a command",
        "Runs a shell command in a sandbox and returns its output and exit code. The shell is the same for all calls: \
         working directory and variables stay. Start servers in the background (command > log 2>&1 &). Long output \
         keeps its end or both ends.",
        Effect::Changes,
    )
}

pub(super) async fn call(call: &Call, given: JsonObject) -> ToolResult {
    let given: Arguments = arguments(given)?;
    check_length("command", &given.command, MAX_COMMAND_BYTES)?;
    let limit = seconds(given.timeout, DEFAULT_SECONDS, MAX_SECONDS)?;
    let sandbox = call.find(&given.sandbox).await?;
    let command = || {
        format!(
            "running: {}",
            given.command.chars().take(80).collect::<String>()
        )
    };
    let work = run(call, &sandbox, &given, limit);
    let (output, metadata) = call.progress.during(command, work).await?;
    describe_end(output, &metadata, limit)
}

async fn run(
    call: &Call,
    sandbox: &Runtime,
    given: &Arguments,
    limit: Duration,
) -> Result<(BoundedText, CommandMetadata), ToolError> {
    let deadline = Instant::now() + limit;
    let act = async |command: &str| {
        let left = deadline.saturating_duration_since(Instant::now());
        // Whole seconds, because that is what a model is told.
        let slice = left.min(SLICE).max(Duration::from_secs(1));
        let args = json!({"command": command, "is_input": given.input, "blocking": !given.input});
        let observation = call.act(sandbox, "run", &args, slice).await?;
        content(observation)
    };
    let ended = interrupt_on_cancellation(call, sandbox);
    let mut output = BoundedText::default();
    let mut next = Instant::now() + ACTION_INTERVAL;
    let (first, mut metadata) = parts(act(&given.command).await?);
    output.push(&first);
    while is_running(&metadata) && !given.input && Instant::now() < deadline {
        sleep_until(next).await;
        next = Instant::now() + ACTION_INTERVAL;
        let (more, after) = parts(act("").await?);
        output.push(&more);
        metadata = after;
    }
    // The task has ended if the client has left meanwhile.
    let _ = ended.send(());
    Ok((output, metadata))
}

fn is_running(metadata: &CommandMetadata) -> bool {
    metadata.exit_code == -1 && !metadata.suffix.contains(NOT_EXECUTED)
}

fn parts(observation: Observation) -> (String, CommandMetadata) {
    (
        observation.content,
        observation.extras.metadata.unwrap_or_default(),
    )
}

fn describe_end(
    mut output: BoundedText,
    metadata: &CommandMetadata,
    limit: Duration,
) -> ToolResult {
    if metadata.suffix.contains(NOT_EXECUTED) {
        return Err(ToolError(
            "the command was not run, because the one before is still running: wait for it with an empty command, or \
             interrupt it with command C-c and input true"
                .into(),
        ));
    }
    let running = is_running(metadata);
    let end = if running {
        let seconds = limit.as_secs();
        format!(
            "[still running after {seconds} s or waiting for input: wait on with an empty command, type with input \
             true, interrupt with command C-c and input true]"
        )
    } else {
        format!("[exit code {}]", metadata.exit_code)
    };
    let value = json!({
        "output": output.to_string(),
        "exit_code": (!running).then_some(metadata.exit_code),
        "running": running,
        "working_directory": metadata.working_dir.as_deref().map(bounded),
    });
    output.push(&end);
    structured_parts(&output, &value)
}

/// Interrupts the command of a call whose client leaves before the returned sender is used. The shell
/// takes the key after the present slice.
fn interrupt_on_cancellation(call: &Call, sandbox: &Runtime) -> oneshot::Sender<()> {
    let (ended, left) = oneshot::channel();
    let (backend, caller) = (call.backend.clone(), call.caller.clone());
    let target = (sandbox.id.clone(), sandbox.session_api_key.clone());
    let cancelled = call.cancelled.clone();
    tokio::spawn(async move {
        if left.await.is_ok() || !cancelled.is_cancelled() {
            return;
        }
        let args = json!({"command": "C-c", "is_input": true});
        let action = json!({"action": "run", "args": args, "timeout": SLICE.as_secs()});
        let body = json!({"action": action});
        let target = (&*target.0, &*target.1);
        let sent = backend.sandbox(&caller, target, "/execute_action", &body, INTERRUPT_TIMEOUT);
        if let Err(error) = sent.await.map(|_: IgnoredAny| ()) {
            tracing::debug!(%error, "cannot interrupt a cancelled command");
        }
    });
    ended
}
