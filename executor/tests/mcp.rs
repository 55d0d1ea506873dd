//! MCP with real tool servers and a real client (`docs/specs/executor.md`, sections 2.8 and 8).

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{
    HttpResponse, KEY, SESSION_KEY, TestProcess, open_gate, read_head, send, serve, serve_command,
    wait_until,
};
use crate::fixture::ServerFixture;
use crate::free_port::free_port;
use crate::plugins::{is_alive, openhands, python};
use crate::transfer::fields;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/server.py");
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/client.py");
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const NOT_FOUND: &str = r#"{"detail":"Not Found"}"#;

/// The key as the `Authorization` header.
const BEARER: (&str, &str) = ("Authorization", "Bearer secret-session-key");

/// A server with these tool servers.
fn start(servers: &Value) -> ServerFixture {
    let fixture = ServerFixture::new("root");
    update(&fixture, servers);
    fixture
}

/// Request with the key in both headers.
fn ask(process: &TestProcess, head: &str, body: &str) -> HttpResponse {
    let json = ("Content-Type", "application/json");
    process.request(head, &[SESSION_KEY, BEARER, json], body.as_bytes())
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
fn update(process: &TestProcess, servers: &Value) -> String {
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
    assert_eq!(
        (&answer["id"], &answer["jsonrpc"]),
        (&json!("a"), &json!("2.0"))
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
fn tool(process: &TestProcess, name: &str, arguments: &Value) -> (String, bool) {
    let params = json!({"name": name, "arguments": arguments});
    let answer = call(process, "tools/call", &params);
    let result = &answer["result"];
    let said = text(&result["content"][0]["text"]);
    (said, result["isError"] == true)
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
    fn start(transport: &str, more: &[&Path]) -> Self {
        let port = free_port();
        let mut command = Command::new(python());
        command.arg(SERVER).args([transport, &port.to_string()]);
        let child = command.args(more).stderr(Stdio::null()).spawn().unwrap();
        let mut remote = Self { child, port };
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

/// Tool server by HTTPS, with a certificate of its own.
pub(crate) struct HttpsServer {
    pub(crate) url: String,
    pub(crate) certificate: PathBuf,
    _remote: Remote,
    _directory: TempDir,
}

impl HttpsServer {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [key, certificate] = ["key", "certificate"].map(|name| directory.path().join(name));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/certificate.py");
        let mut make = Command::new(python());
        let status = make.arg(script).args([&key, &certificate]).status();
        assert!(status.unwrap().success());
        let remote = Remote::start("https", &[&key, &certificate]);
        Self {
            url: format!("https://127.0.0.1:{}", remote.port),
            certificate,
            _remote: remote,
            _directory: directory,
        }
    }
}

/// Event stream.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(process: &TestProcess, path: &str) -> (String, Self) {
        let headers = [SESSION_KEY, BEARER];
        let stream = send(process.address, &format!("GET {path}"), &headers, b"");
        let mut reader = BufReader::new(stream);
        (read_head(&mut reader).to_ascii_lowercase(), Self(reader))
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
    let fixture = ServerFixture::new("root");
    for head in [
        "GET /mcp/sse",
        "GET /sse",
        "POST /mcp/messages/",
        "POST /mcp",
    ] {
        assert_answer(&fixture, head, "{}", (404, NOT_FOUND));
    }
    assert_eq!(update(&fixture, &json!([])), "");
    assert_eq!(ask(&fixture, "GET /mcp/sse", "").status, 404);
    update(&fixture, &json!([{"name": "a", "command": "cat"}]));
    assert_answer(&fixture, "GET /nope", "", (404, "Not Found"));
    assert_answer(&fixture, "POST /alive", "", (404, "Not Found"));
}

#[test]
fn invalid_updates_are_rejected() {
    let fixture = ServerFixture::new("root");
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
        let answer = ask(&fixture, "POST /update_mcp_server", body);
        assert_eq!(answer.parts(), (status, expected), "2.8 {body}");
    }
    let without_key = fixture.request("POST /update_mcp_server", &[], b"[]");
    assert_eq!(without_key.status, 403);
    let gone = json!({"name": "gone", "command": "/no/such/program"});
    let script = "echo reason >&2; exit 3";
    let ends = json!({"name": "ends", "command": "sh", "args": ["-c", script]});
    assert_eq!(
        update(&fixture, &json!([gone, ends])),
        "ends: it has ended (exit status: 3): reason\n\
         gone: cannot start it: No such file or directory (os error 2)"
    );
}

#[test]
fn transports_accept_the_key_in_either_header() {
    let fixture = start(&json!([{"name": "a", "command": "cat"}]));
    let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let post = |path: &str, headers: &[(&str, &str)]| {
        let answer = fixture.request(&format!("POST {path}"), headers, ping);
        (answer.status, answer.body)
    };
    for header in [SESSION_KEY, BEARER] {
        assert_eq!(post("/mcp", &[header]).0, 200, "{header:?}");
    }
    let wrong = r#"{"error": "invalid_token", "error_description": "Authentication required"}"#;
    for authorization in ["", "Bearer wrong", KEY] {
        let answer = post("/mcp", &[("Authorization", authorization)]);
        assert_eq!(answer, (401, wrong.to_owned()), "{authorization}");
    }
    assert_eq!(post("/mcp", &[]).0, 403);
    assert_eq!(post("/execute_action", &[BEARER]).0, 403);
}

#[test]
fn sse_transport_answers_over_the_stream() {
    let fixture = start(&json!([local("t")]));
    assert_eq!(ask(&fixture, "GET /mcp/sse/", "").status, 307);
    for (path, place) in [("/mcp/sse", "/mcp/"), ("/sse", "/")] {
        let (head, mut events) = Events::open(&fixture, path);
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
        assert_eq!(fixture.get("/server_info").json()["idle_time"], 0.0);
        let request = r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}"#;
        assert_answer(&fixture, &post, request, (202, "Accepted"));
        let (kind, data) = events.next();
        assert_eq!(kind, "message");
        let hello: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(hello["id"], 7);
        assert_eq!(hello["result"]["protocolVersion"], "2025-03-26");
        assert_eq!(ask(&fixture, &post, INITIALIZED).status, 202);
        let request = r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"echo","arguments":{"text":"é"}}}"#;
        assert_eq!(ask(&fixture, &post, request).status, 202);
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
            assert_answer(&fixture, head, body, (status, text));
        }
        let untyped = fixture.request(&post, &[SESSION_KEY, BEARER], b"{}");
        assert_eq!(untyped.parts(), (400, "Invalid Content-Type header"));
        drop(events);
        wait_until(|| ask(&fixture, &post, "{}").status == 404);
    }
}

