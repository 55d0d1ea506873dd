//! Browser actions over HTTP, with a real Chromium (`docs/specs/browser.md`).

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::{SESSION_KEY, TestProcess, read_head, serve_command, set_mode, wait_until};
use crate::fixture::ServerFixture;
use crate::mcp::HttpsServer;

mod faults;
mod soak;

/// Serves pages by path, and `file` as a download; returns the base URL. Ends with the process.
fn serve(pages: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines();
                let first = lines.next().and_then(Result::ok).unwrap_or_default();
                let target = first.split(' ').nth(1).unwrap_or_default();
                let path = target.split('?').next().unwrap_or_default();
                while lines
                    .next()
                    .and_then(Result::ok)
                    .is_some_and(|line| !line.is_empty())
                {}
                let found = pages.iter().find(|(known, _)| *known == path);
                let (status, kind, text) = match found {
                    Some((path, text)) if path.contains("pdf") => {
                        ("200 OK", "application/octet-stream", *text)
                    }
                    Some((_, text)) => ("200 OK", "text/html", *text),
                    None => ("404 Not Found", "text/plain", "none"),
                };
                let length = text.len();
                let _ = write!(
                    &stream,
                    "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
                     Connection: close\r\n\r\n{text}"
                );
            });
        }
    });
    base
}

/// Server with a browser.
fn server() -> ServerFixture {
    ServerFixture::start("root", &["--enable-browser"], &[])
}

/// Servers with a browser as root, or as the current user, and as the sandbox user.
fn all_users() -> Vec<ServerFixture> {
    let mut servers = vec![server()];
    servers.extend(ServerFixture::openhands(&["--enable-browser"], |_, _| {}));
    servers
}

fn run(server: &ServerFixture, program: &str) -> Value {
    server.act("browse_interactive", &json!({"browser_actions": program}))
}

fn error(observation: &Value) -> &str {
    observation["extras"]["last_browser_action_error"]
        .as_str()
        .unwrap()
}

/// Descendants of a server whose command line has an option.
fn processes(server: &TestProcess, option: &str) -> Vec<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let own = server.child.id().cast_signed();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_descendant =
        |pid: &i32| std::iter::successors(Some(*pid), |pid| parent(*pid)).any(|pid| pid == own);
    let has_option = |pid: &i32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        line.is_ok_and(|line| line.contains(option))
    };
    pids.filter(has_option).filter(is_descendant).collect()
}

#[test]
fn browse_answers_the_observation_of_the_python_server() {
    let base = serve(&[("/", "<title>T</title><h1>Hello</h1><a href=b.html>link</a>")]);
    for server in all_users() {
        let answer = server.act("browse", &json!({"url": base}));
        assert_eq!(answer["observation"], "browse", "{answer}");
        assert_eq!(answer["message"], format!("Visited {base}/"));
        let keys: Vec<_> = answer["extras"].as_object().unwrap().keys().collect();
        let mut expected = [
            "url",
            "trigger_by_action",
            "screenshot",
            "screenshot_path",
            "set_of_marks",
            "error",
            "goal_image_urls",
            "open_pages_urls",
            "active_page_index",
            "dom_object",
            "axtree_object",
            "extra_element_properties",
            "last_browser_action",
            "last_browser_action_error",
            "focused_element_bid",
            "filter_visible_only",
        ];
        expected.sort_unstable();
        assert_eq!(keys, expected);
        let extras = &answer["extras"];
        assert_eq!(extras["open_pages_urls"], json!([format!("{base}/")]));
        assert_eq!(extras["last_browser_action"], format!("goto(\"{base}\")"));
        let content = answer["content"].as_str().unwrap();
        let expected = format!(
            "[Current URL: {base}/]\n============== BEGIN webpage content ==============\n"
        );
        assert!(content.starts_with(&expected), "{content}");
        assert!(
            content.contains("# Hello") && content.contains("[ link ](b.html)"),
            "{content}"
        );
        let path = extras["screenshot_path"].as_str().unwrap();
        assert!(path.starts_with(server.path(".browser_screenshots").to_str().unwrap()));
        let owner = server.output(&format!("stat -c %u {path}"));
        assert_eq!(owner, server.uid().to_string());
    }
}

#[test]
fn program_with_error_shows_page_and_error() {
    let base = serve(&[("/", "<title>T</title><button>press</button>")]);
    let server = server();
    let program = format!("goto(\"{base}\")\nclick(\"99\")");
    let answer = run(&server, &program);
    assert_eq!(
        error(&answer),
        "ValueError: Could not find element with bid \"99\""
    );
    let content = answer["content"].as_str().unwrap();
    assert!(
        content.contains("BEGIN error message") && content.contains("button 'press'"),
        "{content}"
    );
    assert_eq!(answer["extras"]["last_browser_action"], program);
    assert_eq!(
        error(&run(&server, "")),
        "ValueError: Received an empty action."
    );
    for (program, content) in [("GET_EVAL_GOAL", ""), ("GET_EVAL_REWARDS", "[]")] {
        let answer = run(&server, program);
        assert_eq!(answer["content"], content);
        assert_eq!(answer["extras"]["error"], false);
    }
}

