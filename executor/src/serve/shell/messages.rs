//! Texts around the output of a command. Agents and clients match on them
//! (`docs/specs/executor.md`, section 4.5).

pub(super) const NOTHING_TO_SHOW: &str =
    "ERROR: No previous running command to retrieve logs from.";
pub(super) const NOTHING_TO_TYPE_INTO: &str =
    "ERROR: No previous running command to interact with.";
pub(super) const CONTINUED: &str = "[Below is the output of the previous command.]\n";

const TAIL: &str = "You may wait longer to see additional output by sending empty command '', \
    send other commands to interact with the current process, send keys (\"C-c\", \"C-z\", \"C-d\") \
    to interrupt/kill the previous command before sending your new command, or use the timeout \
    parameter in execute_bash for future commands.";

pub(super) fn completed(exit_code: i32) -> String {
    format!("\n[The command completed with exit code {exit_code}.]")
}

pub(super) fn completed_by_key(exit_code: i32, key: char) -> String {
    format!("\n[The command completed with exit code {exit_code}. CTRL+{key} was sent.]")
}

pub(super) fn no_change(seconds: u64) -> String {
    format!("\n[The command has no new output after {seconds} seconds. {TAIL}]")
}

/// Formats the seconds as Python prints a float: `2.5`, `120.0`.
pub(super) fn timed_out(seconds: f64) -> String {
    format!("\n[The command timed out after {seconds:?} seconds. {TAIL}]")
}

pub(super) fn not_executed(command: &str) -> String {
    format!(
        "\n[Your command \"{command}\" is NOT executed. The previous command is still running - \
         You CANNOT send new commands until the previous command is completed. By setting \
         `is_input` to `true`, you can interact with the current process: {TAIL}]"
    )
}

pub(super) fn cut(lines: usize) -> String {
    format!(
        "[Previous command outputs are truncated. Showing the last {lines} lines of the output \
         below.]\n"
    )
}

pub(super) fn several(commands: &[String]) -> String {
    let numbered = commands.iter().zip(1..);
    let listed: Vec<_> = numbered
        .map(|(command, number)| format!("({number}) {command}"))
        .collect();
    format!(
        "ERROR: Cannot execute multiple commands at once.\nPlease run each command separately OR \
         chain them into a single command via && or ;\nProvided commands:\n{}",
        listed.join("\n")
    )
}

pub(super) fn restarted(working_dir: &str) -> String {
    format!("\n[The shell has ended. A new shell was started in {working_dir}.]")
}
