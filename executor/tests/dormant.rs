//! `serve --dormant` (`docs/specs/executor.md`, section 1.12): a claim has the result of a cold
//! start with the command and the environment of the init message.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{
    BINARY, KEY, TestProcess, content, next_line, serve_command, set_mode, wait_until,
};
use crate::conformance::environment::CaseEnvironment;
use crate::free_port::free_port;
use crate::own_plugins;
use crate::plugins::{PLUGINS, is_alive, path};

const SECRET: &str = "value\nwith 'quotes' \"and\" $HOME `id` \\ ! é";

struct Dormant {
    process: TestProcess,
    /// Has `home`, and the private directories of the server in `tmp`.
    directory: TempDir,
}

impl Dormant {
    fn start(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        set_mode(&directory, 0o755);
        let mut command = command(directory.path(), &[flags, &["--dormant"]].concat());
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let process = TestProcess::start(command.stdin(Stdio::piped()).stderr(log));
        Self { process, directory }
    }

    fn claim(&mut self, flags: &[&str], variables: &[(&str, &str)]) {
        claim(&mut self.process, self.directory.path(), flags, variables);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// Number of shells that have read the start-up file.
    fn shell_starts(&self) -> usize {
        let starts = fs::read(self.directory.path().join("home/starts"));
        starts.unwrap_or_default().len()
    }

    fn cell(&self, code: &str) -> String {
        let args = json!({"code": code, "include_extra": false});
        let action = json!({"action": "run_ipython", "args": args, "timeout": 60});
        content(&self.process.act(&action)).to_owned()
    }

    fn children(&self) -> Vec<String> {
        let pid = self.process.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children
            .unwrap()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    }
}

fn command(directory: &Path, flags: &[&str]) -> Command {
    let [home, tmp] = ["home", "tmp"].map(|name| directory.join(name));
    for made in [&home, &tmp] {
        let _ = fs::create_dir(made);
        set_mode(made, 0o777);
    }
    fs::write(home.join(".bashrc"), "printf x >> ~/starts\n").unwrap();
    let mut command = serve_command(&directory.join("warm"), flags);
    command
        .env("HOME", home)
        .env("TMPDIR", tmp)
        .env("PATH", path())
        .env_remove("SESSION_API_KEY");
    command
}

fn message(directory: &Path, flags: &[&str], variables: &[(&str, &str)]) -> String {
    let work = directory.join("it's work");
    let start = [BINARY, "serve", "0", "--username", "root", "--working-dir"];
    let command = [&start[..], &[work.to_str().unwrap()], flags].concat();
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    let message = json!({
        "command": command,
        "workingDir": directory.join("cwd"),
        "environment": variables,
        "probe": {"port": 60000, "path": "/alive"},
        "sandboxUid": "uid",
    });
    format!("{message}\n")
}

fn claim(process: &mut TestProcess, directory: &Path, flags: &[&str], variables: &[(&str, &str)]) {
    let message = message(directory, flags, variables);
    let mut input = process.child.stdin.take().unwrap();
    input.write_all(message.as_bytes()).unwrap();
    wait_until(|| process.get("/alive").status == 200);
}

/// True if a file below the directory contains the text.
fn contains(directory: &Path, text: &str) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return contains(&path, text);
        }
        let content = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&content).contains(text)
    })
}

