//! MCP with real tool servers and a real client (`docs/specs/executor.md`, sections 2.8 and 8).

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{HttpResponse, KEY, TestProcess, free_port, serve, serve_command};
use crate::plugins::{PluginFixture, is_alive, python};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/server.py");
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/client.py");
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const NOT_FOUND: &str = r#"{"detail":"Not Found"}"#;

fn bearer() -> String {
    format!("Bearer {KEY}")
}

/// A server in a directory of its own.
fn start() -> (TempDir, TestProcess) {
    let directory = tempfile::tempdir().unwrap();
    let process = serve(directory.path());
    (directory, process)
}

/// Request with the key in both headers.
fn ask(process: &TestProcess, head: &str, body: &str) -> HttpResponse {
    ask_with(process, head, &[("Content-Type", "application/json")], body)
}

fn ask_with(
    process: &TestProcess,
    head: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    let bearer = bearer();
    let keys = [("X-Session-API-Key", KEY), ("Authorization", &bearer)];
    process.request(head, &[&keys, headers].concat(), body.as_bytes())
}

#[track_caller]
fn assert_answer(process: &TestProcess, head: &str, body: &str, expected: (u16, &str)) {
    assert_eq!(
        ask(process, head, body).parts(),
        expected,
        "8.3 {head} {body}"
    );
}

fn local(name: &str) -> Value {
    json!({"name": name, "command": python(), "args": [SERVER]})
}