#[test]
fn streamable_http_answers_in_the_response() {
    let fixture = start(&json!([local("t")]));
    for (body, code) in [("{", -32700), ("[]", -32600), ("1", -32600)] {
        let answer = ask(&fixture, "POST /mcp", body);
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"]["code"], code, "{body}");
    }
    for head in ["GET /mcp", "DELETE /mcp", "GET /mcp/"] {
        assert_eq!(ask(&fixture, head, "").status, 405, "{head}");
    }
    let answer = ask(&fixture, "POST /mcp", INITIALIZED);
    assert_eq!(answer.parts(), (202, ""));
    assert_eq!(call(&fixture, "nope", &json!({}))["error"]["code"], -32601);
    assert_eq!(call(&fixture, "ping", &json!({}))["result"], json!({}));
}

#[test]
fn batches_are_answered_in_order_and_bounded() {
    let fixture = start(&json!([local("t")]));
    let (_, mut events) = Events::open(&fixture, "/sse");
    let (_, endpoint) = events.next();
    let post = format!("POST /{endpoint}");
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let ping = |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let answered = |id: usize| json!({"jsonrpc": "2.0", "id": id, "result": {}});
    let batch = json!([ping(1), told, ping(2)]).to_string();
    assert_eq!(
        ask(&fixture, "POST /mcp", &batch).json(),
        json!([answered(1), answered(2)])
    );
    assert_eq!(ask(&fixture, &post, &batch).status, 202);
    assert_eq!(events.message(), json!([answered(1), answered(2)]));
    assert_answer(&fixture, "POST /mcp", &json!([told]).to_string(), (202, ""));
    // Larger batches and other elements are rejected.
    let many = |count| (0..count).map(ping).collect::<Value>().to_string();
    assert_eq!(ask(&fixture, "POST /mcp", &many(32)).status, 200);
    for body in [many(33), json!([ping(1), 1]).to_string()] {
        let answer = ask(&fixture, "POST /mcp", &body);
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"]["code"], -32600, "{body}");
        assert_eq!(ask(&fixture, &post, &body).status, 400, "{body}");
    }
}

