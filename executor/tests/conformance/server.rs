//! Requests and concurrency (sections 1.7, 1.8, 2.2, 2.3 and 3.1).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::environment::{CaseEnvironment, environments};
use crate::client::{KEY, open_gate, wait_until};
use crate::transfer::fields;

/// Name, body without an action, and its error.
const INVALID: [&str; 7] = [
    "1.7 no action | {} | {'type': 'missing', 'loc': ('body', 'action'), 'msg': 'Field required', 'input': {}}",
    r#"1.7 action is no object | {"action":"x"} | {'type': 'dict_type', 'loc': ('body', 'action'), 'msg': 'Input should be a valid dictionary', 'input': 'x'}"#,
    r#"1.7 action is null | {"action":null} | {'type': 'dict_type', 'loc': ('body', 'action'), 'msg': 'Input should be a valid dictionary', 'input': None}"#,
    "1.7 no JSON | { | {'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error', 'input': {}, 'ctx': {'error': 'Expecting value'}}",
    "1.7 no body |  | {'type': 'missing', 'loc': ('body',), 'msg': 'Field required', 'input': None}",
    "1.7 no object | [1] | {'type': 'model_attributes_type', 'loc': ('body',), 'msg': 'Input should be a valid dictionary or object to extract fields from', 'input': [1]}",
    r#"1.7 other fields | {"x":1} | {'type': 'missing', 'loc': ('body', 'action'), 'msg': 'Field required', 'input': {'x': 1}}"#,
];

/// Name, action that is not executed, and its error.
const REFUSED: [&str; 9] = [
    "2.3 neither action nor observation | {} | Unknown event type: {}",
    r#"2.3 an observation | {"observation":"run"} | 400: Invalid action type"#,
    r#"2.3 unknown word | {"action":"nope"} | 'action['action']='nope'' is not defined. Available actions: dict_keys(['null', 'run', 'run_ipython', 'browse', 'browse_interactive', 'read', 'write', 'edit', 'think', 'finish', 'reject', 'recall', 'change_agent_state', 'message', 'system', 'condensation', 'condensation_request', 'call_tool_mcp', 'task_tracking', 'loop_recovery'])"#,
    r#"2.3 missing argument | {"action":"run","args":{}} | action={'action': 'run', 'args': {}} has the wrong arguments: CmdRunAction.__init__() missing 1 required positional argument: 'command'"#,
    r#"2.3 missing args | {"action":"run"} | action={'action': 'run'} has the wrong arguments: CmdRunAction.__init__() missing 1 required positional argument: 'command'"#,
    r#"2.3 an edit that clients take apart | {"action":"edit","args":{"path":"/f","impl_source":"llm_based_edit"}} | "#,
    r#"2.3 missing url | {"action":"browse","args":{}} | action={'action': 'browse', 'args': {}} has the wrong arguments: BrowseURLAction.__init__() missing 1 required positional argument: 'url'"#,
    r#"2.3 two missing arguments | {"action":"write","args":{}} | action={'action': 'write', 'args': {}} has the wrong arguments: FileWriteAction.__init__() missing 2 required positional arguments: 'path' and 'content'"#,
    r#"2.3 source | {"action":"run","source":"bogus","args":{"command":"ls"}} | 'bogus' is not a valid EventSource"#,
];

