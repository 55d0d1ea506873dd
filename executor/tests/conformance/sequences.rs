//! Waiting and reporting (sections 4.3, 4.4 and 4.10 to 4.14). A command that must end at a certain
//! moment waits at a named pipe until the next step.

use serde_json::json;

use super::case::{P2, case, check_all, input, run, start};
use super::environment::environments;

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn waiting_and_reporting() {
    for environment in environments() {
        let cases = [
            case(
                "4.3 a directory counts only for commands apart",
                [run("basename $PWD").with("cwd", json!("/usr")).lacks("usr")],
            ),
            case(
                "4.4 who blocks has no limit without output",
                [run("sleep 1.5; echo done").gives("done")],
            ),
            case(
                "4.4 nothing is sent with the empty command",
                [
                    start("read -t 100 x; echo \"<$x>\"", ""),
                    run("").times_out(0.2).prefix(P2).gives(""),
                    input("v").gives("<v>"),
                ],
            ),
            case(
                "4.5 T1 after T2, with what is new only",
                [
                    start("echo one; read x; echo two; read x", "one"),
                    input("go").quiet().prefix(P2).gives("two"),
                    input("C-c").exit(130).by_key('C'),
                ],
            ),
            case(
                "4.5 T2 names fractions as Python does",
                [run("cat").times_out(0.25), input("C-d").by_key('D')],
            ),
            case(
                "4.5 C1 after a wait has no prefix",
                [
                    start("echo a; cat; echo b", "a"),
                    input("C-d").by_key('D').gives("b"),
                ],
            ),
            case(
                "4.10 the next command comes after what ended",
                [
                    run("mkfifo gate; cat gate > /dev/null; echo late").times_out(0.2),
                    run("C-c").not_executed().prefix(P2),
                    input("C-c").exit(130).by_key('C'),
                    run("echo next").gives("next"),
                ],
            ),
            case(
                "4.10 cat, suspended and resumed",
                [
                    run("cat").times_out(0.2),
                    input("C-z").exit(148).by_key('Z').contains("Stopped"),
                    run("jobs").contains("Stopped"),
                    start("fg", "cat"),
                    input("C-d").by_key('D'),
                    run("jobs").gives(""),
                ],
            ),
            case(
                "4.13 jobs, functions and directories stay",
                [
                    run("cd /usr; f() { echo in f; }; x=1"),
                    run("f; echo $x $PWD").gives("in f\n1 /usr"),
                    run("cd - > /dev/null; cd"),
                    run("f; echo $x").gives("in f\n1"),
                ],
            ),
            case(
                "4.14 an interrupt leaves the directory",
                [
                    run("mkdir deep; cd deep"),
                    start("echo up; sleep 1000", "up"),
                    input("C-c").exit(130).by_key('C'),
                    run("basename $PWD").gives("deep"),
                ],
            ),
            case(
                "4.14 a program that ignores the interrupt",
                [
                    start("sh -c 'trap \"\" INT; echo up; cat; echo end'", "up"),
                    input("C-c").times_out(1.0).any_prefix().contains("^C"),
                    run("ls").not_executed().prefix(P2),
                    input("C-d").by_key('D').gives("end"),
                ],
            ),
        ];
        check_all(&environment, &cases);
    }
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