#[test]
fn browser_actions_are_refused_when_disabled() {
    let server = ServerFixture::new("root");
    let answer = run(&server, "noop()");
    assert_eq!(answer["observation"], "error");
    assert_eq!(
        answer["content"],
        "Browser functionality is not supported or disabled."
    );
}

/// Page that shows its cookies, and sets one that lasts.
const COOKIE: &str = "<title>T</title><p id=p></p><script>
    p.textContent = 'cookies: ' + document.cookie;
    document.cookie = 'a=1; max-age=1000';
</script>";

#[test]
fn idle_browser_ends_and_keeps_its_cookies() {
    let base = serve(&[("/", COOKIE)]);
    let variables = [("SANDBOX_BROWSER_IDLE_SECONDS", "1")];
    let server = ServerFixture::start("root", &["--enable-browser"], &variables);
    let visit = format!("goto(\"{base}\")");
    let answer = run(&server, &visit);
    assert!(
        !answer["content"].as_str().unwrap().contains("a=1"),
        "{answer}"
    );
    wait_until(|| processes(&server, "--user-data-dir").is_empty());
    let answer = run(&server, &visit);
    assert_eq!(error(&answer), "");
    assert!(
        answer["content"].as_str().unwrap().contains("cookies: a=1"),
        "{answer}"
    );
}

#[test]
fn profile_on_the_workspace_outlives_the_server() {
    let base = serve(&[("/", COOKIE)]);
    let directory = tempfile::tempdir().unwrap();
    let visit = format!("goto(\"{base}\")");
    let action = json!({"action": "browse_interactive", "args": {"browser_actions": visit}});
    for expected in [false, true] {
        let flags = ["--enable-browser", "--plugins", "browser:profile"];
        let server = TestProcess::start(&mut serve_command(directory.path(), &flags));
        let answer = server.act(&action);
        let content = answer["content"].as_str().unwrap();
        assert_eq!(content.contains("cookies: a=1"), expected, "{answer}");
        server.signal(Signal::TERM);
        server.wait();
    }
}

#[test]
fn page_by_https_needs_a_trusted_certificate() {
    let remote = HttpsServer::start();
    let visit = format!("goto(\"{}\")", remote.url);
    let answer = run(&server(), &visit);
    let refused = "Error: Page.goto: net::ERR_CERT_AUTHORITY_INVALID at https://";
    assert!(error(&answer).starts_with(refused), "{answer}");
    let variables = [("SSL_CERT_FILE", remote.certificate.to_str().unwrap())];
    let trusting = ServerFixture::start("root", &["--enable-browser"], &variables);
    assert_eq!(error(&run(&trusting, &visit)), "");
}

/// Proxy that wants a user name and password, and has one page for all sites.
fn serve_proxy() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (told, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let told = told.clone();
            thread::spawn(move || {
                let mut client = BufReader::new(&stream);
                let head = read_head(&mut client);
                let first = head.lines().next().unwrap();
                let target = first.split(' ').nth(1).unwrap();
                told.send(first.to_owned()).unwrap();
                if !head.contains("\r\nProxy-Authorization: Basic dTpwQHNz\r\n") {
                    write!(&stream, "HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n").unwrap();
                } else if first.starts_with("CONNECT ") {
                    let server = TcpStream::connect(target).unwrap();
                    write!(&stream, "HTTP/1.1 200 OK\r\n\r\n").unwrap();
                    let (mut to, mut from) = (server.try_clone().unwrap(), server);
                    let mut from_client = stream.try_clone().unwrap();
                    thread::spawn(move || io::copy(&mut from_client, &mut to));
                    let _ = io::copy(&mut from, &mut &stream);
                } else {
                    let page = format!("<p>page of {target}</p>");
                    let length = page.len();
                    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: ";
                    write!(&stream, "{head}{length}\r\n\r\n{page}").unwrap();
                }
            });
        }
    });
    (address, requests)
}