/// Actions that only the backend executes.
const OF_THE_BACKEND: &[(&str, &str)] = &[
    ("2.3 message", r#"{"content":""}"#),
    ("2.3 finish", "{}"),
    ("2.3 think", r#"{"thought":""}"#),
    ("2.3 null", "{}"),
    ("2.3 call_tool_mcp", r#"{"name":"x"}"#),
    ("2.3 recall", "{}"),
];

#[test]
fn invalid_bodies_are_rejected() {
    for environment in environments() {
        let process = environment.serve("bodies");
        for row in INVALID {
            let [name, body, error] = fields(row);
            let answer = process.post(body);
            let errors = format!("[{error}]");
            let expected = json!({"detail": "Invalid request parameters", "errors": errors});
            assert_eq!((answer.status, answer.json()), (422, expected), "{name}");
        }
        let check = |name: &str, action: &str, error: &str| {
            let answer = process.post(&format!("{{\"action\":{action}}}"));
            let expected = json!({"detail": format!("Internal server error: {error}")});
            assert_eq!((answer.status, answer.json()), (500, expected), "{name}");
        };
        for row in REFUSED {
            let [name, action, error] = fields(row);
            check(name, action, error);
        }
        for (name, args) in OF_THE_BACKEND {
            let word = name.trim_start_matches("2.3 ");
            let action = format!("{{\"action\":\"{word}\",\"args\":{args}}}");
            let error = format!("'ActionExecutor' object has no attribute '{word}'");
            check(name, &action, &error);
        }
        assert_eq!(process.output("echo fine"), "fine");
    }
}

/// Additions to the envelope of a command that do not change its response.
fn lenient_envelopes_table() -> Value {
    json!({
        "2.3 unknown argument": {"args/zzz": 1},
        "2.3 unknown key": {"zzz": {"a": 1}},
        "2.3 awaiting confirmation runs": {"args/confirmation_state": "awaiting_confirmation"},
        "3.1 legacy is_confirmed": {"args/is_confirmed": "confirmed"},
        "3.1 legacy keep_prompt": {"args/keep_prompt": false},
        "3.1 legacy timestamp": {"args/timestamp": "2025-11-28T10:00:00"},
        "3.1 legacy images_urls": {"args/images_urls": ["x"]},
        "3.1 legacy task_completed": {"args/task_completed": "true"},
        "3.1 legacy translated_ipython_code": {"args/translated_ipython_code": ""},
        "3.1 every confirmation_state": {"args/confirmation_state": "rejected"},
        "3.1 timeout in fractions": {"timeout": 60.5},
        "3.2 security_risk": {"args/security_risk": 2},
        "3.2 null thought": {"args/thought": null},
        "3.1 risk out of range": {"args/security_risk": 99},
        "3.1 full envelope": {
            "id": 12, "timestamp": "2025-11-28T10:00:00.123456", "source": "agent",
            "message": "Running command: ls", "cause": 11,
            "tool_call_metadata": {"function_name": "execute_bash"},
            "llm_metrics": {"accumulated_cost": 0.01}
        },
        "3.1 null source": {"source": null},
        "3.1 source user": {"source": "user"},
        "3.1 source environment": {"source": "environment"},
        "3.1 no timeout": {"timeout": null},
        "3.1 zero timeout": {"timeout": 0},
        "3.1 negative timeout": {"timeout": -1},
        "3.1 huge timeout": {"timeout": 1e300},
        "3.2 thought": {"args/thought": "hm"},
        "3.2 null cwd": {"args/cwd": null},
        "3.2 flags as words": {"args/is_input": "false", "args/blocking": "true"}
    })
}

#[test]
fn lenient_envelopes() {
    for environment in environments() {
        let process = environment.serve("lenient");
        for (name, additions) in lenient_envelopes_table().as_object().unwrap() {
            let args = json!({"command": "echo hi"});
            let mut action = json!({"action": "run", "args": args, "timeout": 60});
            for (pointer, value) in additions.as_object().unwrap() {
                match pointer.strip_prefix("args/") {
                    Some(name) => action["args"][name] = value.clone(),
                    None => action[pointer] = value.clone(),
                }
            }
            assert_eq!(process.act(&action)["content"], "hi", "{name}");
        }
    }
}

#[test]
fn response_is_compact_json_with_ordered_keys() {
    let process = CaseEnvironment::plain().serve("wire");
    let directory = process.output("pwd");
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
    let body = r#"{"action":{"action":"run","args":{"command":"cat gate; touch done"}}}"#;
    let stream = process.send_keyed("POST /execute_action", body);
    let gate = open_gate(&environment.path("gone/gate"));
    drop(stream);
    drop(gate);
    // Runs after the command of the disconnected client.
    assert_eq!(process.output("ls done"), "done");
}

#[test]
fn commands_of_the_shared_shell_run_one_after_the_other() {
    let process = CaseEnvironment::plain().serve("turns");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| process.output("mkdir lock && echo alone && rmdir lock") == "alone");
        }
    });
    assert_eq!(process.output("ls"), "");
}

#[test]
fn idle_time_is_zero_while_a_command_runs() {
    let environment = CaseEnvironment::plain();
    let process = environment.serve("idle");
    let info = || process.get("/server_info").json();
    let idle = || info()["idle_time"].as_f64().unwrap();
    process.while_waiting(&environment.path("idle"), || assert!(idle() == 0.0));
    let (first, second) = (idle(), idle());
    assert!(0.0 < first && first < second);
    process.get("/alive");
    assert!(idle() > second, "2.2 no other endpoint resets it");

    // A command that outlives its action counts as activity.
    let late = json!({"action": "run", "args": {"command": "cat gate"}, "timeout": 0.2});
    assert_eq!(process.act(&late)["extras"]["metadata"]["exit_code"], -1);
    assert!(idle() == 0.0);
    std::fs::write(environment.path("idle/gate"), "").unwrap();
    wait_until(|| idle() != 0.0);
}
