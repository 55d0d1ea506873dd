//! Texts of section 4.5, and `hidden` (section 3.3).

use serde_json::{Value, json};

use super::case::{Cases, P2};
use super::environment::environments;
use crate::client::TestProcess;

const E1: &str = "ERROR: No previous running command to retrieve logs from.";
const E2: &str = "ERROR: No previous running command to interact with.";

#[test]
fn texts() {
    let mut cases = Cases::default();
    cases.case("4.5 C1");
    cases.run("true");
    cases.run("exit_with() { return $1; }; exit_with 9").exit(9);
    cases.case("4.5 C2");
    cases.start("cat", "");
    cases.input("C-c").exit(130).by_key('C').gives("^C");
    cases.case("4.5 T1");
    cases.run("sleep 1000").quiet().gives("");
    cases.input("C-c").exit(130).by_key('C');
    cases.case("4.5 T2");
    cases.run("sleep 1000").times_out(0.5).gives("");
    cases.case("4.5 T2, whole seconds");
    cases.run("sleep 1000").times_out(1.0);
    cases.case("4.5 T3");
    cases.start("cat", "");
    cases.run("ls").not_executed().prefix(P2).gives("");
    cases.case("4.5 T3 quotes the command");
    cases.start("cat", "");
    cases.run("echo \"a\"").not_executed().prefix(P2);
    cases.case("4.5 T3 for a key that is no input");
    cases.start("cat", "");
    cases.run("C-c").not_executed().prefix(P2);
    cases.input("C-c").exit(130).by_key('C');
    cases.case("4.5 P2");
    cases.run("sleep 1000").times_out(0.2);
    cases.run("").times_out(0.2).prefix(P2);
    cases.case("4.5 E1");
    cases.run("").no_command_running(E1);
    cases.run(" \n").no_command_running(E1);
    cases.case("4.5 E1, also as input");
    cases.input("").no_command_running(E1);
    cases.case("4.5 E2");
    cases.input("x").no_command_running(E2);
    cases.input("C-c").no_command_running(E2);
    cases.case("4.4 E1 after a completed command");
    cases.run("true");
    cases.run("").no_command_running(E1);
    cases.case("4.4 refusals do not touch the running command");
    cases.start("echo up; read x; echo \"got $x\"", "up");
    cases.run("ls").not_executed().prefix(P2);
    cases.input("v").gives("got v");
    cases.check_all();
}

fn hidden(process: &TestProcess, command: &str, timeout: f64) -> Value {
    let args = json!({"command": command, "hidden": true, "blocking": true});
    process.act(&json!({"action": "run", "args": args, "timeout": timeout}))
}

#[test]
fn hidden_is_true_only_for_completed_commands() {
    for environment in environments() {
        let process = environment.serve("hidden");
        assert_eq!(hidden(&process, "true", 60.0)["extras"]["hidden"], true);
        let several = hidden(&process, "echo a\necho b", 60.0);
        assert_eq!(
            (&several["observation"], &several["content"]),
            (&json!("run"), &json!("a\nb"))
        );
        let nothing = hidden(&process, "", 60.0);
        assert_eq!(nothing["extras"]["hidden"], false);
        assert_eq!(nothing["message"], "Command `` executed with exit code -1.");
        assert_eq!(hidden(&process, "cat", 0.2)["extras"]["hidden"], false);
        assert_eq!(hidden(&process, "ls", 60.0)["extras"]["hidden"], true);
    }
}

#[test]
fn command_of_observation_has_no_surrounding_blanks() {
    for environment in environments() {
        let process = environment.serve("command");
        assert_eq!(process.run("  echo x \n")["extras"]["command"], "echo x");
        assert_eq!(process.input("x")["extras"]["command"], "");
        process.run_briefly("cat");
        assert_eq!(process.run(" ls ")["extras"]["command"], "ls");
        let answer = process.input("C-d");
        assert_eq!(answer["extras"]["command"], "C-d");
        assert_eq!(
            answer["message"],
            "Command `C-d` executed with exit code 0."
        );
    }
}