/// Updates the tool servers and returns their errors.
pub(crate) fn update(process: &TestProcess, servers: &Value) -> String {
    let answer = ask(process, "POST /update_mcp_server", &servers.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    let problems = text(&answer["router_error_log"]);
    let succeeded = answer["detail"] == "MCP server updated successfully";
    assert_eq!(succeeded, problems.is_empty(), "{answer}");
    problems
}

fn call(process: &TestProcess, method: &str, params: &Value) -> Value {
    let message = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
    let answer = ask(process, "POST /mcp", &message.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    assert!(
        answer["id"] == "a" && answer["jsonrpc"] == "2.0",
        "{answer}"
    );
    answer
}

fn tools(process: &TestProcess) -> Vec<String> {
    let answer = call(process, "tools/list", &json!({}));
    let tools = answer["result"]["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("{answer}")).iter();
    let mut names: Vec<_> = tools.map(|tool| text(&tool["name"])).collect();
    names.sort();
    names
}

fn text(value: &Value) -> String {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}

/// Text of a tool's result, and true if the tool has failed.
pub(crate) fn tool(process: &TestProcess, name: &str, arguments: &Value) -> (String, bool) {
    let params = json!({"name": name, "arguments": arguments});
    let answer = call(process, "tools/call", &params);
    let result = &answer["result"];
    (
        text(&result["content"][0]["text"]),
        result["isError"] == true,
    )
}

fn pid(process: &TestProcess, name: &str) -> String {
    tool(process, name, &json!({"what": "pid"})).0
}

/// Remote tool server. Ends with the test.
struct Remote {
    child: Child,
    port: u16,
}

impl Remote {
    fn start(transport: &str) -> Self {
        Self::with(transport, &[])
    }

    fn with(transport: &str, more: &[&Path]) -> Self {
        let port = free_port();
        let mut command = Command::new(python());
        command
            .arg(SERVER)
            .args([transport, &port.to_string()])
            .args(more)
            .stderr(Stdio::null());
        let mut remote = Self {
            child: command.spawn().unwrap(),
            port,
        };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = remote.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server has ended: {ended:?}");
            std::thread::yield_now();
        }
        remote
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Event stream.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(process: &TestProcess, path: &str) -> (String, Self) {
        let mut stream = TcpStream::connect(process.address).unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {KEY}\r\nAuthorization: {}\r\n\r\n",
            bearer()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut events = Self(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(events.0.read_line(&mut head).unwrap(), 0, "{head}");
        }
        (head.to_ascii_lowercase(), events)
    }

    /// Message of the next event.
    fn message(&mut self) -> Value {
        serde_json::from_str(&self.next().1).unwrap()
    }

    /// Kind and data of the next event. Skips pings and chunk sizes.
    fn next(&mut self) -> (String, String) {
        let mut kind = String::new();
        loop {
            let mut line = String::new();
            let length = self.0.read_line(&mut line).unwrap();
            assert_ne!(length, 0, "the stream has ended");
            if let Some(value) = line.strip_prefix("event: ") {
                value.trim_end().clone_into(&mut kind);
            } else if let Some(value) = line.strip_prefix("data: ") {
                return (kind, value.trim_end().to_owned());
            }
        }
    }
}

#[test]
fn mcp_endpoints_return_404_before_first_update() {
    let (_directory, process) = start();
    let heads = [
        "GET /mcp/sse",
        "GET /sse",
        "POST /mcp/messages/",
        "POST /mcp",
    ];
    for head in heads {
        assert_answer(&process, head, "{}", (404, NOT_FOUND));
    }
    assert_eq!(update(&process, &json!([])), "");
    assert_eq!(ask(&process, "GET /mcp/sse", "").status, 404);
    update(&process, &json!([{"name": "a", "command": "cat"}]));
    assert_answer(&process, "GET /nope", "", (404, "Not Found"));
    assert_answer(&process, "POST /alive", "", (404, "Not Found"));
}

#[test]
fn invalid_updates_are_rejected() {
    let (_directory, process) = start();
    let unexpected = r#"{"detail":"An unexpected error occurred. Please try again later."}"#;
    let no_list = r#"{"detail":"Request must be a list of MCP tools to sync"}"#;
    for (body, status, expected) in [
        ("{}", 400, no_list),
        ("\"x\"", 400, no_list),
        ("[{\"name\":\"a b\",\"command\":\"x\"}]", 500, unexpected),
        ("[{\"name\":\"a\"}]", 500, unexpected),
        ("[1]", 500, unexpected),
        ("[", 500, unexpected),
    ] {
        let answer = ask(&process, "POST /update_mcp_server", body);
        assert_eq!(answer.parts(), (status, expected), "2.8 {body}");
    }
    let without_key = process.request("POST /update_mcp_server", &[], b"[]");
    assert_eq!(without_key.status, 403);
    let gone = json!({"name": "gone", "command": "/no/such/program"});
    let script = "echo reason >&2; exit 3";
    let ends = json!({"name": "ends", "command": "sh", "args": ["-c", script]});
    assert_eq!(
        update(&process, &json!([gone, ends])),
        "ends: it has ended (exit status: 3): reason\n\
         gone: cannot start it: No such file or directory (os error 2)"
    );
}

#[test]
fn transports_accept_the_key_in_either_header() {
    let (_directory, process) = start();
    update(&process, &json!([{"name": "a", "command": "cat"}]));
    let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let post = |path: &str, headers: &[(&str, &str)]| {
        let answer = process.request(&format!("POST {path}"), headers, ping);
        (answer.status, answer.body)
    };
    for header in [("X-Session-API-Key", KEY), ("Authorization", &bearer())] {
        assert_eq!(post("/mcp", &[header]).0, 200, "{header:?}");
    }
    let wrong = r#"{"error": "invalid_token", "error_description": "Authentication required"}"#;
    for authorization in ["", "Bearer wrong", KEY] {
        let answer = post("/mcp", &[("Authorization", authorization)]);
        assert_eq!(answer, (401, wrong.to_owned()), "{authorization}");
    }
    assert_eq!(post("/mcp", &[]).0, 403);
    let bearer = bearer();
    assert_eq!(
        post("/execute_action", &[("Authorization", &bearer)]).0,
        403
    );
}

#[test]
fn sse_transport_answers_over_the_stream() {
    let (_directory, process) = start();
    update(&process, &json!([local("t")]));
    assert_eq!(ask(&process, "GET /mcp/sse/", "").status, 307);
    for (path, place) in [("/mcp/sse", "/mcp/"), ("/sse", "/")] {
        let (head, mut events) = Events::open(&process, path);
        for header in [
            "content-type: text/event-stream; charset=utf-8",
            "cache-control: no-store",
            "x-accel-buffering: no",
        ] {
            assert!(head.contains(header), "{head}");
        }
        let (kind, endpoint) = events.next();
        assert_eq!(kind, "endpoint");
        let post = format!("POST {place}{endpoint}");
        assert!(endpoint.starts_with("messages/?session_id=") && endpoint.len() == 21 + 32);
        // An open stream keeps the sandbox active.
        assert_eq!(process.get("/server_info").json()["idle_time"], 0.0);
        let request = r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}"#;
        assert_answer(&process, &post, request, (202, "Accepted"));
        let (kind, data) = events.next();
        assert_eq!(kind, "message");
        let hello: Value = serde_json::from_str(&data).unwrap();
        assert!(
            hello["id"] == 7 && hello["result"]["protocolVersion"] == "2025-03-26",
            "{hello}"
        );
        assert_eq!(ask(&process, &post, INITIALIZED).status, 202);
        let request = r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"echo","arguments":{"text":"é"}}}"#;
        assert_eq!(ask(&process, &post, request).status, 202);
        let answer = events.message();
        assert_eq!(answer["result"]["content"][0]["text"], "E:é");
        let messages = format!("POST {place}messages/");
        let unknown = format!("{messages}?session_id={}", "0".repeat(32));
        let malformed = format!("{messages}?session_id=x");
        for (head, body, status, text) in [
            (&messages, "{}", 400, "session_id is required"),
            (&malformed, "{}", 400, "Invalid session ID"),
            (&unknown, "{}", 404, "Could not find session"),
            (&post, "{", 400, "Could not parse message"),
            (&post, "[]", 400, "Could not parse message"),
        ] {
            assert_answer(&process, head, body, (status, text));
        }
        assert_eq!(
            ask_with(&process, &post, &[], "{}").parts(),
            (400, "Invalid Content-Type header")
        );
        drop(events);
        while ask(&process, &post, "{}").status != 404 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn streamable_http_answers_in_the_response() {
    let (_directory, process) = start();
    update(&process, &json!([local("t")]));
    for (body, code) in [("{", -32700), ("[]", -32600), ("1", -32600)] {
        let answer = ask(&process, "POST /mcp", body);
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"]["code"], code, "{body}");
    }
    for head in ["GET /mcp", "DELETE /mcp", "GET /mcp/"] {
        assert_eq!(ask(&process, head, "").status, 405, "{head}");
    }
    let answer = ask(&process, "POST /mcp", INITIALIZED);
    assert_eq!(answer.parts(), (202, ""));
    assert_eq!(call(&process, "nope", &json!({}))["error"]["code"], -32601);
    assert_eq!(call(&process, "ping", &json!({}))["result"], json!({}));
}

#[test]
fn batches_are_answered_in_order_and_bounded() {
    let (_directory, process) = start();
    update(&process, &json!([local("t")]));
    let (_, mut events) = Events::open(&process, "/sse");
    let (_, endpoint) = events.next();
    let post = format!("POST /{endpoint}");
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let ping = |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let answered = |id: usize| json!({"jsonrpc": "2.0", "id": id, "result": {}});
    let batch = json!([ping(1), told, ping(2)]).to_string();
    assert_eq!(
        ask(&process, "POST /mcp", &batch).json(),
        json!([answered(1), answered(2)])
    );
    assert_eq!(ask(&process, &post, &batch).status, 202);
    assert_eq!(events.message(), json!([answered(1), answered(2)]));
    assert_answer(&process, "POST /mcp", &json!([told]).to_string(), (202, ""));
    // Larger batches and other elements are rejected.
    let many = |count| (0..count).map(ping).collect::<Value>().to_string();
    assert_eq!(ask(&process, "POST /mcp", &many(32)).status, 200);
    for body in [many(33), json!([ping(1), 1]).to_string()] {
        let answer = ask(&process, "POST /mcp", &body);
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"]["code"], -32600, "{body}");
        assert_eq!(ask(&process, &post, &body).status, 400, "{body}");
    }
}

#[test]
fn python_mcp_client_works_with_every_transport() {
    let (_directory, process) = start();
    let talk = |transport: &str, path: &str| {
        let url = format!("http://{}{path}", process.address);
        let mut command = Command::new(python());
        command
            .arg(CLIENT)
            .args([transport, &url])
            .env("SESSION_API_KEY", KEY);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let expected = "sandbox-executor\nchange die echo fail flood tell wait\nE:hi False\nWhat about x?\nresource one\n";
    let sse = Remote::start("sse");
    let newer = Remote::start("streamable-http");
    for server in [
        local("t"),
        json!({"name": "t", "url": format!("http://127.0.0.1:{}/sse", sse.port)}),
        json!({"name": "t", "url": format!("http://127.0.0.1:{}/mcp", newer.port)}),
    ] {
        assert_eq!(update(&process, &json!([server])), "");
        assert_eq!(talk("sse", "/mcp/sse"), expected, "{server}");
        assert_eq!(talk("streamable-http", "/mcp"), expected, "{server}");
    }
    drop(newer);
    let (text, failed) = tool(&process, "echo", &json!({"text": "x"}));
    assert!(failed && text.starts_with("t: cannot reach it: "), "{text}");
}

#[test]
fn https_server_needs_a_trusted_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (key, certificate) = (path("key"), path("certificate"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/certificate.py");
    let made = Command::new(python())
        .arg(script)
        .args([&key, &certificate])
        .status();
    assert!(made.unwrap().success());
    let remote = Remote::with("https", &[&key, &certificate]);
    let server = json!([{"name": "t", "url": format!("https://127.0.0.1:{}/mcp", remote.port)}]);
    let mut trusting = serve_command(&path("w"), &[]);
    let process = TestProcess::start(trusting.env("SSL_CERT_FILE", &certificate));
    assert_eq!(update(&process, &server), "");
    assert_eq!(tool(&process, "echo", &json!({"text": "hi"})).0, "E:hi");
    let process = serve(&path("w"));
    let problem = update(&process, &server);
    assert!(
        problem.starts_with("t: cannot reach it: ") && problem.contains("certificate"),
        "{problem}"
    );
}

#[test]
fn tool_failures_are_results() {
    let (_directory, process) = start();
    update(&process, &json!([local("t")]));
    let params = json!({"name": "echo", "arguments": {"text": "hi"}});
    assert_eq!(
        call(&process, "tools/call", &params)["result"],
        json!({"content": [{"type": "text", "text": "E:hi"}], "structuredContent": {"result": "E:hi"}, "isError": false})
    );
    assert_eq!(
        tool(&process, "nope", &json!({})),
        ("Unknown tool: nope".to_owned(), true),
        "8.4 a tool that is not there"
    );
    let (text, failed) = tool(&process, "echo", &json!({}));
    assert!(failed && text.contains("text"), "{text}");
    assert!(tool(&process, "fail", &json!({})).1);
    assert_eq!(
        tool(&process, "flood", &json!({})),
        ("still here".to_owned(), false)
    );
    // The end of a tool server fails only the current call.
    let (text, failed) = tool(&process, "die", &json!({}));
    assert!(
        failed && text.starts_with("t: it has ended (exit status: 7)"),
        "{text}"
    );
    assert_eq!(
        tool(&process, "echo", &json!({"text": "again"})).0,
        "E:again"
    );
}

/// Tool server as a shell script: runs `first`, answers `initialize`, then runs `then`.
fn script_server(first: &str, then: &str) -> Value {
    let hello = r#"printf '{"jsonrpc":"2.0","id":0,"result":{}}\n'; read thanks"#;
    let script = format!("read hello; {first}\n{hello}\n{then}");
    json!({"name": "t", "command": "sh", "args": ["-c", script]})
}

#[test]
fn output_of_tool_server_is_bounded() {
    let (_directory, process) = start();
    let flood = "head -c 67108864 /dev/zero | tr '\\0' x";
    // Lines that are not messages, on both outputs, before and between messages.
    let answer = r#"printf '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"here"}]}}\n'"#;
    let lines = format!("{flood} | fold -w 1023; echo; {flood} >&2");
    let server = script_server(&lines, &format!("read call; {lines}; {answer}; cat >&2"));
    assert_eq!(update(&process, &json!([server])), "");
    let call = || tool(&process, "any", &json!({}));
    assert_eq!(call(), ("here".to_owned(), false));
    // One endless line.
    update(
        &process,
        &json!([script_server("", &format!("read call; {flood}; cat >&2"))]),
    );
    let ended = ("t: it has ended (signal: 9 (SIGKILL))".to_owned(), true);
    assert_eq!(call(), ended);
    assert!(process.peak() < 120 << 10, "{}", process.peak());
    assert_eq!(process.run("echo hi")["content"], "hi");
}

#[test]
fn streams_and_requests_are_bounded() {
    let (_directory, process) = start();
    // It reads and never responds.
    let silent = json!([script_server("", "exec cat > /dev/null")]);
    assert_eq!(update(&process, &silent), "");
    let mut streams: Vec<_> = (0..128).map(|_| Events::open(&process, "/sse")).collect();
    let (_, endpoint) = streams[0].1.next();
    assert_answer(
        &process,
        "GET /sse",
        "",
        (503, r#"{"detail":"Too many streams"}"#),
    );
    let post = format!("POST /{endpoint}");
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#;
    for _ in 0..256 {
        assert_eq!(ask(&process, &post, request).status, 202);
    }
    for head in [post.as_str(), "POST /mcp"] {
        assert_answer(&process, head, request, (503, "Too many requests"));
    }
    // Pending calls fail when their server is removed.
    update(&process, &json!([]));
    let mut answers = 0;
    while answers < 256 {
        let message = streams[0].1.message();
        if message["id"] == 1 {
            assert_eq!(message["result"]["isError"], true, "{message}");
            answers += 1;
        }
    }
    drop(streams);
    while Events::open(&process, "/sse").0.starts_with("http/1.1 503") {
        std::thread::yield_now();
    }
}

#[test]
fn child_processes_end_with_tool_server() {
    let (directory, process) = start();
    let pids = directory.path().join("pids");
    // Starts a child that outlives it, and ends at the next message.
    let script = format!(
        "sleep 1000 & echo $! > {}; read end; echo 'no more' >&2; exit 4",
        pids.display()
    );
    assert_eq!(update(&process, &json!([script_server("", &script)])), "");
    let expected = ("t: it has ended (exit status: 4): no more".to_owned(), true);
    for _ in 0..2 {
        assert_eq!(tool(&process, "any", &json!({})), expected);
        let pid = fs::read_to_string(&pids).unwrap();
        // It has been killed, but may still be exiting.
        while is_alive(pid.trim()) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn list_changes_are_sent_to_event_streams() {
    let (_directory, process) = start();
    update(&process, &json!([local("t")]));
    let (_, mut events) = Events::open(&process, "/sse");
    assert_eq!(events.next().0, "endpoint");
    let mut next = || events.message()["method"].clone();
    // Sent by a server and by an update that changes the set, not by an equal update.
    assert_eq!(tool(&process, "change", &json!({})).0, "told");
    assert_eq!(next(), "notifications/tools/list_changed");
    update(&process, &json!([local("t")]));
    update(&process, &json!([local("other")]));
    for kind in ["tools", "prompts", "resources"] {
        assert_eq!(next(), format!("notifications/{kind}/list_changed"));
    }
    assert_eq!(tool(&process, "change", &json!({})).0, "told");
    assert_eq!(next(), "notifications/tools/list_changed");
}

#[test]
fn update_replaces_servers_and_prefixes_tools() {
    let (_directory, process) = start();
    let names = ["change", "die", "echo", "fail", "flood", "tell", "wait"];
    update(&process, &json!([local("a")]));
    assert_eq!(tools(&process), names);
    let first = pid(&process, "tell");
    update(&process, &json!([local("a"), local("a_b")]));
    let mut expected: Vec<_> = ["a_", "a_b_"]
        .iter()
        .flat_map(|server| names.map(|name| format!("{server}{name}")))
        .collect();
    expected.sort();
    assert_eq!(tools(&process), expected);
    assert_eq!(
        pid(&process, "a_tell"),
        first,
        "what stays the same is kept"
    );
    let second = pid(&process, "a_b_tell");
    assert_ne!(first, second);
    update(&process, &json!([local("a_b")]));
    assert_eq!(tools(&process), names);
    assert!(
        !is_alive(&first) && is_alive(&second),
        "8.5 the set is replaced"
    );
    let mut changed = local("a_b");
    changed["env"] = json!("NEW=yes");
    update(&process, &json!([changed]));
    assert!(!is_alive(&second));
    assert_eq!(tool(&process, "tell", &json!({"what": "NEW"})).0, "yes");
    update(&process, &json!([]));
    assert!(tools(&process).is_empty());
}

#[test]
fn silent_tool_server_does_not_delay_others() {
    let (directory, process) = start();
    process.run("mkfifo gate");
    let silent = json!({"name": "silent", "command": "sleep", "args": "1000"});
    assert_eq!(update(&process, &json!([local("t"), silent])), "");
    let gate = directory.path().join("gate");
    std::thread::scope(|scope| {
        let long = scope.spawn(|| tool(&process, "t_wait", &json!({"gate": gate})));
        let mut writer = fs::OpenOptions::new().write(true).open(&gate).unwrap();
        assert_eq!(process.run("echo hi")["content"], "hi");
        writer.write_all(b"open").unwrap();
        drop(writer);
        assert_eq!(long.join().unwrap().0, "open");
    });
    assert!(tools(&process).iter().all(|name| name.starts_with("t_")));
    update(&process, &json!([local("t")]));
    assert_eq!(tools(&process).len(), 7);
}

#[test]
fn tool_server_runs_as_user_with_minimal_environment() {
    let Some(fixture) = PluginFixture::openhands() else {
        return;
    };
    let script = fixture.root.join("server.py");
    fs::copy(SERVER, &script).unwrap();
    let prefix = Path::new(&fixture.interpreter).ancestors().nth(2).unwrap();
    let environment = json!({
        "PYTHONPATH": prefix.with_file_name("site"),
        "LD_LIBRARY_PATH": prefix.join("lib"),
    });
    let server =
        json!({"name": "t", "command": fixture.interpreter, "args": [script], "env": environment});
    assert_eq!(update(&fixture.process, &json!([server])), "");
    let tell = |what: &str| tool(&fixture.process, "tell", &json!({"what": what})).0;
    assert_eq!(tell("uid"), "1000");
    assert_eq!(tell("cwd"), fixture.root.display().to_string());
    assert_eq!(tell("HOME"), "/home/openhands", "8.2 environment");
    let names = tell("names");
    assert!(
        !names.contains("SESSION") && !names.contains("SANDBOX"),
        "{names}"
    );
}

#[test]
fn tool_servers_and_children_are_killed_on_update_and_shutdown() {
    let (directory, process) = start();
    let pids = directory.path().join("pids");
    let script = format!(
        "sleep 1000 & echo $$ $! > {}; exec sleep 1000",
        pids.display()
    );
    let server = json!([{"name": "a", "command": "sh", "args": ["-c", script]}]);
    update(&process, &server);
    let read = || fs::read_to_string(&pids).unwrap();
    let first = read();
    assert!(first.split_whitespace().all(is_alive) && first.split_whitespace().count() == 2);
    update(&process, &json!([]));
    assert!(!first.split_whitespace().any(is_alive));
    update(&process, &server);
    let second = read();
    let (_, mut events) = Events::open(&process, "/sse");
    events.next();
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
    assert!(!second.split_whitespace().any(is_alive));
}
