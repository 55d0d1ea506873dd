//! Commands in an image that has busybox and nothing else (section 4.16): no bash, no user
//! database, no `HOME`.

use serde_json::json;

use super::case::{Cases, P2};
use crate::client::content;
use crate::fixture::ServerFixture;
use crate::minimal_images::MinimalRoot;

/// Users, and their names and shells in the image: the server creates one of them.
const USERS: [[&str; 3]; 2] = [
    ["root", "I have no name!", ""],
    ["openhands", "openhands", "/bin/sh"],
];

#[test]
fn busybox_runs_commands() {
    let long = format!("echo {}", "x".repeat(10_000));
    let mut cases = Cases::default();
    cases.case("4.16 state stays");
    cases.run("echo hello").gives("hello");
    cases
        .run("mkdir -p '/work/a b' && cd '/work/a b'")
        .gives("");
    cases.run("pwd").gives("/work/a b");
    cases.run("export A=1; b='two  words'; f() { echo \"f $1\"; }");
    cases.run("f \"$A $b\"").gives("f 1 two  words");
    cases
        .run("env | grep -E '^(ENV|PS1|PS2|HISTFILE)='")
        .exit(1);
    cases.run("cd /work; ls ~/.ash_history").exit(1);
    cases.case("4.16 status");
    cases.run("(exit 7)").exit(7);
    cases.run("echo $?").gives("7");
    cases
        .run("nosuch")
        .exit(127)
        .gives("sh: eval: nosuch: not found");
    cases.run("# comment");
    cases.run("grep -q x /dev/null").exit(1).gives("");
    cases.case("4.16 several lines are a script");
    cases
        .run("for i in 1 2\ndo\n  echo $i\ndone\necho end")
        .gives("1\n2\nend");
    cases
        .run("cat <<EOF | tr a-z A-Z\none $A\nEOF")
        .gives("ONE 1");
    cases
        .run("printf '%s\\n' \"it's\" 'a\\b' '$x!'")
        .gives("it's\na\\b\n$x!");
    cases.run("echo é \\\n  ü").gives("é ü");
    cases.run(&long).gives(&long[5..]);
    cases.run("echo short").gives("short");
    cases.case("4.16 what only bash knows");
    cases
        .run("a=(1 2)")
        .exit(2)
        .contains("syntax error: unexpected \"(\"");
    cases
        .run("echo \"x")
        .exit(2)
        .contains("syntax error: unterminated quoted string");
    cases.run("echo on").gives("on");
    cases.case("4.16 interrupts");
    cases.start("echo up; sleep 1000", "up");
    cases.run("ls").not_executed().prefix(P2);
    cases.input("C-c").exit(130).by_key('C');
    cases.run("echo $?; pwd").gives("130\n/work");
    cases.run("while :; do sleep 1000; done").quiet().gives("");
    cases.input("C-c").exit(130).by_key('C');
    cases.run("sleep 1000").times_out(0.3);
    cases.input("C-z").exit(148).by_key('Z');
    cases.run("kill %1");
    cases.case("4.16 a program that is killed in raw mode");
    cases
        .run("sh -c 'stty raw -echo; kill -9 $$'")
        .exit(137)
        .contains("Killed");
    cases.run("printf 'a\\nb\\n'").gives("a\nb");
    cases.case("4.16 traces");
    cases.run("set -x").gives("");
    cases.run("echo a").gives("+ echo a\na");
    cases.run("set +x");
    cases.case("4.16 input");
    cases
        .run("read -p 'Name: ' name; echo \"Hello $name\"")
        .quiet()
        .gives("Name:");
    cases.input("John").gives("Hello John");
    cases.run("cat").quiet().gives("");
    cases.input("a line").quiet().gives("a line").prefix(P2);
    cases.input("C-d").exit(0).by_key('D');
    cases.case("4.16 prompts of the user");
    cases.run("PS1='$ ' PS2='> '");
    cases.run("echo next").gives("next");
    cases.run("exec >/tmp/log");
    cases.run("echo logged");
    cases
        .run("exec >/dev/tty; cat /tmp/log")
        .contains("\nlogged\n");
    for [user, name, shell] in USERS {
        let Some(image) = MinimalRoot::busybox("busybox_runs_commands", user) else {
            return;
        };
        std::fs::create_dir(image.path("tmp")).unwrap();
        crate::client::set_mode(image.path("tmp"), 0o1777);
        cases.check_in(&image.process, user);
        let metadata = &image.process.run("sleep 1000 &")["extras"]["metadata"];
        assert!(metadata["pid"].as_i64().unwrap() > 1, "{metadata}");
        assert_eq!(metadata["username"], name);
        assert_eq!(metadata["working_dir"], "/work");
        assert_eq!(image.process.output("echo $SHELL"), shell);
        assert_eq!(image.process.get("/server_info").json()["shell"], "sh");
    }
}

#[test]
fn busybox_shell_outlives_its_jobs_and_is_replaced_when_it_ends() {
    let test = "busybox_shell_outlives_its_jobs_and_is_replaced_when_it_ends";
    let Some(image) = MinimalRoot::busybox(test, "root") else {
        return;
    };
    let server = &image.process;
    let shell = server.output("mkfifo gate done; echo $$");
    server.run("(cat gate; echo > done) &");
    std::fs::write(image.path("work/gate"), "").unwrap();
    std::fs::read(image.path("work/done")).unwrap();
    // The shell notices the end of its job while it waits for a command.
    assert_eq!(server.output("wait; echo $$").lines().next(), Some(&*shell));
    server.run("echo 'export LATER=1' >> ~/.bashrc; mkdir sub; cd sub");
    for (command, status) in [("exit 3", 3), ("kill -9 $$", 137), ("set -e; false", 1)] {
        let metadata = &server.run(command)["extras"]["metadata"];
        assert_eq!(metadata["exit_code"], status, "4.16 {command}");
        let suffix = metadata["suffix"].as_str().unwrap();
        assert!(suffix.ends_with("[The shell has ended. A new shell was started in /work/sub.]"));
        assert_eq!(server.output("echo $LATER; pwd"), "1\n/work/sub");
    }
    let isolated = json!({"command": "echo $LATER $A; pwd", "is_static": true, "cwd": "/bin"});
    server.run("A=2");
    let answer = server.act(&json!({"action": "run", "args": isolated}));
    assert_eq!(content(&answer), "1\n/bin");
}

#[test]
fn requested_shell_is_used_if_it_exists() {
    for (shell, name) in [("/bin/sh", "sh"), ("/missing", "bash")] {
        let server = ServerFixture::start("root", &[], &[("SANDBOX_SHELL", shell)]);
        assert_eq!(server.output("echo $0"), name, "4.16 {shell}");
    }
}
