//! VS Code in the browser: spec 1.10 and 2.7, with a stand-in for openvscode-server.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::client::{KEY, Process, free_port, serve_command};
use crate::conformance::world::World as Private;

/// Writes how it was called.
const STAND_IN: &str = r#"#!/bin/sh
cd "$(dirname "$0")/.." && { id; umask; echo "$HOME $USER $LOGNAME $SHELL $PATH"; } > who && cd "$OLDPWD"
echo "$$ $(id -un) $PWD ${SESSION_API_KEY-none} $*" >> "$(dirname "$0")/../calls"
exec sleep 1000
"#;

struct World {
    directory: tempfile::TempDir,
    port: u16,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        put_stand_in(&directory.path().join("vscode"));
        Self {
            directory,
            port: free_port(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn serve(&self, variables: &[(&str, &str)]) -> Process {
        let root = self.path("work");
        let mut command = serve_command(&root, &["--plugins", "vscode"]);
        command
            .env("OPENVSCODE_SERVER_ROOT", self.path("vscode"))
            .env("VSCODE_PORT", self.port.to_string())
            .env("WORKSPACE_BASE", &root)
            .env("WORKSPACE_MOUNT_PATH_IN_SANDBOX", &root)
            .env_remove("RUNTIME_ID")
            .env_remove("RUNTIME_URL")
            .envs(variables.iter().copied());
        Process::start(&mut command)
    }

    fn call(&self) -> String {
        wait_for_line(&self.path("vscode/calls"))
    }
}

/// Puts the stand-in where the server looks; the file in which it notes its calls.
pub(crate) fn put_stand_in(home: &Path) -> PathBuf {
    let bin = home.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let program = bin.join("openvscode-server");
    fs::write(&program, STAND_IN).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    home.join("calls")
}

/// What the stand-in was called with, once it has been.
pub(crate) fn wait_for_line(calls: &Path) -> String {
    loop {
        let text = fs::read_to_string(calls).unwrap_or_default();
        if let Some((line, "")) = text.rsplit_once('\n') {
            return line.to_owned();
        }
        std::thread::yield_now();
    }
}

/// Once the plugin has started or failed.
pub(crate) fn token(process: &Process) -> Value {
    while health(process) == "starting" {
        std::thread::yield_now();
    }
    let key = [("X-Session-API-Key", KEY)];
    let answer = process.request("GET /vscode/connection_token", &key, b"");
    assert_eq!(answer.status, 200);
    answer.json()["token"].clone()
}

fn health(process: &Process) -> Value {
    process.get("/server_info").json()["plugins"]["vscode"].clone()
}

#[test]
fn it_is_started_with_the_token() {
    let world = World::new();
    let process = world.serve(&[
        ("RUNTIME_ID", "abc"),
        ("RUNTIME_URL", "http://h/abc/runtime"),
    ]);
    let token = token(&process);
    let call = world.call();
    let (pid, rest) = call.split_once(' ').unwrap();
    let expected = format!(
        "{} {} none --host 127.0.0.1 --connection-token {} --port {} --disable-workspace-trust \
         --server-base-path /abc/vscode",
        process.run("id -un")["content"].as_str().unwrap(),
        world.path("work").display(),
        token.as_str().unwrap(),
        world.port,
    );
    assert_eq!(rest, expected, "1.10 how it is started");
    let settings = world.path("work/.vscode/settings.json");
    assert_eq!(
        fs::metadata(&settings).unwrap().permissions().mode() & 0o777,
        0o666
    );
    let settings: Value = serde_json::from_str(&fs::read_to_string(settings).unwrap()).unwrap();
    assert_eq!(settings["workbench.startupEditor"], "none");
    drop(process);
    assert!(
        !Path::new(&format!("/proc/{pid}/cwd")).exists(),
        "it was left behind"
    );
}

#[test]
fn it_belongs_to_the_sandbox_user() {
    let Some(private) = Private::private("openhands") else {
        return;
    };
    let home = private.path("vscode");
    let calls = put_stand_in(&home);
    let port = free_port();
    let work = private.path("work");
    let mut command = private.command("work", &["--plugins", "vscode"]);
    command
        .env("OPENVSCODE_SERVER_ROOT", &home)
        .env("VSCODE_PORT", port.to_string())
        .env("WORKSPACE_BASE", &work)
        .env("WORKSPACE_MOUNT_PATH_IN_SANDBOX", &work);
    let process = Process::start(&mut command);
    assert!(token(&process).is_string());
    let call = wait_for_line(&calls);
    assert!(
        call.contains(" openhands ") && call.contains(" none "),
        "{call}"
    );
    let who = process.run("id; umask; echo \"$HOME $USER $LOGNAME $SHELL $PATH\"");
    assert_eq!(
        fs::read_to_string(home.join("who")).unwrap().trim_end(),
        who["content"],
        "1.10 the editor is who the shell is"
    );
    assert_eq!(
        fs::metadata(home.join("bin/openvscode-server"))
            .unwrap()
            .uid(),
        1000
    );
    assert_eq!(
        fs::metadata(work.join(".vscode/settings.json"))
            .unwrap()
            .uid(),
        1000
    );
}

#[test]
fn one_that_ends_is_started_again() {
    let world = World::new();
    let process = world.serve(&[]);
    token(&process);
    let call = world.call();
    assert!(call.ends_with("--disable-workspace-trust"), "{call}");
    process.run(&format!("kill -9 {}", call.split(' ').next().unwrap()));
    while world.call().lines().count() < 2 {
        std::thread::yield_now();
    }
}

#[test]
fn what_a_script_has_started_ends_with_it() {
    let world = World::new();
    let program = world.path("vscode/bin/openvscode-server");
    let script = "#!/bin/sh\nsleep 1000 &\necho $! >> \"$(dirname \"$0\")/../calls\"\nexit 3\n";
    fs::write(program, script).unwrap();
    let process = world.serve(&[]);
    token(&process);
    let first = world.call().lines().next().unwrap().to_owned();
    let stat = format!("/proc/{first}/stat");
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        std::thread::yield_now();
    }
}

#[test]
fn one_that_does_not_stay_is_told() {
    let world = World::new();
    let program = world.path("vscode/bin/openvscode-server");
    fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
    let process = world.serve(&[]);
    let told = "failed: openvscode-server has ended (exit status: 3)";
    // Between two starts, for ever longer.
    while health(&process) != told {
        std::thread::yield_now();
    }
    assert!(token(&process).is_string());
    fs::write(&program, STAND_IN).unwrap();
    world.call();
    while health(&process) != "ready" {
        std::thread::yield_now();
    }
}

#[test]
fn it_listens_where_the_server_does() {
    let world = World::new();
    // In a network with others, each has the same port at an address of its own.
    let _other = TcpListener::bind(("127.0.0.2", world.port)).unwrap();
    let process = world.serve(&[]);
    assert!(token(&process).is_string());
    assert!(world.call().contains(" --host 127.0.0.1 "));
    drop(process);
    let root = world.path("work");
    let mut command = serve_command(&root, &["--plugins", "vscode", "--viewer-url-file"]);
    command
        .arg(world.path("url"))
        .env_remove("SANDBOX_BIND_ADDRESS")
        .env("OPENVSCODE_SERVER_ROOT", world.path("vscode"))
        .env("VSCODE_PORT", free_port().to_string())
        .env("WORKSPACE_BASE", &root);
    let process = Process::start(&mut command);
    assert!(token(&process).is_string());
    while !world.call().contains(" --host 0.0.0.0 ") {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_missing_is_no_failure() {
    let world = World::new();
    for (variables, reason) in [
        (
            &[("VSCODE_PORT", "x")][..],
            "failed: VSCODE_PORT is missing or no port",
        ),
        (
            &[("VSCODE_PORT", "0")][..],
            "failed: VSCODE_PORT is missing or no port",
        ),
        (
            &[("OPENVSCODE_SERVER_ROOT", "/nowhere")][..],
            "failed: the image has no openvscode-server",
        ),
    ] {
        let process = world.serve(variables);
        assert_eq!(token(&process), Value::Null);
        assert_eq!(health(&process), reason);
        assert_eq!(process.run("echo hi")["content"], "hi");
    }
    let root = world.path("other");
    let mut command = serve_command(&root, &["--plugins", "vscode", "--username", "somebody"]);
    let process = Process::start(command.env("USER", "somebody"));
    assert_eq!(token(&process), Value::Null);
    assert_eq!(health(&process), "failed: this user may not have it");
    let without = crate::client::serve(&root);
    let key = [("X-Session-API-Key", KEY)];
    let answer = without.request("GET /vscode/connection_token", &key, b"");
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, "{\"token\":null}"),
        "2.7 without the plugin"
    );
    assert_eq!(without.get("/vscode/connection_token").status, 403);
}

#[test]
fn a_port_that_is_taken_gives_a_token_all_the_same() {
    let world = World::new();
    let _taken = TcpListener::bind(("0.0.0.0", world.port)).unwrap();
    let process = world.serve(&[]);
    assert!(token(&process).is_string());
    assert_eq!(
        health(&process),
        format!("failed: the port {} is taken", world.port)
    );
}
