//! Waiting and reporting (sections 4.3, 4.4 and 4.10 to 4.14). A command that must end at a certain
//! moment waits at a named pipe until the next step.

use serde_json::json;

use super::case::{Cases, P2};
use super::environment::environments;

#[test]
fn waiting_and_reporting() {
    let mut cases = Cases::default();
    cases.case("4.3 a directory counts only for commands apart");
    cases
        .run("basename $PWD")
        .with("cwd", json!("/usr"))
        .lacks("usr");
    cases.case("4.4 who blocks has no limit without output");
    cases.run("sleep 1.5; echo done").gives("done");
    cases.case("4.4 nothing is sent with the empty command");
    cases.start("read -t 100 x; echo \"<$x>\"", "");
    cases.run("").times_out(0.2).prefix(P2).gives("");
    cases.input("v").gives("<v>");
    cases.case("4.5 T1 after T2, with what is new only");
    cases.start("echo one; read x; echo two; read x", "one");
    cases.input("go").quiet().prefix(P2).gives("two");
    cases.input("C-c").exit(130).by_key('C');
    cases.case("4.5 T2 names fractions as Python does");
    cases.run("cat").times_out(0.25);
    cases.input("C-d").by_key('D');
    cases.case("4.5 C1 after a wait has no prefix");
    cases.start("echo a; cat; echo b", "a");
    cases.input("C-d").by_key('D').gives("b");
    cases.case("4.10 the next command comes after what ended");
    cases
        .run("mkfifo gate; cat gate > /dev/null; echo late")
        .times_out(0.2);
    cases.run("C-c").not_executed().prefix(P2);
    cases.input("C-c").exit(130).by_key('C');
    cases.run("echo next").gives("next");
    cases.case("4.10 cat, suspended and resumed");
    cases.run("cat").times_out(0.2);
    cases.input("C-z").exit(148).by_key('Z').contains("Stopped");
    cases.run("jobs").contains("Stopped");
    cases.start("fg", "cat");
    cases.input("C-d").by_key('D');
    cases.run("jobs").gives("");
    cases.case("4.13 jobs, functions and directories stay");
    cases.run("cd /usr; f() { echo in f; }; x=1");
    cases.run("f; echo $x $PWD").gives("in f\n1 /usr");
    cases.run("cd - > /dev/null; cd");
    cases.run("f; echo $x").gives("in f\n1");
    cases.case("4.14 an interrupt leaves the directory");
    cases.run("mkdir deep; cd deep");
    cases.start("echo up; sleep 1000", "up");
    cases.input("C-c").exit(130).by_key('C');
    cases.run("basename $PWD").gives("deep");
    cases.case("4.14 a program that ignores the interrupt");
    cases.start("sh -c 'trap \"\" INT; echo up; cat; echo end'", "up");
    cases
        .input("C-c")
        .times_out(1.0)
        .any_prefix()
        .contains("^C");
    cases.run("ls").not_executed().prefix(P2);
    cases.input("C-d").by_key('D').gives("end");
    cases.check_all();
}

#[test]
fn empty_command_reports_end_of_pending_command() {
    for environment in environments() {
        let process = environment.serve("end");
        process.run("mkfifo gate");
        process.run_briefly("cat gate; echo late");
        let args = json!({"command": "", "blocking": true});
        let action = json!({"action": "run", "args": args, "timeout": 60});
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| process.act(&action));
            std::fs::write(environment.path("end/gate"), "").unwrap();
            let answer = waiting.join().unwrap();
            assert_eq!(answer["content"], "late", "4.10 {answer}");
            assert_eq!(answer["extras"]["metadata"]["prefix"], "", "4.10 {answer}");
        });
    }
}
