//! Requests and responses byte for byte (sections 2.1, 2.2, 3.3 and 3.4).

use serde_json::json;

use crate::fixture::all_users;

/// Section, action and response; `{}` stands for the working directory.
const EXAMPLES: &[(&str, &str, &str)] = &[
    (
        "3.4 run, hard timeout",
        r#"{"source":"agent","message":"Running command: sleep 30","action":"run","args":{"command":"sleep 30","is_input":false,"thought":"","blocking":false,"is_static":false,"cwd":null,"hidden":false,"confirmation_state":"confirmed","security_risk":-1},"timeout":0.2}"#,
        r#"{"message":"Command `sleep 30` executed with exit code -1.","observation":"run","content":"","extras":{"command":"sleep 30","metadata":{"exit_code":-1,"pid":-1,"username":null,"hostname":null,"working_dir":null,"py_interpreter_path":null,"prefix":"","suffix":"\n[The command timed out after 0.2 seconds. You may wait longer to see additional output by sending empty command '', send other commands to interact with the current process, send keys (\"C-c\", \"C-z\", \"C-d\") to interrupt/kill the previous command before sending your new command, or use the timeout parameter in execute_bash for future commands.]"},"hidden":false},"success":false}"#,
    ),
    (
        "3.3 run, an error",
        r#"{"action":"run","args":{"command":"echo a\necho b"}}"#,
        r#"{"message":"ERROR: Cannot execute multiple commands at once.\nPlease run each command separately OR chain them into a single command via && or ;\nProvided commands:\n(1) echo a\n(2) echo b","observation":"error","content":"ERROR: Cannot execute multiple commands at once.\nPlease run each command separately OR chain them into a single command via && or ;\nProvided commands:\n(1) echo a\n(2) echo b","extras":{"error_id":""}}"#,
    ),
    (
        "3.4 write",
        r#"{"message":"Writing file: hello.sh","action":"write","args":{"path":"hello.sh","content":"echo \"Hello, World!\"","start":0,"end":-1,"thought":"","security_risk":-1},"timeout":120.0}"#,
        r#"{"message":"I wrote to the file {}/hello.sh.","observation":"write","content":"","extras":{"path":"{}/hello.sh"}}"#,
    ),
    (
        "3.4 read",
        r#"{"message":"Reading file: hello.sh","action":"read","args":{"path":"hello.sh","start":0,"end":-1,"thought":"","security_risk":-1,"impl_source":"default","view_range":null},"timeout":120.0}"#,
        r#"{"message":"I read the file {}/hello.sh.","observation":"read","content":"echo \"Hello, World!\"\n","extras":{"path":"{}/hello.sh","impl_source":"default"}}"#,
    ),
    (
        "3.4 read through the editor",
        r#"{"message":"Reading file: {}/hello.sh","action":"read","args":{"path":"{}/hello.sh","start":0,"end":-1,"thought":"","security_risk":-1,"impl_source":"oh_aci","view_range":[1,5]},"timeout":120.0}"#,
        r#"{"message":"I read the file {}/hello.sh.","observation":"read","content":"NOTE: We only show up to 1 since there're only 1 lines in this file.\nHere's the result of running `cat -n` on {}/hello.sh:\n     1\techo \"Hello, World!\"\n","extras":{"path":"{}/hello.sh","impl_source":"oh_aci"}}"#,
    ),
    (
        "3.4 edit, create",
        r#"{"action":"edit","args":{"path":"{}/n2.py","command":"create","file_text":"l1\nl2\nl3\nl4\nl5\nl6\nl7\nl8\nl9\nl10\nl11\nl12"},"timeout":120.0}"#,
        r#"{"message":"I edited the file {}/n2.py.","observation":"edit","content":"File created successfully at: {}/n2.py","extras":{"path":"{}/n2.py","prev_exist":false,"old_content":null,"new_content":null,"impl_source":"oh_aci","diff":"--- {}/n2.py\n+++ {}/n2.py\n@@ -1 +1,12 @@\n-\n+l1\n+l2\n+l3\n+l4\n+l5\n+l6\n+l7\n+l8\n+l9\n+l10\n+l11\n+l12","_diff_cache":null}}"#,
    ),
    (
        "3.4 edit",
        r#"{"message":"","action":"edit","args":{"path":"{}/n2.py","command":"str_replace","file_text":null,"old_str":"l7","new_str":"L7\nL7b","insert_line":null,"content":"","start":1,"end":-1,"thought":"","security_risk":-1,"impl_source":"oh_aci"},"timeout":120.0}"#,
        r#"{"message":"I edited the file {}/n2.py.","observation":"edit","content":"The file {}/n2.py has been edited. Here's the result of running `cat -n` on a snippet of {}/n2.py:\n     4\tl4\n     5\tl5\n     6\tl6\n     7\tL7\n     8\tL7b\n     9\tl8\n    10\tl9\n    11\tl10\n    12\tl11\n    13\t\nReview the changes and make sure they are as expected. Edit the file again if necessary.","extras":{"path":"{}/n2.py","prev_exist":false,"old_content":"l7","new_content":"L7\nL7b","impl_source":"oh_aci","diff":"--- {}/n2.py\n+++ {}/n2.py\n@@ -7 +7,2 @@\n-l7\n+L7\n+L7b","_diff_cache":null}}"#,
    ),
    (
        "3.4 error",
        r#"{"action":"read","args":{"path":"{}/gone.sh"}}"#,
        r#"{"message":"File not found: {}/gone.sh. Your current working directory is {}.","observation":"error","content":"File not found: {}/gone.sh. Your current working directory is {}.","extras":{"error_id":""}}"#,
    ),
    (
        "3.2 browse is not served",
        r#"{"action":"browse","args":{"url":"http://x"}}"#,
        r#"{"message":"Browser functionality is not supported or disabled.","observation":"error","content":"Browser functionality is not supported or disabled.","extras":{"error_id":""}}"#,
    ),
    (
        "3.2 browse_interactive is not served",
        r#"{"action":"browse_interactive","args":{"browser_actions":"noop()"}}"#,
        r#"{"message":"Browser functionality is not supported or disabled.","observation":"error","content":"Browser functionality is not supported or disabled.","extras":{"error_id":""}}"#,
    ),
];

