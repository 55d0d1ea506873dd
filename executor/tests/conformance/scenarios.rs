//! Sequences of requests (sections 4.10, 4.11, 4.12 and 4.14). Input lets commands continue; only
//! timeouts that are under test wait for time.

use serde_json::{Value, json};

use super::case::{Cases, P2};
use super::environment::environments;
use crate::client::content;

#[test]
fn sequences() {
    let mut cases = Cases::default();
    cases.case("4.10 output is told once");
    cases.start("for i in 1 2 3; do echo n$i; read -s x; done", "n1");
    cases.input("go").times_out(0.5).prefix(P2);
    cases.run("").times_out(0.2).prefix(P2).lacks("n1");
    cases.run("ls").not_executed().prefix(P2).lacks("n1");
    cases.input("go").times_out(0.5).prefix(P2);
    cases.input("go").lacks("n1").lacks("n2");
    cases.case("4.10 read -p");
    cases
        .run("read -p \"Enter name: \" name && echo \"Hello $name\"")
        .quiet()
        .gives("Enter name:");
    cases.run("John").not_executed().prefix(P2);
    cases.input("John").gives("Hello John");
    cases.case("4.10 heredoc, line by line");
    cases.run("cat << EOF").quiet().gives("");
    cases.input("line 1").quiet().prefix(P2);
    cases.input("line 2").quiet().prefix(P2);
    cases.input("EOF").contains("line 1").contains("line 2");
    cases.case("4.10 an open quote");
    cases.run("echo \"x").quiet();
    cases.input("C-c").exit(130).by_key('C').gives("^C");
    cases.run("echo a").gives("a");
    cases.case("4.10 an open quote is closed");
    cases.run("echo \"x").quiet();
    cases.input("y\"").contains("x\ny");
    cases.case("4.14 PS2 is empty");
    cases.run("echo \"a").quiet().lacks(">");
    cases.case("4.14 the next command does not show the interrupt");
    cases.start("echo up; sleep 1000", "up");
    cases.input("C-c").exit(130).by_key('C').gives("^C");
    cases.run("pwd").lacks("^C");
    cases.case("4.14 after a hard timeout");
    cases.run("sleep 1000").times_out(0.3);
    cases.run("ls").not_executed().prefix(P2);
    cases.input("C-c").exit(130).by_key('C');
    cases.run("ls");
    cases.case("4.6 what less did not read does not shift");
    cases.start(
        "sh -c 'echo up; read -n1 x' 2>/dev/null || bash -c 'read -n1 x'",
        "",
    );
    cases.input("q").any_prefix();
    cases.run("echo 1").gives("1");
    cases.run("echo 2").gives("2");
    cases.run("echo 3").gives("3");
    cases.check_all();
}

fn metadata<'a>(answer: &'a Value, name: &str) -> &'a Value {
    &answer["extras"]["metadata"][name]
}

#[test]
fn background_jobs() {
    for environment in environments() {
        let process = environment.serve("jobs");
        let answer = process.run("sleep 1000 &");
        let pid = metadata(&answer, "pid").as_i64().unwrap();
        assert_eq!(answer["content"], format!("[1] {pid}"));
        assert_eq!(metadata(&process.run("true"), "pid"), pid);
        // Bash reports the end when it notices it, possibly at the next prompt.
        let answers = ["jobs; kill %1; wait; :", ":"].map(|command| process.run(command));
        assert_eq!(
            answers.each_ref().map(content).join("\n").trim_end(),
            "[1]+  Running                 sleep 1000 &\n[1]+  Terminated              sleep 1000"
        );
        // Output of a job while no command runs is kept.
        process.run("mkfifo gate done");
        process.run("(cat gate; echo from the job; echo > done) &");
        std::fs::write(environment.path("jobs/gate"), "").unwrap();
        std::fs::read(environment.path("jobs/done")).unwrap();
        let answer = process.run("echo next");
        assert!(
            content(&answer).starts_with("from the job\nnext"),
            "{answer}"
        );
    }
}

