//! Plugins of users' own (`docs/plugins.md`): the example, and small programs with one trait each.

use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::client::{
    HttpResponse, KEY, SESSION_KEY, TestProcess, read_head, serve_command, set_mode, wait_until,
};
use crate::fixture::ServerFixture;
use crate::free_port::free_port;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/plugins/hello");
const ECHO: &str = include_str!("own_plugins/server.py");

/// Folders of plugins, and a directory to work in.
struct PluginFolders(tempfile::TempDir);

impl PluginFolders {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        set_mode(&directory, 0o755);
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Adds a plugin with these lines in its manifest.
    fn with(self, name: &str, manifest: &str) -> Self {
        add(self.0.path(), name, manifest);
        self
    }

    /// Adds a plugin with the server that answers with the head of a request.
    fn with_echo(self, more: &str) -> Self {
        let port = free_port();
        let manifest = format!("command: [python3, server.py]\nport: {port}\n{more}");
        let folders = self.with("echo", &manifest);
        fs::write(folders.path("echo/server.py"), ECHO).unwrap();
        folders
    }

    fn command(&self, plugins: &[&str]) -> Command {
        let flags = [&["--plugins"], plugins].concat();
        let mut command = serve_command(&self.path("work"), &flags);
        command.env("SANDBOX_PLUGIN_PATH", self.0.path());
        command
    }

    fn serve(&self, plugins: &[&str]) -> TestProcess {
        TestProcess::start(&mut self.command(plugins))
    }
}

pub(crate) fn add(parent: &Path, name: &str, manifest: &str) {
    let folder = parent.join(name);
    fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o755);
    let manifest = format!("name: {name}\nversion: 1.0.0\n{manifest}");
    fs::write(folder.join("plugin.yaml"), manifest).unwrap();
}

/// Starts a server with one ready plugin.
fn serve_ready(folders: &PluginFolders, plugin: &str) -> TestProcess {
    let process = folders.serve(&[plugin]);
    wait_until(|| process.plugin_state(plugin) != "starting");
    assert_eq!(process.plugin_state(plugin), "ready");
    process
}

/// Health of a single plugin once it has started or failed.
fn outcome(plugin: &str, manifest: &str) -> (TestProcess, Value, PluginFolders) {
    let folders = PluginFolders::new().with(plugin, manifest);
    let process = folders.serve(&[plugin]);
    wait_until(|| process.plugin_state(plugin) != "starting");
    let health = process.plugin_state(plugin);
    (process, health, folders)
}

/// The example with a port of its own.
fn example() -> PluginFolders {
    let folders = PluginFolders::new();
    let folder = folders.path("hello");
    fs::create_dir(&folder).unwrap();
    let manifest = fs::read_to_string(format!("{EXAMPLE}/plugin.yaml")).unwrap();
    let port = free_port().to_string();
    assert!(manifest.contains("12100"));
    fs::write(folder.join("plugin.yaml"), manifest.replace("12100", &port)).unwrap();
    fs::copy(format!("{EXAMPLE}/server.py"), folder.join("server.py")).unwrap();
    folders
}

#[test]
fn example_is_reachable_and_survives_a_kill() {
    let folders = example();
    let process = serve_ready(&folders, "hello");
    process.output("touch a-file");
    let page = || process.keyed("GET /plugins/hello/", "");
    let pid = || page().body.split([' ', ':']).nth(2).map(str::to_owned);
    let first = pid().unwrap();
    assert_eq!(
        page().parts(),
        (200, &*format!("Hello from {first}: a-file\n"))
    );
    assert_eq!(process.get("/plugins/hello/").status, 403);
    assert_eq!(process.output("curl -s $HELLO_URL/health || python3 -c \
        \"import os, urllib.request as u; print(u.urlopen(os.environ['HELLO_URL'] + 'health').read().decode())\""), "ok");
    process.output(&format!("kill -9 {first}"));
    let killed = "failed: hello has ended (signal: 9 (SIGKILL))";
    wait_until(|| process.plugin_state("hello") == killed);
    let down = page();
    assert_eq!(down.status, 503, "{}", down.body);
    assert!(down.body.contains("signal: 9"), "{}", down.body);
    wait_until(|| process.plugin_state("hello") == "ready");
    assert_eq!(page().status, 200);
    assert_ne!(pid().unwrap(), first);
}

