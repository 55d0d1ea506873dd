//! Level `Memory`: processes of a command go on under the supervisor of another container.

use std::fs;
use std::path::Path;

use crds::contract::control::{Init, Probe};
use crds::contract::path;
use crds::contract::prestart::{DORMANT_FLAG, Handover, Prestart};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::containers::{Container, Volumes};
use super::{kept, save, shell, shell_of};
use crate::client::{BINARY, KEY, SESSION_KEY, content, request, send, set_mode, wait_until};
use crate::free_port::free_port;
use crate::plugins;
use crate::supervise::{ready, start, state};

/// Answers to the file `ask` with a number that is in memory only, and the count of the answers,
/// while its background job lives.
const COUNTER: &str = r#"
number=$(od -An -N8 -tu8 /dev/urandom | tr -d ' '); count=0
sleep 1000 & job=$!
echo "up $number"
while :; do
    if [ -e "$WORK/ask" ]; then
        rm "$WORK/ask"; count=$((count + 1))
        kill -0 $job && echo "$number $count"
    fi
    sleep 0.01
done"#;

fn counter(volumes: &Volumes) -> Init {
    let mut init = shell(COUNTER);
    init.command[0] = "bash".into();
    let work = volumes.work().to_str().unwrap().to_owned();
    init.environment.insert("WORK".into(), work);
    init
}

/// Report on the state that the run began with, once it is known.
fn restored(container: &Container) -> Value {
    let report = || ready(container.address, 0).json()["restored"].clone();
    wait_until(|| !report().is_null());
    report()
}

fn ask(volumes: &Volumes, container: &mut Container) -> String {
    fs::write(volumes.work().join("ask"), "").unwrap();
    container.line()
}

/// Starts the counter, asks it once, and saves it. Returns its number.
fn saved_counter(volumes: &Volumes) -> String {
    let mut container = volumes.run(&counter(volumes));
    let line = container.line();
    let number = line.strip_prefix("up ").unwrap().to_owned();
    assert_eq!(ask(volumes, &mut container), format!("{number} 1"));
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    assert!(kept["bytes"].as_u64().unwrap() > 0 && kept["reason"].is_null());
    container.end();
    number
}

/// Starts a container that cannot let the processes go on, and returns its reason. The command has
/// started anew.
fn refused(volumes: &Volumes, init: &Init, number: &str) -> String {
    let mut container = volumes.run(init);
    let line = container.line();
    assert_ne!(line.strip_prefix("up ").unwrap(), number);
    let restored = restored(&container);
    assert_eq!(restored["level"], "Root", "{restored}");
    assert!(!volumes.saved("archive").exists());
    let reason = restored["reason"].as_str().unwrap();
    let reason = reason.strip_prefix("processes did not go on: ").unwrap();
    reason.to_owned()
}

#[test]
fn processes_go_on_once_in_another_container() {
    let Some(volumes) = Volumes::new("processes_go_on_once_in_another_container") else {
        return;
    };
    let number = saved_counter(&volumes);
    let mut container = volumes.run(&counter(&volumes));
    assert_eq!(ask(&volumes, &mut container), format!("{number} 2"));
    assert_eq!(restored(&container)["level"], "Memory");
    assert!(!volumes.saved("archive").exists());
    // A second time, by the same supervisor that has restored it.
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();
    let archive = fs::read(volumes.saved("archive")).unwrap();
    let meta = fs::read(volumes.saved("meta.json")).unwrap();
    let mut container = volumes.run(&counter(&volumes));
    assert_eq!(ask(&volumes, &mut container), format!("{number} 3"));
    // Signals reach them.
    assert_eq!(container.stop(), 143);
    // Without a save nothing is left of them, even if someone had put the files back.
    fs::write(volumes.saved("archive"), archive).unwrap();
    fs::write(volumes.saved("meta.json"), meta).unwrap();
    let mut container = volumes.run(&counter(&volumes));
    assert_ne!(container.line(), format!("up {number}"));
    let reason = restored(&container)["reason"].as_str().unwrap().to_owned();
    assert!(
        reason.ends_with("they went on before, and do so once only"),
        "{reason}"
    );
}