#[test]
fn python_mcp_client_works_with_every_transport() {
    let fixture = ServerFixture::new("root");
    let talk = |transport: &str, path: &str| {
        let url = format!("http://{}{path}", fixture.address);
        let mut command = Command::new(python());
        command.arg(CLIENT).args([transport, &url]);
        let output = command.env("SESSION_API_KEY", KEY).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let expected = "sandbox-executor\nchange die echo fail flood tell wait\nE:hi False\nWhat about x?\nresource one\n";
    let sse = Remote::start("sse", &[]);
    let newer = Remote::start("streamable-http", &[]);
    for server in [
        local("t"),
        json!({"name": "t", "url": format!("http://127.0.0.1:{}/sse", sse.port)}),
        json!({"name": "t", "url": format!("http://127.0.0.1:{}/mcp", newer.port)}),
    ] {
        assert_eq!(update(&fixture, &json!([server])), "");
        assert_eq!(talk("sse", "/mcp/sse"), expected, "{server}");
        assert_eq!(talk("streamable-http", "/mcp"), expected, "{server}");
    }
    drop(newer);
    let (text, failed) = tool(&fixture, "echo", &json!({"text": "x"}));
    assert!(failed && text.starts_with("t: cannot reach it: "), "{text}");
}

#[test]
fn https_server_needs_a_trusted_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let remote = HttpsServer::start();
    let server = json!([{"name": "t", "url": format!("{}/mcp", remote.url)}]);
    let mut trusting = serve_command(&path("w"), &[]);
    let process = TestProcess::start(trusting.env("SSL_CERT_FILE", &remote.certificate));
    assert_eq!(update(&process, &server), "");
    assert_eq!(tool(&process, "echo", &json!({"text": "hi"})).0, "E:hi");
    let process = serve(&path("w"));
    let problem = update(&process, &server);
    assert!(problem.starts_with("t: cannot reach it: "), "{problem}");
    assert!(problem.contains("certificate"), "{problem}");
}

#[test]
fn tool_failures_are_results() {
    let fixture = start(&json!([local("t")]));
    let params = json!({"name": "echo", "arguments": {"text": "hi"}});
    assert_eq!(
        call(&fixture, "tools/call", &params)["result"],
        json!({"content": [{"type": "text", "text": "E:hi"}], "structuredContent": {"result": "E:hi"}, "isError": false})
    );
    // The end of a tool server fails only the current call.
    for row in [
        "8.4 a tool that is not there | nope | {} | failed | Unknown tool: nope",
        "8.4 no argument | echo | {} | failed | text",
        "8.4 a tool that fails | fail | {} | failed | ",
        "8.4 a line that is not a message | flood | {} |  | still here",
        "8.4 the end | die | {} | failed | t: it has ended (exit status: 7)",
        r#"8.4 after the end | echo | {"text": "again"} |  | E:again"#,
    ] {
        let [section, name, arguments, outcome, part] = fields(row);
        let arguments = serde_json::from_str(arguments).unwrap();
        let (text, failed) = tool(&fixture, name, &arguments);
        assert_eq!(failed, outcome == "failed", "{section}: {text}");
        assert!(text.contains(part), "{section}: {text}");
    }
}

/// Tool server as a shell script: runs `first`, answers `initialize`, then runs `then`.
fn script_server(first: &str, then: &str) -> Value {
    let hello = r#"printf '{"jsonrpc":"2.0","id":0,"result":{}}\n'; read thanks"#;
    let script = format!("read hello; {first}\n{hello}\n{then}");
    json!({"name": "t", "command": "sh", "args": ["-c", script]})
}