#[test]
fn tools_of_a_plugin_survive_updates() {
    let folders = example();
    let process = serve_ready(&folders, "hello");
    let json = ("Content-Type", "application/json");
    let post = |path: &str, body: &Value| {
        let head = format!("POST {path}");
        let answer = process.request(&head, &[SESSION_KEY, json], body.to_string().as_bytes());
        answer.json()
    };
    for (update, problem) in [
        (json!([]), ""),
        (
            json!([{"name": "hello", "command": "true"}]),
            "hello: the name is that of a plugin",
        ),
    ] {
        assert_eq!(
            post("/update_mcp_server", &update)["router_error_log"],
            problem
        );
        let params = json!({"name": "greet", "arguments": {"name": "Ada"}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let answer = post("/mcp", &call);
        assert_eq!(
            answer["result"]["content"][0]["text"], "Hello, Ada!",
            "{answer}"
        );
    }
}

#[test]
fn link_sets_a_cookie_that_opens_the_plugin_alone() {
    let folders = PluginFolders::new()
        .with_echo("")
        .with("other", "command: [sleep, '1000']");
    let process = folders.serve(&["echo", "other"]);
    wait_until(|| process.plugin_state("echo") == "ready");
    let link = format!("GET /plugins/echo/a?x=1&session_api_key={KEY}");
    let open = |headers: &[(&str, &str)]| process.request(&link, headers, b"");
    let opened = open(&[]);
    let cookie = opened.header("set-cookie").unwrap().to_owned();
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(opened.status, 303);
    assert_eq!(opened.header("location"), Some("/plugins/echo/a?x=1"));
    assert_eq!(attributes, "Path=/plugins/echo; HttpOnly; SameSite=Strict");
    assert!(!cookie.contains(KEY));
    // Through the gateway below a path, by TLS, from a page of another site.
    let opened = open(&[
        ("X-Sandbox-Plugin", "echo"),
        ("X-Forwarded-Prefix", "/id/echo"),
        ("X-Forwarded-Proto", "https"),
        ("Sec-Fetch-Site", "cross-site"),
    ]);
    assert_eq!(opened.status, 200);
    assert_eq!(opened.header("refresh"), Some("0; url=/id/echo/a?x=1"));
    let cookie = opened.header("set-cookie").unwrap();
    assert!(cookie.ends_with("; Path=/id/echo; HttpOnly; SameSite=Strict; Secure"));

    let ask = |head: &str, more: &[(&str, &str)]| {
        let given = format!("a=b; {pair}");
        let headers = [&[("Cookie", given.as_str())], more].concat();
        process.request(head, &headers, b"")
    };
    let page = ask(
        "GET /plugins/echo/a/../b?c",
        &[("Authorization", "Bearer own")],
    );
    assert_eq!(page.status, 200, "{}", page.body);
    assert_eq!(page.header("set-cookie"), Some("own=1"));
    let head = page.body.to_lowercase();
    assert!(head.starts_with("get /a/../b?c http/1.1\r\n"), "{head}");
    for line in [
        "cookie: a=b\r\n",
        "authorization: bearer own\r\n",
        "x-forwarded-prefix: /plugins/echo\r\n",
    ] {
        assert!(head.contains(line), "{line} {head}");
    }
    for (head, more, status) in [
        ("POST /plugins/echo/", &[][..], 403),
        ("POST /plugins/echo/", &[("Origin", "http://evil")], 403),
        ("POST /plugins/echo/", &[("Origin", "http://x")], 200),
        ("GET /plugins/other/", &[], 403),
        ("POST /list_files", &[("Origin", "http://x")], 403),
        ("GET /plugins/echo/?session_api_key=wrong", &[], 200),
    ] {
        assert_eq!(ask(head, more).status, status, "{head} {more:?}");
    }
    let wrong = process.get("/plugins/echo/?session_api_key=wrong");
    assert_eq!(wrong.parts(), (403, "{\"detail\":\"Invalid API Key\"}"));
}

#[test]
fn key_does_not_reach_the_plugin() {
    let folders = PluginFolders::new().with_echo("");
    let process = serve_ready(&folders, "echo");
    let bearer = format!("Bearer {KEY}");
    for header in [SESSION_KEY, ("Authorization", &*bearer)] {
        let answer = process.request("GET /plugins/echo/", &[header], b"");
        assert_eq!(answer.status, 200);
        assert!(!answer.body.contains(KEY), "{}", answer.body);
    }
    let moved = process.keyed("GET /plugins/echo?a", "");
    assert_eq!(moved.status, 308);
    assert_eq!(moved.header("location"), Some("/plugins/echo/?a"));
}

/// Asks for a connection that echoes, and returns it with the status.
fn upgrade(process: &TestProcess, path: &str, headers: &[(&str, &str)]) -> (TcpStream, String) {
    let lines = headers.iter();
    let lines: Vec<_> = lines
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let lines = lines.concat();
    let mut stream = TcpStream::connect(process.address).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n{lines}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let head = read_head(&mut BufReader::with_capacity(1, &stream));
    let status = head.split(' ').nth(1).unwrap().to_owned();
    (stream, status)
}

#[test]
fn upgrades_become_tunnels() {
    let folders = PluginFolders::new().with_echo("");
    let process = serve_ready(&folders, "echo");
    let path = "/plugins/echo/socket";
    let link = format!("{path}?session_api_key={KEY}");
    let opened = process.get(&link);
    let cookie = opened
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    let cookie = ("Cookie", cookie);
    for (path, headers, status) in [
        (path, &[][..], "403"),
        (path, &[cookie], "403"),
        (path, &[cookie, ("Origin", "http://evil")], "403"),
        (path, &[cookie, ("Origin", "http://x")], "101"),
        (&link, &[], "101"),
    ] {
        let (_, found) = upgrade(&process, path, headers);
        assert_eq!(found, status, "{path} {headers:?}");
    }
    let (mut stream, _) = upgrade(&process, path, &[SESSION_KEY]);
    stream.write_all(&vec![7; 100_000]).unwrap();
    let mut echo = vec![0; 100_000];
    stream.read_exact(&mut echo).unwrap();
    assert!(echo.iter().all(|byte| *byte == 7));
    let idle = || process.get("/server_info").json()["idle_time"].as_f64();
    assert_eq!(idle(), Some(0.0), "an open tunnel is activity");
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    wait_until(|| idle() > Some(0.0));
}

#[test]
fn public_plugin_needs_no_key() {
    let folders = PluginFolders::new().with_echo("access: public");
    let process = serve_ready(&folders, "echo");
    assert_eq!(process.get("/plugins/echo/").status, 200);
    let answer = process.keyed("GET /plugins/echo/", "");
    assert!(!answer.body.contains(KEY), "{}", answer.body);
}

#[test]
fn failures_are_told() {
    let port = free_port();
    for (manifest, why) in [
        (
            "command: [sh, -c, 'echo no database >&2; exit 3']",
            "p has ended (exit status: 3)",
        ),
        (
            "command: [/no/such/program]",
            "cannot start /no/such/program: No such file",
        ),
        (
            "command: [sleep, '9']\nrequires: [HOME, NOT_THERE]",
            "NOT_THERE is missing in the environment",
        ),
        ("command: [sleep, '9']\nworkingDir: x", "p/x does not exist"),
        ("command: [sleep, '9']\nprot: 1", "unknown field `prot`"),
        (
            "command: [sleep, '9']\nport: 12000",
            "port 12000 is that of a work port",
        ),
        (
            &format!("command: [sleep, '9']\nport: {port}\nreadiness: {{timeoutSeconds: 1}}"),
            "p was not ready within 1 s: cannot connect to",
        ),
    ] {
        let (process, _, _folders) = outcome("p", &format!("{manifest}\nrestart: Never"));
        // Without a port it is ready until it ends.
        wait_until(|| process.plugin_state("p") != "ready");
        let health = process.plugin_state("p");
        let health = health.as_str().unwrap();
        assert!(health.starts_with("failed: "), "{health}");
        assert!(health.contains(why), "{health}");
        assert_eq!(process.output("echo served"), "served");
    }
}

#[test]
fn plugins_do_not_share_ports_and_names_of_the_sandbox() {
    let port = free_port();
    let listening = format!("command: [sleep, '9']\nport: {port}");
    let folders = PluginFolders::new()
        .with("a", &listening)
        .with("b", &listening);
    let folders = folders.with("work-1", "command: [sleep, '9']");
    let process = TestProcess::start(&mut folders.command(&["a", "b", "work-1"]));
    let failed = format!("failed: plugin.yaml: port {port} is that of the plugin a");
    wait_until(|| process.plugin_state("b") == failed.as_str());
    let failed = "failed: the name work-1 leads to a port of the sandbox";
    wait_until(|| process.plugin_state("work-1") == failed);
}

#[test]
fn requests_say_why_a_plugin_does_not_serve() {
    let (process, health, folders) = outcome("p", "command: [sleep, '9']\nport: x");
    assert!(
        health.as_str().unwrap().contains("plugin.yaml: port"),
        "{health}"
    );
    let detail = |answer: HttpResponse| (answer.status, answer.json()["detail"].clone());
    let (status, text) = detail(process.keyed("GET /plugins/p/", ""));
    assert_eq!(
        (status, text),
        (
            503,
            json!(format!("the plugin p has {}", health.as_str().unwrap()))
        )
    );
    let (status, text) = detail(process.keyed("GET /plugins/x/", ""));
    assert_eq!(
        (status, text),
        (404, "this sandbox has no plugin of this name".into())
    );
    drop(process);
    add(folders.0.path(), "q", "command: [sleep, '9']");
    let process = serve_ready(&folders, "q");
    let (status, text) = detail(process.keyed("GET /plugins/q/", ""));
    assert_eq!((status, text), (404, "the plugin q has no port".into()));
}

#[test]
fn last_line_of_output_is_for_clients_with_the_key() {
    let script = "command: [sh, -c, 'echo no database >&2; exit 3']\nrestart: Never";
    for (access, shown) in [("session-key", true), ("public", false)] {
        let (process, ..) = &outcome("p", &format!("{script}\naccess: {access}"));
        wait_until(|| process.plugin_state("p") == "failed: p has ended (exit status: 3)");
        let answer = process.keyed("GET /plugins/p/", "");
        assert_eq!(answer.status, 503);
        assert_eq!(
            answer.body.contains("last output: no database"),
            shown,
            "{}",
            answer.body
        );
    }
}

#[test]
fn unknown_plugin_or_option_ends_the_server() {
    let folders = PluginFolders::new().with("p", "command: [sleep, '9']");
    for (plugin, why) in [
        ("x", "Plugin x not found: none of the directories /"),
        ("p/../p", "Plugin p/../p not found"),
        ("p:fast", "Plugin p has no option \"fast\""),
    ] {
        let output = folders.command(&[plugin]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(errors.contains(why), "{errors}");
    }
}

#[test]
fn restart_policy_decides_after_an_exit() {
    for (policy, code, health) in [
        ("Never", 0, "ended"),
        ("OnFailure", 0, "ended"),
        ("Never", 3, "failed: p has ended (exit status: 3)"),
    ] {
        // A second run would wait.
        let script = format!("command: [sh, -c, 'mkdir ran && exit {code}; sleep 1000']");
        let (process, found, _folders) = outcome("p", &format!("{script}\nrestart: {policy}"));
        wait_until(|| process.plugin_state("p") == health);
        assert_ne!(found, "starting");
    }
    let script = "command: [sh, -c, 'mkdir ran && exit 3; sleep 1000']\nrestart: OnFailure";
    let (process, _, _folders) = outcome("p", script);
    wait_until(|| process.plugin_state("p") != "ready");
    wait_until(|| process.plugin_state("p") == "ready");
}

#[test]
fn plugin_runs_as_the_sandbox_user_unless_it_wants_root() {
    let fixture = ServerFixture::openhands(&["--plugins", "mine", "roots"], |private, command| {
        let parent = private.path("plugins");
        fs::create_dir(&parent).unwrap();
        let script = "echo $(id -u) ${SESSION_API_KEY-none} $SANDBOX_WORKSPACE > $OUT; sleep 1000";
        for (name, user) in [("mine", "sandbox"), ("roots", "root")] {
            let out = private.path("work").join(name).display().to_string();
            let manifest =
                format!("command: [sh, -c, '{script}']\nuser: {user}\nenv: {{OUT: {out}}}");
            add(&parent, name, &manifest);
        }
        command.env("SANDBOX_PLUGIN_PATH", parent);
    });
    let Some(fixture) = fixture else {
        return;
    };
    for (name, uid) in [("mine", 1000), ("roots", 0)] {
        let line = format!("{uid} none {}\n", fixture.root.display());
        wait_until(|| fs::read_to_string(fixture.path(name)).is_ok_and(|found| found == line));
    }
}
