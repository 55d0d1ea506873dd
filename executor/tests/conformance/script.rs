//! Cases as data: what is sent and what must come back.

use serde_json::{Value, json};

use super::world::World;
use crate::client::Process;

const TAIL: &str = "You may wait longer to see additional output by sending empty command '', send other commands to interact with the current process, send keys (\"C-c\", \"C-z\", \"C-d\") to interrupt/kill the previous command before sending your new command, or use the timeout parameter in execute_bash for future commands.";
pub(super) const P2: &str = "[Below is the output of the previous command.]\n";

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
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
    /// Repeat with the empty command until this much has been written.
    until: Option<String>,
    content: Option<String>,
    contains: Vec<String>,
    lacks: Vec<String>,
    exit: i64,
    prefix: Option<String>,
    suffix: Option<String>,
    pub(super) refused: bool,
}

/// `command`, which completes with status 0.
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

/// A command that stays running, looked at again and again until it has written `text`.
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

    /// C2
    pub(super) fn by_key(self, key: char) -> Self {
        let code = self.exit;
        self.suffix(&format!(
            "\n[The command completed with exit code {code}. CTRL+{key} was sent.]"
        ))
    }

    /// T1
    pub(super) fn quiet(self) -> Self {
        self.exit(-1)
            .with("blocking", json!(false))
            .suffix(&format!(
                "\n[The command has no new output after 1 seconds. {TAIL}]"
            ))
    }

    /// T2
    pub(super) fn times_out(mut self, seconds: f64) -> Self {
        self.timeout = json!(seconds);
        self.exit(-1).suffix(&format!(
            "\n[The command timed out after {seconds:?} seconds. {TAIL}]"
        ))
    }

    /// T3
    pub(super) fn not_executed(self) -> Self {
        let suffix = format!(
            "\n[Your command \"{}\" is NOT executed. The previous command is still running - You CANNOT send new commands until the previous command is completed. By setting `is_input` to `true`, you can interact with the current process: {TAIL}]",
            self.command
        );
        self.exit(-1).suffix(&suffix)
    }

    /// E1, E2
    pub(super) fn nothing_there(self, content: &str) -> Self {
        self.exit(-1).suffix("").gives(content)
    }

    /// E3
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

    fn send(&self, process: &Process, command: &str) -> Value {
        let mut args = self.args.clone();
        args["command"] = json!(command);
        process.act(&json!({"action": "run", "args": args, "timeout": self.timeout}))
    }

    fn check(&self, process: &Process, place: &str) {
        let mut answer = self.send(process, &self.command);
        let mut content = text(&answer, "/content");
        while let Some(until) = &self.until
            && !content.contains(until.as_str())
        {
            answer = self.send(process, "");
            assert_eq!(answer["success"], false, "{place}: ended early: {answer}");
            content += &text(&answer, "/content");
        }
        if self.refused {
            assert_eq!(answer["observation"], "error", "{place}");
            assert_eq!(answer["extras"], json!({"error_id": ""}), "{place}");
            assert_eq!(answer["message"], answer["content"], "{place}");
        } else {
            self.check_run(&answer, place);
        }
        if let Some(expected) = &self.content {
            assert_eq!(&content, expected, "{place}: content");
        }
        for part in &self.contains {
            assert!(
                content.contains(part.as_str()),
                "{place}: no {part:?} in {content:?}"
            );
        }
        for part in &self.lacks {
            assert!(
                !content.contains(part.as_str()),
                "{place}: {part:?} in {content:?}"
            );
        }
    }

    fn check_run(&self, answer: &Value, place: &str) {
        assert_eq!(answer["observation"], "run", "{place}: {answer}");
        let metadata = &answer["extras"]["metadata"];
        assert_eq!(
            metadata["exit_code"], self.exit,
            "{place}: exit code in {answer}"
        );
        assert_eq!(answer["success"], self.exit == 0, "{place}");
        let completed = format!("\n[The command completed with exit code {}.]", self.exit);
        let suffix = self.suffix.as_ref().unwrap_or(&completed);
        assert_eq!(
            &text(metadata, "/suffix"),
            suffix,
            "{place}: suffix in {answer}"
        );
        if let Some(prefix) = &self.prefix {
            assert_eq!(&text(metadata, "/prefix"), prefix, "{place}: prefix");
        }
        // What is not known is null, all of it or nothing.
        let known = self.exit != -1;
        for name in ["username", "hostname", "working_dir", "py_interpreter_path"] {
            assert_eq!(metadata[name].is_string(), known, "{place}: {name}");
        }
    }
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).unwrap().as_str().unwrap().to_owned()
}

/// Each case in a server of its own; all failures are told.
pub(super) fn check_all(world: &World, cases: &[Case]) {
    let failed: Vec<_> = cases
        .iter()
        .enumerate()
        .filter(|(number, case)| {
            let process = world.serve(&format!("case-{number}"));
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for (number, step) in case.steps.iter().enumerate() {
                    let place = format!("{} as {}, step {}", case.name, world.user, number + 1);
                    step.check(&process, &place);
                }
            }));
            checked.is_err()
        })
        .map(|(_, case)| case.name)
        .collect();
    assert!(failed.is_empty(), "as {}: {failed:#?}", world.user);
    eprintln!("{} cases as {}", cases.len(), world.user);
}

/// In one server, one after the other: none may disturb the next.
pub(super) fn check_in_one(world: &World, name: &str, cases: &[Case]) {
    let process = world.serve(name);
    for case in cases {
        for (number, step) in case.steps.iter().enumerate() {
            let place = format!("{} as {}, step {}", case.name, world.user, number + 1);
            step.check(&process, &place);
        }
    }
    eprintln!("{} cases as {}", cases.len(), world.user);
}
