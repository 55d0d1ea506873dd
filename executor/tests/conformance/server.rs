//! Requests and concurrency (sections 1.7, 1.8, 2.2, 2.3 and 3.1).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::environment::{CaseEnvironment, environments};
use crate::client::{KEY, TestProcess};

const WORDS: &str = "['null', 'run', 'run_ipython', 'browse', 'browse_interactive', 'read', 'write', 'edit', 'think', 'finish', 'reject', 'recall', 'change_agent_state', 'message', 'system', 'condensation', 'condensation_request', 'call_tool_mcp', 'task_tracking', 'loop_recovery']";

#[test]
fn invalid_bodies_are_rejected() {
    for environment in environments() {
        refused_bodies_for(&environment.serve("bodies"));
    }
}

#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn refused_bodies_for(process: &TestProcess) {
    let invalid = |errors: &str| json!({"detail": "Invalid request parameters", "errors": format!("[{errors}]")});
    let internal = |text: &str| json!({"detail": format!("Internal server error: {text}")});
    let unknown =
        format!("'action['action']='nope'' is not defined. Available actions: dict_keys({WORDS})");
    for (name, body, status, expected) in [
        (
            "1.7 no action",
            "{}",
            422,
            invalid(
                "{'type': 'missing', 'loc': ('body', 'action'), 'msg': 'Field required', 'input': {}}",
            ),
        ),
        (
            "1.7 action is no object",
            "{\"action\":\"x\"}",
            422,
            invalid(
                "{'type': 'dict_type', 'loc': ('body', 'action'), 'msg': 'Input should be a valid dictionary', 'input': 'x'}",
            ),
        ),
        (
            "1.7 action is null",
            "{\"action\":null}",
            422,
            invalid(
                "{'type': 'dict_type', 'loc': ('body', 'action'), 'msg': 'Input should be a valid dictionary', 'input': None}",
            ),
        ),
        (
            "1.7 no JSON",
            "{",
            422,
            invalid(
                "{'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error', 'input': {}, 'ctx': {'error': 'Expecting value'}}",
            ),
        ),
        (
            "2.3 neither action nor observation",
            "{\"action\":{}}",
            500,
            internal("Unknown event type: {}"),
        ),
        (
            "2.3 an observation",
            "{\"action\":{\"observation\":\"run\"}}",
            500,
            internal("400: Invalid action type"),
        ),
        (
            "2.3 unknown word",
            "{\"action\":{\"action\":\"nope\"}}",
            500,
            internal(&unknown),
        ),
        (
            "2.3 missing argument",
            "{\"action\":{\"action\":\"run\",\"args\":{}}}",
            500,
            internal(
                "action={'action': 'run', 'args': {}} has the wrong arguments: CmdRunAction.__init__() missing 1 required positional argument: 'command'",
            ),
        ),
        (
            "2.3 missing args",
            "{\"action\":{\"action\":\"run\"}}",
            500,
            internal(
                "action={'action': 'run'} has the wrong arguments: CmdRunAction.__init__() missing 1 required positional argument: 'command'",
            ),
        ),
        (
            "2.3 message",
            "{\"action\":{\"action\":\"message\",\"args\":{\"content\":\"\"}}}",
            500,
            internal("'ActionExecutor' object has no attribute 'message'"),
        ),
        (
            "2.3 finish",
            "{\"action\":{\"action\":\"finish\",\"args\":{}}}",
            500,
            internal("'ActionExecutor' object has no attribute 'finish'"),
        ),
        (
            "2.3 think",
            "{\"action\":{\"action\":\"think\",\"args\":{\"thought\":\"\"}}}",
            500,
            internal("'ActionExecutor' object has no attribute 'think'"),
        ),
        (
            "2.3 null",
            "{\"action\":{\"action\":\"null\",\"args\":{}}}",
            500,
            internal("'ActionExecutor' object has no attribute 'null'"),
        ),
        (
            "2.3 call_tool_mcp",
            "{\"action\":{\"action\":\"call_tool_mcp\",\"args\":{\"name\":\"x\"}}}",
            500,
            internal("'ActionExecutor' object has no attribute 'call_tool_mcp'"),
        ),
        (
            "2.3 recall",
            "{\"action\":{\"action\":\"recall\",\"args\":{}}}",
            500,
            internal("'ActionExecutor' object has no attribute 'recall'"),
        ),
        (
            "2.3 an edit that clients take apart",
            "{\"action\":{\"action\":\"edit\",\"args\":{\"path\":\"/f\",\"impl_source\":\"llm_based_edit\"}}}",
            500,
            internal(""),
        ),
        (
            "2.3 missing url",
            "{\"action\":{\"action\":\"browse\",\"args\":{}}}",
            500,
            internal(
                "action={'action': 'browse', 'args': {}} has the wrong arguments: BrowseURLAction.__init__() missing 1 required positional argument: 'url'",
            ),
        ),
        (
            "2.3 two missing arguments",
            "{\"action\":{\"action\":\"write\",\"args\":{}}}",
            500,
            internal(
                "action={'action': 'write', 'args': {}} has the wrong arguments: FileWriteAction.__init__() missing 2 required positional arguments: 'path' and 'content'",
            ),
        ),
        (
            "2.3 source",
            "{\"action\":{\"action\":\"run\",\"source\":\"bogus\",\"args\":{\"command\":\"ls\"}}}",
            500,
            internal("'bogus' is not a valid EventSource"),
        ),
    ] {
        let answer = process.post(body);
        assert_eq!(answer.status, status, "{name}: {}", answer.body);
        assert_eq!(answer.json(), expected, "{name}");
    }
    assert_eq!(process.run("echo fine")["content"], "fine");
}

