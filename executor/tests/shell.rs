//! The shell over HTTP: the scenarios of spec 4.10.

use serde_json::{Value, json};

use crate::client::{Process, serve, serve_command};

fn text(observation: &Value) -> &str {
    observation["content"].as_str().unwrap()
}

fn metadata(observation: &Value) -> &Value {
    &observation["extras"]["metadata"]
}

fn suffix(observation: &Value) -> &str {
    metadata(observation)["suffix"].as_str().unwrap()
}

fn prefix(observation: &Value) -> &str {
    metadata(observation)["prefix"].as_str().unwrap()
}

fn code(observation: &Value) -> i64 {
    metadata(observation)["exit_code"].as_i64().unwrap()
}

#[test]
fn an_answer_has_every_field() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let answer = process.run("  echo hi\n");
    let metadata = metadata(&answer);
    let expected = json!({
        "message": "Command `echo hi` executed with exit code 0.",
        "observation": "run",
        "content": "hi",
        "extras": {
            "command": "echo hi",
            "metadata": {
                "exit_code": 0,
                "pid": -1,
                "username": metadata["username"].as_str().unwrap(),
                "hostname": metadata["hostname"].as_str().unwrap(),
                "working_dir": directory.path().to_str().unwrap(),
                "py_interpreter_path": metadata["py_interpreter_path"].as_str().unwrap(),
                "prefix": "",
                "suffix": "\n[The command completed with exit code 0.]",
            },
            "hidden": false,
        },
        "success": true,
    });
    assert_eq!(answer, expected);
}

#[test]
fn directory_variables_and_status_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let odd = "a \"b\" \\c\u{1b}d";
    std::fs::create_dir(directory.path().join(odd)).unwrap();
    let answer = process.run("cd a*; export X=1; declare -A map=([k]=v); f() { echo fun; }");
    let expected = directory.path().join(odd).display().to_string();
    assert_eq!(metadata(&answer)["working_dir"], expected);
    assert_eq!(
        text(&process.run("echo $X ${map[k]} $(f); (exit 7)")),
        "1 v fun"
    );
    assert_eq!(text(&process.run("echo $?")), "7");
    assert_eq!(code(&process.run("no-such-command")), 127);
}

#[test]
fn commands_are_taken_literally() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    for (command, output) in [
        (
            "cat << EOF\nline 1\n  line $((1+1))\nEOF",
            "line 1\n  line 2",
        ),
        ("for i in 1 2; do\n  echo $i\ndone", "1\n2"),
        ("echo 'a\tb'", "a       b"),
        ("echo wow!! \\; \"`echo in`\"", "wow!! ; in"),
        ("printf 'no newline'", "no newline"),
        ("echo ünïcødé 日本語 🎉", "ünïcødé 日本語 🎉"),
        ("# only a comment", ""),
        (
            "printf '10%%\\r\\033[K100%%\\n\\033[31mred\\033[0m  \\n'",
            "100%\nred",
        ),
        ("alias x='echo alias'; x() { echo function; }", ""),
        (
            "env | grep -c -e PS1 -e PROMPT_COMMAND -e SESSION_API_KEY",
            "0",
        ),
        ("set -x; set +x", "++ set +x"),
    ] {
        assert_eq!(text(&process.run(command)), output, "{command:?}");
    }
    let long = format!("echo {}", "x".repeat(20_000));
    assert_eq!(text(&process.run(&long)).len(), 20_000);
}

#[test]
fn several_commands_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let answer = process.run("echo a\nfor i in 1; do\n  echo $i\ndone");
    assert_eq!(answer["observation"], "error");
    assert_eq!(
        text(&answer),
        "ERROR: Cannot execute multiple commands at once.\nPlease run each command separately OR \
         chain them into a single command via && or ;\nProvided commands:\n(1) echo a\n\
         (2) for i in 1; do\n  echo $i\ndone"
    );
    let hidden = json!({"command": "echo a\necho b", "hidden": true});
    let answer = process.act(&json!({"action": "run", "args": hidden}));
    assert_eq!(text(&answer), "a\nb");
}

#[test]
fn background_jobs_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let answer = process.run("sleep 1000 &");
    let pid = metadata(&answer)["pid"].as_i64().unwrap();
    assert_eq!(text(&answer), format!("[1] {pid}"));
    // Not `wait`, which may use up the news of the end.
    let end = "jobs; kill %1; while kill -0 $! 2>/dev/null; do sleep 0.01; done";
    let answer = process.run(end);
    assert!(text(&answer).starts_with("[1]+  Running                 sleep 1000 &"));
    assert!(
        text(&answer).contains("Terminated              sleep 1000"),
        "{answer}"
    );
    assert_eq!(metadata(&answer)["pid"], pid);
}

#[test]
fn large_output_keeps_what_clients_rely_on() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let answer = process.run("for ((i=1; i<=5000; i++)); do echo Line $i; done");
    assert_eq!(text(&answer).chars().count(), 30_047);
    assert!(text(&answer).starts_with("Line 1\n") && text(&answer).ends_with("Line 5000"));
    assert_eq!(prefix(&answer), "");
    let answer = process.run("seq -f 'Line %.0f' 50000");
    assert!(text(&answer).contains("Line 40000\n") && text(&answer).ends_with("Line 50000"));
    assert!(prefix(&answer).starts_with("[Previous command outputs are truncated. Showing the"));
    let hidden = json!({"command": "seq 9000", "hidden": true});
    let answer = process.act(&json!({"action": "run", "args": hidden}));
    assert_eq!(text(&answer).lines().count(), 9000);
    assert_eq!(answer["extras"]["hidden"], true);
}