#[test]
fn dormant_server_answers_503_until_the_init_message() {
    let mut dormant = Dormant::start(&[]);
    let expected = (503, "{\"detail\":\"The server is not initialized\"}");
    for head in ["GET /alive", "GET /server_info", "POST /execute_action"] {
        assert_eq!(
            dormant.process.keyed(head, "{}").parts(),
            expected,
            "{head}"
        );
    }
    let variables = [
        ("SESSION_API_KEY", KEY),
        ("SECRET", SECRET),
        ("LOG_JSON", "1"),
    ];
    dormant.claim(&["--plugins", "agent_skills"], &variables);
    let refused = dormant.process.request("POST /execute_action", &[], b"{}");
    assert_eq!(refused.parts(), (403, "{\"detail\":\"Invalid API Key\"}"));
    assert_eq!(dormant.process.output("printf %s \"$SECRET\""), SECRET);
    let isolated = json!({"command": "printf %s \"$SECRET\"", "is_static": true});
    let isolated = json!({"action": "run", "args": isolated});
    assert_eq!(content(&dormant.process.act(&isolated)), SECRET);
    assert!(!contains(&dormant.directory.path().join("tmp"), SECRET));
    let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
    wait_until(|| dormant.log().lines().any(is_json));
    let log = dormant.log();
    assert!(
        !log.contains("with 'quotes'") && !log.contains(KEY),
        "{log}"
    );
}

#[test]
fn claimed_shell_is_that_of_a_cold_start() {
    let variables = [("SESSION_API_KEY", KEY), ("SECRET", SECRET), ("EMPTY", "")];
    let mut dormant = Dormant::start(&[]);
    dormant.claim(&[], &variables);
    let work = dormant.directory.path().join("it's work");
    let mut cold = command(dormant.directory.path(), &["--working-dir"]);
    let cold = TestProcess::start(cold.arg(work).envs(variables));
    assert_eq!(dormant.shell_starts(), 2, "the shell is kept");
    for line in [
        "true",
        "echo $? $! \"$PWD\" \"$OLDPWD\"",
        "env | grep -v ^_= | sort",
        "declare -p OLDPWD SECRET EMPTY; set -o; shopt; trap; jobs; history",
        "declare -p | cut -d= -f1 | grep -vE ' (BASHPID|_|COLUMNS|LINES)$'",
    ] {
        let [claimed, cold] = [&dormant.process, &cold].map(|process| process.run(line));
        assert_eq!(claimed, cold, "{line}");
    }
}

#[test]
fn programs_start_again_for_variables_that_they_read_at_their_start() {
    let mut dormant = Dormant::start(&[]);
    let variables = [
        ("SESSION_API_KEY", KEY),
        ("UID", "7"),
        ("a.b", "c"),
        ("PATH", "/usr/bin:/bin"),
    ];
    dormant.claim(&[], &variables);
    assert_eq!(dormant.shell_starts(), 2);
    let read = "echo $UID $PATH; env | grep ^a.b";
    assert_eq!(dormant.process.output(read), "7 /usr/bin:/bin\na.b=c");
}

#[test]
fn claimed_server_has_port_and_user_of_the_message() {
    let Some(environment) = CaseEnvironment::private("openhands") else {
        return;
    };
    let mut command = environment.command("w", &["--dormant"]);
    command.env_remove("SESSION_API_KEY");
    let mut process = TestProcess::start(command.stdin(Stdio::piped()));
    let port = free_port().to_string();
    let home = environment.path("home");
    let message = message(&home, &[], &[("SESSION_API_KEY", KEY)]);
    let message = message.replace("\"0\"", &format!("\"{port}\""));
    let mut input = process.child.stdin.take().unwrap();
    input.write_all(message.as_bytes()).unwrap();
    assert_eq!(process.line(), format!("listening on 127.0.0.1:{port}"));
    process.address.set_port(port.parse().unwrap());
    let read = "whoami; pwd; pgrep -c -P $PPID";
    let work = home.join("it's work");
    assert_eq!(process.output(read), format!("root\n{}\n1", work.display()));
}

#[test]
fn claimed_kernel_has_the_environment_and_no_trace_of_it() {
    let mut dormant = Dormant::start(&PLUGINS);
    let before = dormant.children();
    dormant.claim(&PLUGINS, &[("SESSION_API_KEY", KEY), ("SECRET", SECRET)]);
    let code = "import os; print(os.environ['SECRET'], os.environ.get('SESSION_API_KEY'))";
    assert_eq!(dormant.cell(code), format!("{SECRET} None"));
    assert!(before.contains(&dormant.cell("os.getpid()")), "kept");
    let names = "[name for name in dir() if name[0] != '_' and 'environ' in name], len(In)";
    assert_eq!(dormant.cell(names), "([], 1)");
    assert!(dormant.cell("1/0").contains("Cell In[1], line 1"));
    dormant.process.run("touch new.txt");
    let hint = dormant.cell("print(file_editor(command='view', path='new.txt'))");
    assert!(hint.contains("work/new.txt?"), "{hint}");
}