#[test]
fn lenient_envelopes() {
    for environment in environments() {
        lenient_envelopes_for(&environment.serve("lenient"));
    }
}

fn lenient_envelopes_for(process: &TestProcess) {
    let command = |extra: Value| {
        let mut action = json!({"action": "run", "args": {"command": "echo hi"}, "timeout": 60});
        for (pointer, value) in extra.as_object().unwrap() {
            match pointer.strip_prefix("args/") {
                Some(name) => action["args"][name] = value.clone(),
                None => action[pointer] = value.clone(),
            }
        }
        action
    };
    for (name, extra) in [
        ("2.3 unknown argument", json!({"args/zzz": 1})),
        ("2.3 unknown key", json!({"zzz": {"a": 1}})),
        (
            "2.3 awaiting confirmation runs",
            json!({"args/confirmation_state": "awaiting_confirmation"}),
        ),
        (
            "3.1 legacy is_confirmed",
            json!({"args/is_confirmed": "confirmed"}),
        ),
        ("3.1 legacy keep_prompt", json!({"args/keep_prompt": false})),
        (
            "3.1 legacy timestamp",
            json!({"args/timestamp": "2025-11-28T10:00:00"}),
        ),
        ("3.1 legacy images_urls", json!({"args/images_urls": ["x"]})),
        (
            "3.1 legacy task_completed",
            json!({"args/task_completed": "true"}),
        ),
        (
            "3.1 legacy translated_ipython_code",
            json!({"args/translated_ipython_code": ""}),
        ),
        (
            "3.1 every confirmation_state",
            json!({"args/confirmation_state": "rejected"}),
        ),
        ("3.1 timeout in fractions", json!({"timeout": 60.5})),
        ("3.2 security_risk", json!({"args/security_risk": 2})),
        ("3.2 null thought", json!({"args/thought": null})),
        ("3.1 risk out of range", json!({"args/security_risk": 99})),
        (
            "3.1 full envelope",
            json!({"id": 12, "timestamp": "2025-11-28T10:00:00.123456", "source": "agent", "message": "Running command: ls", "cause": 11, "tool_call_metadata": {"function_name": "execute_bash"}, "llm_metrics": {"accumulated_cost": 0.01}}),
        ),
        ("3.1 null source", json!({"source": null})),
        ("3.1 source user", json!({"source": "user"})),
        ("3.1 source environment", json!({"source": "environment"})),
        ("3.1 no timeout", json!({"timeout": null})),
        ("3.1 zero timeout", json!({"timeout": 0})),
        ("3.1 negative timeout", json!({"timeout": -1})),
        ("3.1 huge timeout", json!({"timeout": 1e300})),
        ("3.2 thought", json!({"args/thought": "hm"})),
        ("3.2 null cwd", json!({"args/cwd": null})),
        (
            "3.2 flags as words",
            json!({"args/is_input": "false", "args/blocking": "true"}),
        ),
    ] {
        assert_eq!(process.act(&command(extra))["content"], "hi", "{name}");
    }
}

