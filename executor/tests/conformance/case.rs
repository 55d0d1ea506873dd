//! Conformance cases as data: requests and expected responses.

use serde_json::{Value, json};

use super::environment::environments;
use crate::client::TestProcess;

const TAIL: &str = "You may wait longer to see additional output by sending empty command '', send other commands to interact with the current process, send keys (\"C-c\", \"C-z\", \"C-d\") to interrupt/kill the previous command before sending your new command, or use the timeout parameter in execute_bash for future commands.";
pub(super) const P2: &str = "[Below is the output of the previous command.]\n";

/// Cases in the order in which they were added. Steps belong to the case that was named last.
#[derive(Default)]
pub(super) struct Cases(Vec<(&'static str, Vec<Step>)>);

impl Cases {
    pub(super) fn case(&mut self, name: &'static str) {
        self.0.push((name, Vec::new()));
    }

    fn step(&mut self, command: &str) -> &mut Step {
        let (_, steps) = self.0.last_mut().expect("a case");
        steps.push(Step::new(command));
        steps.last_mut().expect("a step")
    }

    /// A command that completes with status 0.
    pub(super) fn run(&mut self, command: &str) -> &mut Step {
        self.step(command)
    }

    pub(super) fn input(&mut self, text: &str) -> &mut Step {
        self.step(text).with("is_input", json!(true))
    }

    /// A command that stays running, polled until it has written `text`.
    pub(super) fn start(&mut self, command: &str, text: &str) -> &mut Step {
        let step = self.step(command).times_out(0.2).any_prefix();
        step.until = Some(text.to_owned());
        step
    }

    /// Checks each case in a server of its own, as each user, and reports all failures.
    pub(super) fn check_all(&self) {
        for environment in environments() {
            let cases = self.0.iter().enumerate();
            let failed = cases.filter(|(number, (name, steps))| {
                let process = environment.serve(&format!("case-{number}"));
                let checked = || check(name, steps, &process, environment.user);
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(checked)).is_err()
            });
            let failed: Vec<_> = failed.map(|(_, (name, _))| name).collect();
            assert!(failed.is_empty(), "as {}: {failed:#?}", environment.user);
            eprintln!("{} cases as {}", self.0.len(), environment.user);
        }
    }

    /// Checks the cases one after the other in one server, as each user.
    pub(super) fn check_in_one(&self) {
        for environment in environments() {
            self.check_in(&environment.serve("cases"), environment.user);
        }
    }

    /// Checks the cases one after the other in this server.
    pub(super) fn check_in(&self, process: &TestProcess, user: &str) {
        for (name, steps) in &self.0 {
            check(name, steps, process, user);
        }
        eprintln!("{} cases as {user}", self.0.len());
    }
}

fn check(name: &str, steps: &[Step], process: &TestProcess, user: &str) {
    for (step, number) in steps.iter().zip(1..) {
        step.check(process, &format!("{name} as {user}, step {number}"));
    }
}

pub(super) struct Step {
    command: String,
    args: Value,
    timeout: Value,
    /// Repeats the empty command until the output contains this text.
    until: Option<String>,
    content: Option<String>,
    contains: Vec<String>,
    lacks: Vec<String>,
    exit: i64,
    prefix: Option<String>,
    suffix: Option<String>,
    refused: bool,
}

impl Step {
    fn new(command: &str) -> Self {
        Self {
            command: command.to_owned(),
            args: json!({"blocking": true}),
            timeout: json!(60),
            until: None,
            content: None,
            contains: Vec::new(),
            lacks: Vec::new(),
            exit: 0,
            prefix: Some(String::new()),
            suffix: None,
            refused: false,
        }
    }

    pub(super) fn with(&mut self, name: &str, value: Value) -> &mut Self {
        self.args[name] = value;
        self
    }

    pub(super) fn gives(&mut self, content: &str) -> &mut Self {
        self.content = Some(content.to_owned());
        self
    }

    pub(super) fn contains(&mut self, text: &str) -> &mut Self {
        self.contains.push(text.to_owned());
        self
    }

    pub(super) fn lacks(&mut self, text: &str) -> &mut Self {
        self.lacks.push(text.to_owned());
        self
    }

    pub(super) fn exit(&mut self, code: i64) -> &mut Self {
        self.exit = code;
        self
    }

    pub(super) fn prefix(&mut self, prefix: &str) -> &mut Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    pub(super) fn any_prefix(&mut self) -> &mut Self {
        self.prefix = None;
        self
    }

    pub(super) fn suffix(&mut self, suffix: &str) -> &mut Self {
        self.suffix = Some(suffix.to_owned());
        self
    }

    /// Expects C2.
    pub(super) fn by_key(&mut self, key: char) -> &mut Self {
        let code = self.exit;
        self.suffix(&format!(
            "\n[The command completed with exit code {code}. CTRL+{key} was sent.]"
        ))
    }

    /// Expects T1.
    pub(super) fn quiet(&mut self) -> &mut Self {
        self.exit(-1)
            .with("blocking", json!(false))
            .suffix(&format!(
                "\n[The command has no new output after 1 seconds. {TAIL}]"
            ))
    }

    /// Expects T2.
    pub(super) fn times_out(&mut self, seconds: f64) -> &mut Self {
        self.timeout = json!(seconds);
        self.exit(-1).suffix(&format!(
            "\n[The command timed out after {seconds:?} seconds. {TAIL}]"
        ))
    }

    /// Expects T3.
    pub(super) fn not_executed(&mut self) -> &mut Self {
        let suffix = format!(
            "\n[Your command \"{}\" is NOT executed. The previous command is still running - You CANNOT send new commands until the previous command is completed. By setting `is_input` to `true`, you can interact with the current process: {TAIL}]",
            self.command
        );
        self.exit(-1).suffix(&suffix)
    }

    /// Expects E1 or E2.
    pub(super) fn no_command_running(&mut self, content: &str) -> &mut Self {
        self.exit(-1).suffix("").gives(content)
    }

    /// Expects E3.
    pub(super) fn refused(&mut self, commands: &[&str]) -> &mut Self {
        let listed: Vec<_> = commands
            .iter()
            .zip(1..)
            .map(|(command, number)| format!("({number}) {command}"))
            .collect();
        self.refused = true;
        self.gives(&format!(
            "ERROR: Cannot execute multiple commands at once.\nPlease run each command separately OR chain them into a single command via && or ;\nProvided commands:\n{}",
            listed.join("\n")
        ))
    }

    fn send(&self, process: &TestProcess, command: &str) -> Value {
        let mut args = self.args.clone();
        args["command"] = json!(command);
        process.act(&json!({"action": "run", "args": args, "timeout": self.timeout}))
    }

    fn check(&self, process: &TestProcess, label: &str) {
        let mut answer = self.send(process, &self.command);
        let mut content = text(&answer, "/content");
        while let Some(until) = &self.until
            && !content.contains(until.as_str())
        {
            answer = self.send(process, "");
            assert_eq!(answer["success"], false, "{label}: ended early: {answer}");
            content += &text(&answer, "/content");
        }
        if self.refused {
            assert_eq!(answer["observation"], "error", "{label}");
            assert_eq!(answer["extras"], json!({"error_id": ""}), "{label}");
            assert_eq!(answer["message"], answer["content"], "{label}");
        } else {
            self.check_run(&answer, label);
        }
        if let Some(expected) = &self.content {
            assert_eq!(&content, expected, "{label}: content");
        }
        for part in &self.contains {
            assert!(
                content.contains(part.as_str()),
                "{label}: no {part:?} in {content:?}"
            );
        }
        for part in &self.lacks {
            assert!(
                !content.contains(part.as_str()),
                "{label}: {part:?} in {content:?}"
            );
        }
    }

    fn check_run(&self, answer: &Value, label: &str) {
        assert_eq!(answer["observation"], "run", "{label}: {answer}");
        let metadata = &answer["extras"]["metadata"];
        assert_eq!(
            metadata["exit_code"], self.exit,
            "{label}: exit code in {answer}"
        );
        assert_eq!(answer["success"], self.exit == 0, "{label}");
        let completed = format!("\n[The command completed with exit code {}.]", self.exit);
        let suffix = self.suffix.as_ref().unwrap_or(&completed);
        assert_eq!(
            &text(metadata, "/suffix"),
            suffix,
            "{label}: suffix in {answer}"
        );
        if let Some(prefix) = &self.prefix {
            assert_eq!(&text(metadata, "/prefix"), prefix, "{label}: prefix");
        }
        // Unknown fields are null: all of them or none.
        let known = self.exit != -1;
        for name in ["username", "hostname", "working_dir", "py_interpreter_path"] {
            assert_eq!(metadata[name].is_string(), known, "{label}: {name}");
        }
    }
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).unwrap().as_str().unwrap().to_owned()
}