#[test]
fn claim_stops_and_starts_plugins() {
    let key = ("SESSION_API_KEY", KEY);
    let mut dormant = Dormant::start(&PLUGINS);
    let before = dormant.children();
    assert_eq!(before.len(), 2, "shell and kernel: {before:?}");
    dormant.claim(&[], &[key]);
    wait_until(|| dormant.children().len() == 1);
    let mut dormant = Dormant::start(&[]);
    dormant.claim(&PLUGINS, &[key, ("A", "b")]);
    assert_eq!(dormant.cell("import os; os.environ['A']"), "'b'");
    assert_eq!(dormant.shell_starts(), 1);
}

#[test]
fn plugins_of_users_start_at_the_claim() {
    let folders = tempfile::tempdir().unwrap();
    let manifest = "command: [sh, -c, 'echo $SECRET > out; exec sleep 1000']\n\
                    provides: {WHERE: 'http://${HOST}/'}";
    own_plugins::add(folders.path(), "p", manifest);
    let flags = ["--plugins", "p"];
    let mut dormant = Dormant::start(&flags);
    assert_eq!(dormant.children().len(), 1, "the shell alone");
    let variables = [
        ("SESSION_API_KEY", KEY),
        ("SECRET", "of the sandbox"),
        ("SANDBOX_PLUGIN_PATH", folders.path().to_str().unwrap()),
    ];
    dormant.claim(&flags, &variables);
    let out = folders.path().join("p/out");
    wait_until(|| fs::read_to_string(&out).is_ok_and(|text| text == "of the sandbox\n"));
    wait_until(|| dormant.process.plugin_state("p") == "ready");
    assert_eq!(dormant.process.output("echo $WHERE"), "http://127.0.0.1/");
    assert_eq!(dormant.shell_starts(), 1);
}

fn end(directory: &Path, input: &str) -> Output {
    let mut command = command(directory, &["--dormant"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    next_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()));
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn dormant_server_ends_without_a_valid_message() {
    let directory = tempfile::tempdir().unwrap();
    let at = |flags: &[&str]| message(directory.path(), flags, &[("SESSION_API_KEY", SECRET)]);
    let no_serve = at(&[]).replace("\"serve\"", "\"install\"");
    for (input, code, expected) in [
        (
            String::new(),
            1,
            "standard input has ended without an init message",
        ),
        (
            "{\"command\": \"x\"}\n".to_owned(),
            1,
            "the init message is malformed",
        ),
        (at(&["--plugins", "nope"]), 1, "Plugin nope not found"),
        (
            at(&["--user-id", "x"]),
            2,
            "invalid value 'x' for '--user-id <USER_ID>'",
        ),
        (no_serve, 2, "error: "),
    ] {
        let output = end(directory.path(), &input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(
            errors.contains(expected) && !errors.contains("quotes"),
            "{errors}"
        );
        assert!(!contains(&directory.path().join("tmp"), ""), "{expected}");
    }
}

#[test]
fn dormant_server_ends_on_sigterm() {
    let mut dormant = Dormant::start(&PLUGINS);
    let children = dormant.children();
    let _input = dormant.process.child.stdin.take();
    dormant.process.signal(Signal::TERM);
    let status = dormant.process.child.wait().unwrap();
    assert!(status.success(), "{status} {}", dormant.log());
    assert!(!children.iter().any(|pid| is_alive(pid)), "{children:?}");
    let tmp = dormant.directory.path().join("tmp");
    assert_eq!(fs::read_dir(tmp).unwrap().count(), 0);
}
