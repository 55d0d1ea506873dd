//! Level `Memory` with the native executor as the command: its shell, kernel and editor go on.

use std::fs;

use crds::contract::control::{Init, Probe};
use crds::contract::path;
use crds::contract::prestart::{DORMANT_FLAG, Handover, Prestart};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::containers::Volumes;
use super::{kept, save, shell};
use crate::client::{BINARY, KEY, SESSION_KEY, content, request, send, wait_until};
use crate::free_port::free_port;
use crate::plugins;
use crate::supervise::{ready, start, state};
use crate::terminals::viewer::Viewer;

#[test]
fn warm_executor_that_got_its_init_message_goes_on() {
    let test = "warm_executor_that_got_its_init_message_goes_on";
    let Some(volumes) = Volumes::new(test) else {
        return;
    };
    let port = free_port();
    let mut init = serve(&volumes, port, &["--no-enable-browser"]);
    init.command[0] = path::EXECUTOR.into();
    let mut environment = init.environment.clone();
    environment.remove("SESSION_API_KEY");
    let prestart = Prestart {
        handover: Handover::Executor,
        command: [&init.command[..], &[DORMANT_FLAG.into()]].concat(),
        working_dir: "/".into(),
        environment,
        probe: Probe {
            port: Some(port),
            path: None,
        },
    };
    let container = volumes.prestarted(&prestart);
    wait_until(|| container.request("GET /v1/warm", &[], b"").status == 204);
    start(&container, &init);
    let report = ready(container.address, 60).json();
    assert_eq!(
        (&report["state"], &report["prestarted"]),
        (&json!("ready"), &json!(true))
    );
    run(port, "mine=41");
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();

    let container = volumes.prestarted(&prestart);
    start(&container, &init);
    assert_eq!(state(&ready(container.address, 60)), "ready");
    let restored = container.restored();
    assert_eq!(restored["level"], "Memory", "{restored}");
    assert_eq!(run(port, "echo $mine"), "41");
}

fn act(port: u16, action: &str, args: &Value) -> Value {
    let body = json!({"action": {"action": action, "args": args}, "timeout": 60}).to_string();
    let address = ([127, 0, 0, 1], port).into();
    let response = request(
        address,
        "POST /execute_action",
        &[SESSION_KEY],
        body.as_bytes(),
    );
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()
}

fn run(port: u16, command: &str) -> String {
    content(&act(port, "run", &json!({"command": command}))).to_owned()
}

/// The native executor as the command.
fn serve(volumes: &Volumes, port: u16, flags: &[&str]) -> Init {
    let mut init = shell("");
    let work = volumes.work().to_str().unwrap().to_owned();
    let words = [BINARY, "serve", &port.to_string(), "--username", "root"];
    let words = words
        .into_iter()
        .chain(["--user-id", "0", "--working-dir", &work]);
    let words = words.chain(flags.iter().copied());
    init.command = words.map(str::to_owned).collect();
    for (name, value) in [("SESSION_API_KEY", KEY), ("HOME", &work), ("TMPDIR", &work)] {
        init.environment.insert(name.into(), value.into());
    }
    init.probe = Probe {
        port: Some(port),
        path: Some("/alive".into()),
    };
    init
}

/// Programs that a script leaves behind, in the session of the shell and in one without its leader.
const ORPHANS: &str =
    "(sleep 1001 &); setsid bash -c 'sleep 1002 &'; until pgrep -f '^sleep 1002'; do :; done";
/// Their numbers, parents and sessions.
const FAMILY: &str = "ps -o pid=,ppid=,sid=,args= -p $(pgrep -d, -f '^sleep 100[12]')";

#[test]
fn executor_with_its_shell_goes_on() {
    let Some(volumes) = Volumes::new("executor_with_its_shell_goes_on") else {
        return;
    };
    let port = free_port();
    let init = serve(&volumes, port, &["--no-enable-browser"]);
    let container = volumes.run(&init);
    assert_eq!(state(&ready(container.address, 60)), "ready");
    run(
        port,
        "mine=41; f() { echo function; }; mkdir -p d; cd d; sleep 1000 &",
    );
    run(port, ORPHANS);
    let orphans = run(port, FAMILY);
    assert_eq!(orphans.lines().count(), 2, "{orphans}");
    // An action at the time of the save.
    let args = json!({"command": "for i in 1 2 3; do echo $i >> steps; sleep 0.4; done"});
    let body = json!({"action": {"action": "run", "args": args}, "timeout": 60}).to_string();
    let address = ([127, 0, 0, 1], port).into();
    let _call = send(
        address,
        "POST /execute_action",
        &[SESSION_KEY],
        body.as_bytes(),
    );
    wait_until(|| volumes.work().join("d/steps").exists());
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();

    let container = volumes.run(&init);
    assert_eq!(container.restored()["level"], "Memory");
    // It goes on, and the next one waits for it.
    assert_eq!(run(port, "echo $(cat steps)"), "1 2 3");
    let output = run(port, "echo $mine ${PWD##*/}; f; jobs");
    assert!(
        output.starts_with("41 d\r\nfunction") || output.starts_with("41 d\nfunction"),
        "{output}"
    );
    assert!(output.contains("Running"), "{output}");
    assert_eq!(run(port, FAMILY), orphans);
    // New programs, and files by the API.
    assert_eq!(run(port, "python3 -c 'print(6 * 7)'"), "42");
    let path = volumes.work().join("file");
    act(port, "write", &json!({"path": path, "content": "text"}));
    assert_eq!(fs::read_to_string(path).unwrap().trim_end(), "text");
    let kept = super::kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();
}