#[test]
fn processes_do_not_go_on_in_other_surroundings() {
    let Some(volumes) = Volumes::new("processes_do_not_go_on_in_other_surroundings") else {
        return;
    };
    let number = saved_counter(&volumes);
    let other = Init {
        state: shell_of("", "sha256:two").state,
        ..counter(&volumes)
    };
    assert_eq!(refused(&volumes, &other, &number), "the image has changed");

    let number = saved_counter(&volumes);
    let mut changed = counter(&volumes);
    changed.environment.insert("KEY".into(), "new".into());
    let reason = refused(&volumes, &changed, &number);
    assert_eq!(reason, "the command or its environment has changed");
    // The first refusal was final.
    let reason = refused(&volumes, &counter(&volumes), &number);
    assert_eq!(reason, "they were not saved");

    let number = saved_counter(&volumes);
    let path = volumes.saved("archive");
    let mut archive = fs::read(&path).unwrap();
    let middle = archive.len() / 2;
    archive[middle] ^= 1;
    fs::write(&path, archive).unwrap();
    let reason = refused(&volumes, &counter(&volumes), &number);
    assert!(reason.contains("cannot be read"), "{reason}");

    let number = saved_counter(&volumes);
    let path = volumes.saved("meta.json");
    let meta = fs::read_to_string(&path).unwrap();
    fs::write(&path, meta.replacen('{', "{ ", 1)).unwrap();
    let reason = refused(&volumes, &counter(&volumes), &number);
    assert!(reason.contains("cannot be read"), "{reason}");
}

#[test]
fn command_that_cannot_be_saved_is_stopped_and_its_files_are_kept() {
    let test = "command_that_cannot_be_saved_is_stopped_and_its_files_are_kept";
    let Some(volumes) = Volumes::new(test) else {
        return;
    };
    // Strict mode of seccomp, in a child; the command goes on after the attempt.
    let script = "import ctypes, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('stopped', flush=True), sys.exit(0)))
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    libc = ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)
    # One instruction: allow.
    program = ctypes.create_string_buffer(bytes([6, 0, 0, 0, 0, 0, 255, 127]))
    class Filter(ctypes.Structure):
        _fields_ = [('length', ctypes.c_ushort), ('program', ctypes.c_void_p)]
    filter = Filter(1, ctypes.addressof(program))
    print('filter', libc.prctl(22, 2, ctypes.byref(filter)), flush=True)
    time.sleep(1000)
while True: time.sleep(1)
";
    let mut init = shell("");
    init.command = ["python3", "-c", script].map(Into::into).to_vec();
    let mut container = volumes.run(&init);
    assert_eq!(container.line(), "filter 0");
    let kept = kept(&save(&container));
    assert_eq!(container.line(), "stopped");
    assert_eq!(kept["level"], "Root", "{kept}");
    let reason = "processes are not kept: a process runs under a seccomp filter";
    assert_eq!(kept["reason"], reason);
    container.end();
    assert!(!volumes.saved("archive").exists());

    // Without the program.
    let mut container = volumes.run_with(&counter(&volumes), Path::new("/nowhere/criu"));
    container.line();
    let kept = super::kept(&save(&container));
    assert_eq!(kept["level"], "Root", "{kept}");
    let reason = "processes are not kept: the program criu is not in the executor image";
    assert_eq!(kept["reason"], reason);
    container.end();
}