#[test]
fn proxy_gets_its_user_name_and_password() {
    let remote = HttpsServer::start();
    let (proxy, requests) = serve_proxy();
    let url = format!("http://u:p%40ss@{proxy}");
    let variables = [
        ("http_proxy", url.as_str()),
        ("HTTPS_PROXY", &url),
        // Chromium asks no proxy for loopback otherwise.
        ("no_proxy", "<-loopback>"),
        ("SSL_CERT_FILE", remote.certificate.to_str().unwrap()),
    ];
    let server = ServerFixture::start("root", &["--enable-browser"], &variables);
    for site in ["http://a.example/1", "http://b.example/2"] {
        let answer = run(&server, &format!("goto(\"{site}\")"));
        assert_eq!(error(&answer), "");
        let content = answer["content"].as_str().unwrap();
        assert!(content.contains(&format!("page of {site}")), "{content}");
    }
    let answer = run(&server, &format!("goto(\"{}\")", remote.url));
    assert_eq!(error(&answer), "");
    let host = remote.url.strip_prefix("https://").unwrap();
    let tunnel = format!("CONNECT {host} HTTP/1.1");
    assert!(requests.try_iter().any(|request| request == tunnel));
}

#[test]
fn download_is_copied_to_the_workspace_and_told() {
    let base = serve(&[("/a.pdf", "%PDF-1.4 text"), ("/", "<a href=a.pdf>get</a>")]);
    for server in all_users() {
        let program = format!("goto(\"{base}/a.pdf\")");
        let answer = run(&server, &program);
        assert_eq!(answer["observation"], "download", "{answer}");
        let path = server.path("file_1.pdf");
        assert_eq!(answer["extras"]["file_path"], path.to_str().unwrap());
        let text = format!(
            "Execution of the previous action {program} resulted in a file download. The \
             downloaded file is saved at location: {}",
            path.display()
        );
        assert_eq!(answer["content"], text);
        assert_eq!(
            server.output(&format!("cat {}", path.display())),
            "%PDF-1.4 text"
        );
    }
}

#[test]
fn sockets_are_for_programs_with_the_key_and_pages_of_the_host() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--enable-browser", "--plugins", "browser:view,cdp"];
    let process = TestProcess::start(&mut serve_command(directory.path(), &flags));
    for path in ["view", "devtools/browser/x"] {
        for (origin, status) in [("http://evil", "403"), ("http://x", "101")] {
            let mut stream = TcpStream::connect(process.address).unwrap();
            let (name, key) = SESSION_KEY;
            let head = format!(
                "GET /plugins/browser/{path} HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\n{name}: {key}\r\n\
                 Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            let answer = read_head(&mut BufReader::new(&stream));
            assert_eq!(answer.split(' ').nth(1), Some(status), "{path} {origin}");
        }
    }
}

#[test]
fn upload_does_not_tell_of_files_that_the_user_may_not_see() {
    let base = serve(&[("/", "<title>T</title><input type=file>")]);
    let hidden = tempfile::tempdir().unwrap();
    set_mode(&hidden, 0o700);
    std::fs::write(hidden.path().join("there"), "").unwrap();
    let Some(server) = ServerFixture::openhands(&["--enable-browser"], |_, _| {}) else {
        return;
    };
    run(&server, &format!("goto(\"{base}\")"));
    for name in ["there", "absent"] {
        let path = hidden.path().join(name).display().to_string();
        let answer = run(&server, &format!("upload_file(\"4\", \"{path}\")"));
        let expected = "Error: FileChooser.set_files: EACCES: permission denied, access ";
        assert!(error(&answer).starts_with(expected), "{answer}");
    }
}

#[test]
fn download_does_not_replace_a_file() {
    let base = serve(&[("/a.pdf", "%PDF-1.4 text")]);
    let server = server();
    server.put("file_1.pdf", b"own");
    let answer = run(&server, &format!("goto(\"{base}/a.pdf\")"));
    let path = server.path("file_2.pdf");
    assert_eq!(answer["extras"]["file_path"], path.to_str().unwrap());
    assert_eq!(server.output("cat file_1.pdf"), "own");
}

#[test]
fn live_view_and_protocol_are_off_unless_asked_for() {
    let server = server();
    for path in ["/", "/json/version"] {
        let answer = server.request(&format!("GET /plugins/browser{path}"), &[SESSION_KEY], b"");
        assert_eq!(answer.status, 404, "{path}");
    }
    let server = ServerFixture::start(
        "root",
        &["--enable-browser", "--plugins", "browser:view,cdp"],
        &[],
    );
    let version = server.request("GET /plugins/browser/json/version/", &[SESSION_KEY], b"");
    let version: Value = serde_json::from_str(&version.body).unwrap();
    assert!(
        version["Browser"].as_str().unwrap().contains("Chrom"),
        "{version}"
    );
    let page = server.request("GET /plugins/browser/", &[SESSION_KEY], b"");
    assert!(
        page.status == 200 && page.body.contains("Take control"),
        "{}",
        page.status
    );
    let refused = server.request("GET /plugins/browser/json/version", &[], b"");
    assert_eq!(refused.status, 403);
}
