//! `run`: a command in the shell of a sandbox.
//!
//! A long command is waited for in slices: so a call whose client leaves can interrupt it after at
//! most one slice, since the shell takes one action at a time.

use std::time::Duration;

use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

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
    let beginning: String = given.command.chars().take(80).collect();
    let command = || format!("running: {beginning}");
    // Goes on when the client has left, since only the answer of the shell tells what there is to interrupt.
    let left = CancellationToken::new();
    let _guard = left.clone().drop_guard();
    let work = tokio::spawn(run(call.clone(), given, limit, left));
    let done = call.progress.during(command, work).await;
    let (output, metadata) = done.map_err(|_| ToolError("the call broke off".into()))??;
    describe_end(output, &metadata, limit)
}

async fn run(
    call: Call,
    given: Arguments,
    limit: Duration,
    left: CancellationToken,
) -> Result<(BoundedText, CommandMetadata), ToolError> {
    let deadline = Instant::now() + limit;
    let mut output = BoundedText::default();
    let mut command = &*given.command;
    loop {
        // Each time, because the key may be revoked or the sandbox stopped meanwhile.
        let sandbox = call.find(&given.sandbox).await?;
        let next = Instant::now() + ACTION_INTERVAL;
        let rest = deadline.saturating_duration_since(Instant::now());
        // Whole seconds, because that is what a model is told.
        let slice = rest.min(SLICE).max(Duration::from_secs(1));
        let args = json!({"command": command, "is_input": given.input, "blocking": !given.input});
        let observation = call.act(&sandbox, "run", &args, slice).await?;
        let (text, metadata) = parts(content(observation)?);
        output.push(&text);
        if given.input || !is_running(&metadata) || Instant::now() >= deadline {
            return Ok((output, metadata));
        }
        let waited = left.run_until_cancelled(sleep_until(next)).await;
        if waited.is_none() || left.is_cancelled() {
            interrupt(&call, &sandbox).await;
            return Ok((output, metadata));
        }
        command = "";
    }
}

/// Interrupts the command of a call whose client has left.
async fn interrupt(call: &Call, sandbox: &Runtime) {
    let args = json!({"command": "C-c", "is_input": true});
    if let Err(error) = call.act(sandbox, "run", &args, SLICE).await {
        tracing::debug!(%error, "cannot interrupt a cancelled command");
    }
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