#[test]
fn output_of_tool_server_is_bounded() {
    let fixture = ServerFixture::new("root");
    let flood = "head -c 67108864 /dev/zero | tr '\\0' x";
    // Lines that are not messages, on both outputs, before and between messages.
    let answer = r#"printf '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"here"}]}}\n'"#;
    let lines = format!("{flood} | fold -w 1023; echo; {flood} >&2");
    let server = script_server(&lines, &format!("read call; {lines}; {answer}; cat >&2"));
    assert_eq!(update(&fixture, &json!([server])), "");
    let call = || tool(&fixture, "any", &json!({}));
    assert_eq!(call(), ("here".to_owned(), false));
    // One endless line.
    let endless = script_server("", &format!("read call; {flood}; cat >&2"));
    update(&fixture, &json!([endless]));
    let ended = ("t: it has ended (signal: 9 (SIGKILL))".to_owned(), true);
    assert_eq!(call(), ended);
    assert!(fixture.peak() < 120 << 10, "{}", fixture.peak());
    assert_eq!(fixture.output("echo hi"), "hi");
}

#[test]
fn streams_and_requests_are_bounded() {
    let fixture = ServerFixture::new("root");
    // It reads and never responds.
    let silent = script_server("", "exec cat > /dev/null");
    assert_eq!(update(&fixture, &json!([silent])), "");
    let mut streams: Vec<_> = (0..128).map(|_| Events::open(&fixture, "/sse")).collect();
    let (_, endpoint) = streams[0].1.next();
    let too_many = r#"{"detail":"Too many streams"}"#;
    assert_answer(&fixture, "GET /sse", "", (503, too_many));
    let post = format!("POST /{endpoint}");
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#;
    for _ in 0..256 {
        assert_eq!(ask(&fixture, &post, request).status, 202);
    }
    for head in [post.as_str(), "POST /mcp"] {
        assert_answer(&fixture, head, request, (503, "Too many requests"));
    }
    // Pending calls fail when their server is removed.
    update(&fixture, &json!([]));
    let mut answers = 0;
    while answers < 256 {
        let message = streams[0].1.message();
        if message["id"] == 1 {
            assert_eq!(message["result"]["isError"], true, "{message}");
            answers += 1;
        }
    }
    drop(streams);
    wait_until(|| !Events::open(&fixture, "/sse").0.starts_with("http/1.1 503"));
}

#[test]
fn child_processes_end_with_tool_server() {
    let fixture = ServerFixture::new("root");
    let pids = fixture.path("pids");
    // Starts a child that outlives it, and ends at the next message.
    let script = "sleep 1000 & echo $! > pids; read end; echo 'no more' >&2; exit 4";
    assert_eq!(update(&fixture, &json!([script_server("", script)])), "");
    let expected = ("t: it has ended (exit status: 4): no more".to_owned(), true);
    for _ in 0..2 {
        assert_eq!(tool(&fixture, "any", &json!({})), expected);
        let pid = fs::read_to_string(&pids).unwrap();
        // It has been killed, but may still be exiting.
        wait_until(|| !is_alive(pid.trim()));
    }
}

#[test]
fn list_changes_are_sent_to_event_streams() {
    let fixture = start(&json!([local("t")]));
    let (_, mut events) = Events::open(&fixture, "/sse");
    assert_eq!(events.next().0, "endpoint");
    let mut next = || events.message()["method"].clone();
    // Sent by a server and by an update that changes the set, not by an equal update.
    assert_eq!(tool(&fixture, "change", &json!({})).0, "told");
    assert_eq!(next(), "notifications/tools/list_changed");
    update(&fixture, &json!([local("t")]));
    update(&fixture, &json!([local("other")]));
    for kind in ["tools", "prompts", "resources"] {
        assert_eq!(next(), format!("notifications/{kind}/list_changed"));
    }
    assert_eq!(tool(&fixture, "change", &json!({})).0, "told");
    assert_eq!(next(), "notifications/tools/list_changed");
}