#[test]
fn processes_of_another_user_go_on_without_a_user_namespace() {
    let test = "processes_of_another_user_go_on_without_a_user_namespace";
    let Some(volumes) = Volumes::of_host_users(test) else {
        return;
    };
    set_mode(volumes.work(), 0o777);
    let mut init = counter(&volumes);
    let user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"];
    let words = user.map(str::to_owned).into_iter();
    init.command = words.chain(init.command).collect();
    let mut container = volumes.run(&init);
    let number = container.line();
    let number = number.strip_prefix("up ").unwrap();
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();
    let mut container = volumes.run(&init);
    assert_eq!(restored(&container)["level"], "Memory");
    assert_eq!(ask(&volumes, &mut container), format!("{number} 1"));
}

#[test]
fn prestarted_program_is_saved_and_does_not_hinder_a_restore() {
    let test = "prestarted_program_is_saved_and_does_not_hinder_a_restore";
    let Some(volumes) = Volumes::new(test) else {
        return;
    };
    let init = counter(&volumes);
    let prestart = Prestart {
        handover: Handover::Command,
        command: init.command.clone(),
        working_dir: init.working_dir.clone(),
        environment: init.environment.clone(),
        probe: Probe {
            port: None,
            path: None,
        },
    };
    let mut container = volumes.prestarted(&prestart);
    let number = container.line();
    let number = number.strip_prefix("up ").unwrap();
    start(&container, &init);
    let report = ready(container.address, 60).json();
    assert_eq!(
        (&report["state"], &report["prestarted"]),
        (&json!("ready"), &json!(true))
    );
    assert_eq!(ask(&volumes, &mut container), format!("{number} 1"));
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();

    let mut container = volumes.prestarted(&prestart);
    start(&container, &init);
    assert_eq!(restored(&container)["level"], "Memory");
    let report = ready(container.address, 0).json();
    assert_eq!(report["prestarted"], false);
    assert_eq!(ask(&volumes, &mut container), format!("{number} 2"));
}

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
    let restored = restored(&container);
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
    assert_eq!(restored(&container)["level"], "Memory");
    // It goes on, and the next one waits for it.
    assert_eq!(run(port, "echo $(cat steps)"), "1 2 3");
    let output = run(port, "echo $mine ${PWD##*/}; f; jobs");
    assert!(
        output.starts_with("41 d\r\nfunction") || output.starts_with("41 d\nfunction"),
        "{output}"
    );
    assert!(output.contains("Running"), "{output}");
    // New programs, and files by the API.
    assert_eq!(run(port, "python3 -c 'print(6 * 7)'"), "42");
    let path = volumes.work().join("file");
    act(port, "write", &json!({"path": path, "content": "text"}));
    assert_eq!(fs::read_to_string(path).unwrap().trim_end(), "text");
    let kept = super::kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();
}

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
    let page = json!({"url": "data:text/html,<h1>Hello</h1>"});
    let browse = || act(port, "browse", &page);
    cell("import threading; x = 41; lock = threading.Lock()");
    let path = volumes.work().join("edited");
    let create = json!({"command": "create", "path": path, "file_text": "one\n"});
    act(port, "edit", &create);
    let change =
        json!({"command": "str_replace", "path": path, "old_str": "one", "new_str": "two"});
    act(port, "edit", &change);
    let first = browse();
    assert_eq!(first["observation"], "browse", "{first}");
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();

    let container = volumes.run(&init);
    let restored = restored(&container);
    assert_eq!(restored["level"], "Memory", "{restored}");
    assert_eq!(cell("x += 1; x"), "42");
    act(port, "edit", &json!({"command": "undo_edit", "path": path}));
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
    let second = browse();
    assert_eq!(second["observation"], "browse", "{second}");
    let notice = "The browser was restarted because the sandbox was paused";
    assert!(content(&second).contains(notice), "{second}");
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
        assert_eq!(restored(&next)["level"], "Memory");
        assert_eq!(run(port, "echo $mine"), "41");
        eprintln!(
            "{round}: save {saved:?}, init to ready {up:?}, {}",
            kept["bytes"]
        );
        container = Some(next);
    }
}