#[test]
fn shell_is_replaced_when_it_ends() {
    for environment in environments() {
        let process = environment.serve("ends");
        process.run("mkdir sub; cd sub");
        for (command, status) in [
            ("exit 3", 3),
            ("kill -9 $$", 137),
            ("set -e; false", 1),
            ("exec true", 0),
        ] {
            let answer = process.run(command);
            let place = environment.path("ends/sub").display().to_string();
            assert_eq!(metadata(&answer, "exit_code"), status, "4.11 {command}");
            assert_eq!(
                metadata(&answer, "suffix").as_str().unwrap(),
                format!(
                    "\n[The command completed with exit code {status}.]\n[The shell has ended. A new shell was started in {place}.]"
                )
            );
            assert_eq!(metadata(&process.run("pwd"), "working_dir"), place.as_str());
        }
        // Background jobs keep running.
        process.run("sleep 1000 & echo $! > job; exit");
        assert_eq!(process.output("ps -o args= -p $(cat job)"), "sleep 1000");
    }
}

#[test]
fn directories_with_special_characters() {
    for environment in environments() {
        let process = environment.serve("odd");
        for name in [
            "a b", "q\"q", "b\\b", "n\nn", "é", "x'y", "$HOME", "\u{1b}e",
        ] {
            let made = environment.path("odd").join(name);
            process.run("cd ..; cd odd");
            std::fs::create_dir(&made).unwrap();
            let quoted = name.replace('\'', "'\\''");
            let answer = process.run(&format!("cd '{quoted}'"));
            assert_eq!(
                metadata(&answer, "working_dir"),
                made.to_str().unwrap(),
                "12.7 {name:?}"
            );
        }
    }
}

#[test]
fn isolated_commands() {
    for environment in environments() {
        let process = environment.serve("apart");
        process.run("X=1; mkdir sub; cd sub; alias hi='echo hi'");
        process.run("echo 'export FROM_RC=rc' >> ~/.bashrc");
        let apart = |command: &str, cwd: Value| {
            let args = json!({"command": command, "is_static": true, "cwd": cwd, "hidden": true});
            process.act(&json!({"action": "run", "args": args, "timeout": 60}))
        };
        let own = environment.path("apart").display().to_string();
        let check = |name: &str, command: &str, cwd: Value, expected: &str| {
            let answer = apart(command, cwd);
            assert_eq!(content(&answer), expected, "{name} as {}", environment.user);
            assert_eq!(answer["extras"]["hidden"], true, "{name}");
        };
        check("4.12 the initial directory", "pwd", Value::Null, &own);
        check("4.12 another directory", "pwd", json!("/usr"), "/usr");
        let missing = json!("/no/such");
        check("4.12 a directory that is not there", "pwd", missing, &own);
        let variable = "echo ${X-none}";
        check("4.12 no variables", variable, Value::Null, "none");
        let of_rc = "echo $FROM_RC";
        check("4.12 but those of ~/.bashrc", of_rc, Value::Null, "rc");
        let alias = "alias git 2>/dev/null || echo none";
        check("4.12 no init aliases", alias, Value::Null, "none");
        let numbers = "python3 -c 'import json; print(json.dumps(list(range(20000))))'";
        let answer = apart(numbers, Value::Null);
        let list: Vec<u32> = serde_json::from_str(content(&answer)).unwrap();
        assert_eq!(list.len(), 20_000, "4.12 untruncated JSON");
        let branch = "git init -q -b trunk . && git branch --show-current";
        assert_eq!(apart(branch, Value::Null)["content"], "trunk");
        assert_eq!(process.output("echo $X ${PWD##*/}"), "1 sub");
        let args = json!({"command": "sleep 1000", "is_static": true, "blocking": true});
        let answer = process.act(&json!({"action": "run", "args": args, "timeout": 0.2}));
        assert_eq!(metadata(&answer, "exit_code"), -1);
    }
}