#[test]
fn update_replaces_servers_and_prefixes_tools() {
    let fixture = ServerFixture::new("root");
    let names = ["change", "die", "echo", "fail", "flood", "tell", "wait"];
    update(&fixture, &json!([local("a")]));
    assert_eq!(tools(&fixture), names);
    let first = pid(&fixture, "tell");
    update(&fixture, &json!([local("a"), local("a_b")]));
    let mut expected: Vec<_> = ["a_", "a_b_"]
        .iter()
        .flat_map(|server| names.map(|name| format!("{server}{name}")))
        .collect();
    expected.sort();
    assert_eq!(tools(&fixture), expected);
    assert_eq!(pid(&fixture, "a_tell"), first, "unchanged server is kept");
    let second = pid(&fixture, "a_b_tell");
    assert_ne!(first, second);
    update(&fixture, &json!([local("a_b")]));
    assert_eq!(tools(&fixture), names);
    assert!(
        !is_alive(&first) && is_alive(&second),
        "8.5 the set is replaced"
    );
    let mut changed = local("a_b");
    changed["env"] = json!("NEW=yes");
    update(&fixture, &json!([changed]));
    assert!(!is_alive(&second));
    assert_eq!(tool(&fixture, "tell", &json!({"what": "NEW"})).0, "yes");
    update(&fixture, &json!([]));
    assert!(tools(&fixture).is_empty());
}

#[test]
fn silent_tool_server_does_not_delay_others() {
    let fixture = ServerFixture::new("root");
    fixture.run("mkfifo gate");
    let silent = json!({"name": "silent", "command": "sleep", "args": "1000"});
    assert_eq!(update(&fixture, &json!([local("t"), silent])), "");
    let gate = fixture.path("gate");
    std::thread::scope(|scope| {
        let long = scope.spawn(|| tool(&fixture, "t_wait", &json!({"gate": gate})));
        let mut writer = open_gate(&gate);
        assert_eq!(fixture.output("echo hi"), "hi");
        writer.write_all(b"open").unwrap();
        drop(writer);
        assert_eq!(long.join().unwrap().0, "open");
    });
    assert!(tools(&fixture).iter().all(|name| name.starts_with("t_")));
    update(&fixture, &json!([local("t")]));
    assert_eq!(tools(&fixture).len(), 7);
}

#[test]
fn tool_server_runs_as_user_with_minimal_environment() {
    let Some(fixture) = openhands() else {
        return;
    };
    let script = fixture.path("server.py");
    fs::copy(SERVER, &script).unwrap();
    let beside = |name: &str| fixture.root.with_file_name(name);
    let environment =
        json!({"PYTHONPATH": beside("site"), "LD_LIBRARY_PATH": beside("python/lib")});
    let server = json!({"name": "t", "command": fixture.interpreter(), "args": [script], "env": environment});
    assert_eq!(update(&fixture, &json!([server])), "");
    let tell = |what: &str| tool(&fixture, "tell", &json!({"what": what})).0;
    assert_eq!(tell("uid"), "1000");
    assert_eq!(tell("cwd"), fixture.root.display().to_string());
    assert_eq!(tell("HOME"), "/home/openhands", "8.2 environment");
    let names = tell("names");
    for private in ["SESSION", "SANDBOX"] {
        assert!(!names.contains(private), "{names}");
    }
}

#[test]
fn tool_servers_and_children_are_killed_on_update_and_shutdown() {
    let fixture = ServerFixture::new("root");
    let pids = fixture.path("pids");
    let script = "sleep 1000 & echo $$ $! > pids; exec sleep 1000";
    let server = json!([{"name": "a", "command": "sh", "args": ["-c", script]}]);
    update(&fixture, &server);
    let read = || fs::read_to_string(&pids).unwrap();
    let first = read();
    assert!(first.split_whitespace().all(is_alive) && first.split_whitespace().count() == 2);
    update(&fixture, &json!([]));
    // The kernel ends killed processes a moment later.
    wait_until(|| !first.split_whitespace().any(is_alive));
    update(&fixture, &server);
    let second = read();
    let (_, mut events) = Events::open(&fixture, "/sse");
    events.next();
    fixture.signal(Signal::TERM);
    assert_eq!(fixture.process.wait().code(), Some(0));
    wait_until(|| !second.split_whitespace().any(is_alive));
}