/// A server in the kernel, whose page counts visits in the storage of the browser.
const SITE: &str = r#"
import http.server
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"""<p id=text></p><script>
            localStorage.visits = 1 + Number(localStorage.visits || 0)
            text.textContent = "visit " + localStorage.visits
        </script>""")
    def log_message(self, *args):
        pass
server = http.server.HTTPServer(("127.0.0.1", PORT), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
"#;

#[test]
fn kernel_and_editor_go_on_and_browser_starts_anew() {
    let Some(volumes) = Volumes::new("kernel_and_editor_go_on_and_browser_starts_anew") else {
        return;
    };
    let port = free_port();
    let flags = ["--enable-browser", "--plugins", "agent_skills", "jupyter"];
    let mut init = serve(&volumes, port, &flags);
    init.environment.insert("PATH".into(), plugins::path());
    let container = volumes.run(&init);
    assert_eq!(state(&ready(container.address, 60)), "ready");
    let cell = |code: &str| {
        let answer = act(port, "run_ipython", &json!({"code": code}));
        let text = content(&answer).to_owned();
        text.split("\n[Jupyter").next().unwrap().to_owned()
    };
    cell("import threading; x = 41; lock = threading.Lock()");
    let site = free_port();
    cell(&SITE.replace("PORT", &site.to_string()));
    let page = json!({"url": format!("http://127.0.0.1:{site}/")});
    let browse = || act(port, "browse", &page);
    let path = volumes.work().join("edited");
    let create = json!({"command": "create", "path": path, "file_text": "one\n"});
    act(port, "edit", &create);
    let change =
        json!({"command": "str_replace", "path": path, "old_str": "one", "new_str": "two"});
    act(port, "edit", &change);
    let first = browse();
    assert!(content(&first).contains("visit 1"), "{first}");
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();

    let container = volumes.run(&init);
    let restored = container.restored();
    assert_eq!(restored["level"], "Memory", "{restored}");
    assert_eq!(cell("x += 1; x"), "42");
    act(port, "edit", &json!({"command": "undo_edit", "path": path}));
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
    let second = browse();
    assert!(content(&second).contains("visit 2"), "{second}");
    let notice = "The browser was restarted because the sandbox was paused";
    assert!(content(&second).contains(notice), "{second}");
}

#[test]
fn terminal_goes_on_with_its_scrollback() {
    let Some(volumes) = Volumes::new("terminal_goes_on_with_its_scrollback") else {
        return;
    };
    let port = free_port();
    let init = serve(&volumes, port, &["--no-enable-browser"]);
    let container = volumes.run(&init);
    assert_eq!(state(&ready(container.address, 60)), "ready");
    let address = ([127, 0, 0, 1], port).into();
    let create = |body: Value| {
        let body = body.to_string();
        let created = request(address, "POST /terminals", &[SESSION_KEY], body.as_bytes());
        assert_eq!(created.status, 201, "{}", created.body);
        let id = created.json()["id"].as_str().unwrap().to_owned();
        format!("/terminals/{id}/connect")
    };
    let shell =
        create(json!({"command": ["bash", "--norc", "--noediting"], "environment": {"PS1": ""}}));
    let pipes = create(json!({"command": ["cat"], "tty": false}));
    let mut viewer = Viewer::of_address(address, &shell);
    viewer.type_in("mine=41; stty -echo; echo be''gun\n");
    let seen = viewer.until("begun\r\n").output.len();
    let mut cat = Viewer::of_address(address, &pipes);
    cat.type_in("before\n");
    cat.until("before\n");
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    for viewer in [&mut viewer, &mut cat] {
        assert_eq!(viewer.rest().closed.unwrap().0, 1012);
    }
    container.end();

    let container = volumes.run(&init);
    assert_eq!(container.restored()["level"], "Memory");
    let mut back = Viewer::of_address(address, &format!("{shell}?after={seen}"));
    assert_eq!(back.status(), json!({"offset": seen}));
    back.status();
    back.resize(100, 30);
    back.type_in("echo $((mine + 1)); stty size\n");
    assert_eq!(back.until("30 100\r\n").text(), "42\r\n30 100\r\n");
    let mut all = Viewer::of_address(address, &shell);
    all.until("begun\r\n42\r\n");
    back.type_in("exit 5\n");
    assert_eq!(back.rest().exit(), &json!({"code": 5}));
    let mut cat = Viewer::of_address(address, &pipes);
    assert_eq!(cat.until("before\n").text(), "before\n");
    cat.type_in("after");
    cat.end_input();
    let session = cat.rest();
    assert_eq!(
        (session.text().as_str(), session.exit()),
        ("after", &json!({"code": 0}))
    );
}

/// Prints figures of the binary: run with `--ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn figures_of_saved_processes() {
    let Some(volumes) = Volumes::new("figures_of_saved_processes") else {
        return;
    };
    let port = free_port();
    let init = serve(&volumes, port, &["--no-enable-browser"]);
    let container = volumes.run(&init);
    assert_eq!(state(&ready(container.address, 60)), "ready");
    run(port, "mine=41; sleep 1000 &");
    let mut container = Some(container);
    for round in 0..12 {
        let before = container.take().unwrap();
        let began = Instant::now();
        let kept = kept(&save(&before));
        let saved = began.elapsed();
        before.end();
        let next = volumes.waiting();
        let began = Instant::now();
        start(&next, &init);
        assert_eq!(state(&ready(next.address, 60)), "ready");
        let up = began.elapsed();
        assert_eq!(next.restored()["level"], "Memory");
        assert_eq!(run(port, "echo $mine"), "41");
        eprintln!(
            "{round}: save {saved:?}, init to ready {up:?}, {}",
            kept["bytes"]
        );
        container = Some(next);
    }
}
