//! Conformance cases as data: requests and expected responses.

use serde_json::{Value, json};

use super::environment::CaseEnvironment;
use crate::client::TestProcess;

const TAIL: &str = "You may wait longer to see additional output by sending empty command '', send other commands to interact with the current process, send keys (\"C-c\", \"C-z\", \"C-d\") to interrupt/kill the previous command before sending your new command, or use the timeout parameter in execute_bash for future commands.";
pub(super) const P2: &str = "[Below is the output of the previous command.]\n";

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
}

impl Case {
    fn check(&self, process: &TestProcess, environment: &CaseEnvironment) {
        for (step, number) in self.steps.iter().zip(1..) {
            let label = format!("{} as {}, step {number}", self.name, environment.user);
            step.check(process, &label);
        }
    }
}

pub(super) fn case(name: &'static str, steps: impl Into<Vec<Step>>) -> Case {
    let steps = steps.into();
    Case { name, steps }
}

#[derive(Clone)]
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
    pub(super) refused: bool,
}

/// A command that completes with status 0.
pub(super) fn run(command: &str) -> Step {
    Step {
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

pub(super) fn input(text: &str) -> Step {
    run(text).with("is_input", json!(true))
}

/// A command that stays running, polled until it has written `text`.
pub(super) fn start(command: &str, text: &str) -> Step {
    let step = run(command).times_out(0.2).any_prefix();
    Step {
        until: Some(text.to_owned()),
        ..step
    }
}

impl Step {
    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        self.args[name] = value;
        self
    }

    pub(super) fn gives(mut self, content: &str) -> Self {
        self.content = Some(content.to_owned());
        self
    }

    pub(super) fn contains(mut self, text: &str) -> Self {
        self.contains.push(text.to_owned());
        self
    }

    pub(super) fn lacks(mut self, text: &str) -> Self {
        self.lacks.push(text.to_owned());
        self
    }

    pub(super) fn exit(mut self, code: i64) -> Self {
        self.exit = code;
        self
    }

    pub(super) fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    pub(super) fn any_prefix(mut self) -> Self {
        self.prefix = None;
        self
    }

    pub(super) fn suffix(mut self, suffix: &str) -> Self {
        self.suffix = Some(suffix.to_owned());
        self
    }

    /// Expects C2.
    pub(super) fn by_key(self, key: char) -> Self {
        let code = self.exit;
        self.suffix(&format!(
            "\n[The command completed with exit code {code}. CTRL+{key} was sent.]"
        ))
    }

    /// Expects T1.
    pub(super) fn quiet(self) -> Self {
        self.exit(-1)
            .with("blocking", json!(false))
            .suffix(&format!(
                "\n[The command has no new output after 1 seconds. {TAIL}]"
            ))
    }

    /// Expects T2.
    pub(super) fn times_out(mut self, seconds: f64) -> Self {
        self.timeout = json!(seconds);
        self.exit(-1).suffix(&format!(
            "\n[The command timed out after {seconds:?} seconds. {TAIL}]"
        ))
    }

    /// Expects T3.
    pub(super) fn not_executed(self) -> Self {
        let suffix = format!(
            "\n[Your command \"{}\" is NOT executed. The previous command is still running - You CANNOT send new commands until the previous command is completed. By setting `is_input` to `true`, you can interact with the current process: {TAIL}]",
            self.command
        );
        self.exit(-1).suffix(&suffix)
    }

    /// Expects E1 or E2.
    pub(super) fn no_command_running(self, content: &str) -> Self {
        self.exit(-1).suffix("").gives(content)
    }

    /// Expects E3.
    pub(super) fn refused(mut self, commands: &[&str]) -> Self {
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

/// Checks each case in a server of its own and reports all failures.
pub(super) fn check_all(environment: &CaseEnvironment, cases: &[Case]) {
    let failed: Vec<_> = cases
        .iter()
        .enumerate()
        .filter(|(number, case)| {
            let process = environment.serve(&format!("case-{number}"));
            let steps = std::panic::AssertUnwindSafe(|| case.check(&process, environment));
            std::panic::catch_unwind(steps).is_err()
        })
        .map(|(_, case)| case.name)
        .collect();
    assert!(failed.is_empty(), "as {}: {failed:#?}", environment.user);
    eprintln!("{} cases as {}", cases.len(), environment.user);
}

/// Checks the cases one after the other in one server.
pub(super) fn check_in_one(environment: &CaseEnvironment, name: &str, cases: &[Case]) {
    let process = environment.serve(name);
    for case in cases {
        case.check(&process, environment);
    }
    eprintln!("{} cases as {}", cases.len(), environment.user);
}