#[test]
fn a_command_outlives_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let written = process.run_until("echo first; read x; echo then $x", "first");
    assert_eq!(written, "first");
    let answer = process.run_briefly("");
    assert_eq!((text(&answer), code(&answer)), ("", -1));
    assert_eq!(
        prefix(&answer),
        "[Below is the output of the previous command.]\n"
    );
    assert!(suffix(&answer).starts_with("\n[The command timed out after 0.2 seconds. You may"));
    assert_eq!(metadata(&answer)["working_dir"], Value::Null);
    let answer = process.run("ls");
    assert!(suffix(&answer).starts_with("\n[Your command \"ls\" is NOT executed. The previous"));
    assert_eq!(
        prefix(&answer),
        "[Below is the output of the previous command.]\n"
    );
    let answer = process.input("value");
    assert_eq!(
        (text(&answer), code(&answer), prefix(&answer)),
        ("then value", 0, "")
    );
    assert_eq!(
        suffix(&answer),
        "\n[The command completed with exit code 0.]"
    );
}

#[test]
fn a_quiet_command_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = serve_command(directory.path(), &[]);
    let process = Process::start(command.env("NO_CHANGE_TIMEOUT_SECONDS", "1"));
    let answer = process.run("read -p 'Enter name: ' name && echo \"Hello $name\"");
    assert_eq!(text(&answer), "Enter name:");
    assert!(suffix(&answer).starts_with("\n[The command has no new output after 1 seconds. You"));
    assert_eq!(text(&process.input("John")), "Hello John");
    assert_eq!(text(&process.run("cat << EOF")), "");
    let answer = process.run_briefly("");
    assert_eq!(text(&answer), "");
    assert_eq!(text(&process.input("line 1\nEOF")), "line 1");
}

#[test]
fn what_ended_meanwhile_is_told_later() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    process.run("mkfifo gate");
    process.run_briefly("cat gate; echo late; (exit 4)");
    std::fs::write(directory.path().join("gate"), "").unwrap();
    let answer = process.run("");
    assert_eq!(
        (text(&answer), code(&answer), prefix(&answer)),
        ("late", 4, "")
    );
}

#[test]
fn keys_interrupt_suspend_and_end() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    process.run_until("echo up; sleep 1000", "up");
    let answer = process.input("C-c");
    assert_eq!((text(&answer), code(&answer)), ("^C", 130));
    assert_eq!(
        suffix(&answer),
        "\n[The command completed with exit code 130. CTRL+C was sent.]"
    );
    process.run_until("sh -c 'echo up; exec cat'", "up");
    let answer = process.input("C-z");
    assert!(
        text(&answer).starts_with("^Z\n[1]+  Stopped                 sh -c"),
        "{answer}"
    );
    assert_eq!(code(&answer), 148);
    process.run_until("fg", "sh -c");
    assert_eq!(code(&process.input("C-d")), 0);
    assert_eq!(text(&process.run("C-c")), "^C");
    process.run_briefly("echo \"open");
    assert_eq!(code(&process.input("C-c")), 130);
    assert_eq!(text(&process.run("echo clean")), "clean");
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    let answer = process.run("  ");
    assert_eq!(
        text(&answer),
        "ERROR: No previous running command to retrieve logs from."
    );
    assert_eq!((code(&answer), suffix(&answer)), (-1, ""));
    let answer = process.input("x");
    assert_eq!(
        text(&answer),
        "ERROR: No previous running command to interact with."
    );
}

#[test]
fn a_shell_that_ends_is_replaced_in_place() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    process.run("mkdir sub; cd sub; X=1");
    for (command, status) in [("exit 3", 3), ("kill -9 $$", 137), ("set -e; false", 1)] {
        let answer = process.run(command);
        assert_eq!(code(&answer), status, "{command}");
        assert!(
            suffix(&answer).contains("A new shell was started in "),
            "{answer}"
        );
        let answer = process.run("echo ${X-unset} ${PWD##*/}");
        assert_eq!(text(&answer), "unset sub");
    }
}

#[test]
fn the_terminal_recovers_from_what_programs_leave() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    process.run("stty raw -echo; PS1='(venv) $ '; PROMPT_COMMAND=");
    assert_eq!(text(&process.run("echo one")), "one");
    process.run("rm -rf /tmp/none; printf '\\033]0;title'");
    assert_eq!(text(&process.run("echo two")), "two");
    let answer = process.run("printf 'three\\033('");
    assert_eq!((text(&answer), code(&answer)), ("three", 0));
}

#[test]
fn commands_apart_do_not_touch_the_session() {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    process.run("X=1; mkdir sub; cd sub");
    let apart = |command: &str, cwd: Value| {
        let args = json!({"command": command, "is_static": true, "cwd": cwd});
        process.act(&json!({"action": "run", "args": args, "timeout": 60}))
    };
    assert_eq!(text(&apart("pwd", json!("/usr"))), "/usr");
    let answer = apart("X=2; pwd", Value::Null);
    assert_eq!(text(&answer), directory.path().to_str().unwrap());
    assert_eq!(
        text(&apart("pwd", json!("/no/such"))),
        directory.path().to_str().unwrap()
    );
    assert_eq!(text(&process.run("echo $X")), "1");
}