#[test]
fn response_is_compact_json_with_ordered_keys() {
    let process = CaseEnvironment::plain().serve("wire");
    let directory = process.run("pwd")["content"].as_str().unwrap().to_owned();
    let body = json!({"action": {"action": "run", "args": {"command": "echo ü"}, "timeout": 60}});
    let answer = process.post(&body.to_string());
    let value = answer.json();
    let metadata = |name: &str| value["extras"]["metadata"][name].to_string();
    // Section 1.7: compact and not escaped. Section 3.3: order of keys.
    assert_eq!(
        answer.body,
        format!(
            "{{\"message\":\"Command `echo ü` executed with exit code 0.\",\"observation\":\"run\",\"content\":\"ü\",\"extras\":{{\"command\":\"echo ü\",\"metadata\":{{\"exit_code\":0,\"pid\":-1,\"username\":\"root\",\"hostname\":{},\"working_dir\":\"{directory}\",\"py_interpreter_path\":{},\"prefix\":\"\",\"suffix\":\"\\n[The command completed with exit code 0.]\"}},\"hidden\":false}},\"success\":true}}",
            metadata("hostname"),
            metadata("py_interpreter_path"),
        )
    );
}

#[test]
fn keep_alive_and_pipelines() {
    let process = CaseEnvironment::plain().serve("keep-alive");
    let mut stream = TcpStream::connect(process.address).unwrap();
    let body =
        "{\"action\":{\"action\":\"run\",\"args\":{\"command\":\"echo $((++n))\"},\"timeout\":60}}";
    let request = format!(
        "POST /execute_action HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for number in 1..=3 {
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        let mut byte = [0];
        while !text.ends_with("\"success\":true}") {
            stream.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
        }
        assert!(
            text.contains(&format!("\"content\":\"{number}\"")),
            "{text}"
        );
    }
}

#[test]
fn command_continues_when_client_disconnects() {
    let environment = CaseEnvironment::plain();
    let process = environment.serve("gone");
    process.run("mkfifo gate");
    let body = json!({"action": {"action": "run", "args": {"command": "cat gate; touch done"}}});
    let key = [("X-Session-API-Key", KEY)];
    let stream = crate::client::send(
        process.address,
        "POST /execute_action",
        &key,
        body.to_string().as_bytes(),
    );
    // Opens when the command has opened its end.
    let gate = std::fs::OpenOptions::new()
        .write(true)
        .open(environment.path("gone/gate"))
        .unwrap();
    drop(stream);
    drop(gate);
    // Runs after the command of the disconnected client.
    assert_eq!(process.run("ls done")["content"], "done");
}

#[test]
fn commands_of_the_shared_shell_run_one_after_the_other() {
    let process = CaseEnvironment::plain().serve("turns");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                process.run("mkdir lock && echo alone && rmdir lock")["content"] == "alone"
            });
        }
    });
    assert_eq!(process.run("ls")["content"], "");
}

#[test]
fn idle_time_is_zero_while_a_command_runs() {
    let environment = CaseEnvironment::plain();
    let process = environment.serve("idle");
    let idle = || {
        process.get("/server_info").json()["idle_time"]
            .as_f64()
            .unwrap()
    };
    process.run("mkfifo gate");
    std::thread::scope(|scope| {
        let long = scope.spawn(|| process.run("cat gate"));
        let gate = std::fs::OpenOptions::new()
            .write(true)
            .open(environment.path("idle/gate"))
            .unwrap();
        assert!(idle() == 0.0);
        drop(gate);
        long.join().unwrap();
    });
    let (first, second) = (idle(), idle());
    assert!(0.0 < first && first < second);
    process.get("/alive");
    assert!(idle() > second, "2.2 no other endpoint resets it");

    // A command that outlives its action counts as activity.
    let late = json!({"action": "run", "args": {"command": "cat gate"}, "timeout": 0.2});
    assert_eq!(process.act(&late)["extras"]["metadata"]["exit_code"], -1);
    assert!(idle() == 0.0);
    std::fs::write(environment.path("idle/gate"), "").unwrap();
    while idle() == 0.0 {
        std::thread::yield_now();
    }
}