#[test]
fn actions_get_exact_responses() {
    for environment in all_users() {
        for (section, action, expected) in EXAMPLES {
            let body = format!("{{\"action\":{}}}", environment.fill(action));
            let (answer, expected) = (environment.post(&body), environment.fill(expected));
            assert_eq!(answer.parts(), (200, expected.as_str()), "{section}");
        }
    }
}

#[test]
fn only_command_output_is_cut() {
    for environment in all_users() {
        let long = "x".repeat(40_000);
        environment.put("long", long.as_bytes());
        let answer = environment.act("read", &json!({"path": "long"}));
        assert_eq!(answer["content"], long, "3.3 files are not cut");
        let half = "x".repeat(15_000);
        let cut = format!("{half}\n[... Observation truncated due to length ...]\n{half}");
        assert_eq!(environment.output("cat long"), cut, "4.5 X1");
    }
}

#[test]
#[expect(clippy::float_cmp, reason = "the same computation")]
fn paths_without_key() {
    for environment in all_users() {
        let answer = environment.get("/alive");
        assert_eq!(answer.parts(), (200, "{\"status\":\"ok\"}"), "2.1 alive");
        for (section, head) in [
            ("2.1 POST", "POST /alive"),
            ("2.2 POST", "POST /server_info"),
            ("2.3 GET", "GET /execute_action"),
        ] {
            let answer = environment.keyed(head, "");
            assert_eq!(
                answer.parts(),
                (405, "{\"detail\":\"Method Not Allowed\"}"),
                "{section}"
            );
        }
        let answer = environment.get("/server_info");
        assert_eq!(answer.status, 200);
        let info = answer.json();
        let number = |pointer: &str| info.pointer(pointer).unwrap().as_f64().unwrap();
        let resource = |name: &str| number(&format!("/resources/{name}"));
        assert!(number("/uptime") > number("/idle_time"), "2.2 uptime");
        assert!(number("/idle_time") > 0.0, "2.2 idle_time");
        assert!(resource("cpu_percent") >= 0.0, "2.2 cpu_percent");
        let (resident, size) = (resource("memory/rss"), resource("memory/vms"));
        assert!(0.0 < resident && resident < size, "2.2 memory");
        let share = resource("memory/percent");
        assert!(0.0 < share && share < 100.0, "2.2 memory.percent");
        let (used, free) = (resource("disk/used"), resource("disk/free"));
        assert!(resource("disk/total") >= used, "2.2 disk");
        let percent = (used / (used + free) * 1000.0).round() / 10.0;
        assert_eq!(resource("disk/percent"), percent, "2.2 disk.percent");
        assert!(resource("io/read_bytes") >= 0.0 && resource("io/write_bytes") >= 0.0);
        for name in ["memory", "disk", "io"] {
            let fields = info["resources"][name].as_object().unwrap();
            let mut bytes = fields.iter().filter(|(name, _)| *name != "percent");
            assert!(bytes.all(|(_, value)| value.is_u64()), "2.2 {name}: {info}");
        }
        let sandbox = |name: &str| number(&format!("/sandbox/{name}"));
        assert!(sandbox("cpu_seconds") > 0.0, "2.2 sandbox.cpu_seconds");
        assert!(sandbox("memory/used") > 0.0, "2.2 sandbox.memory");
        assert!(
            sandbox("disk/total") >= sandbox("disk/used"),
            "2.2 sandbox.disk"
        );
    }
}
