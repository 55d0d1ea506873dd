//! The action `run_ipython` with a real kernel: spec 5.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal};
use serde_json::json;

use crate::client::{KEY, Process, serve_command};
use crate::plugins::{PLUGINS, World, everybody, path, python};

const NOTHING: &str = "[Code executed successfully with no output]";
const DASHES: &str = "---------------------------------------------------------------------------";
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn restarted(why: &str) -> String {
    format!(
        "[The Jupyter kernel has ended ({why}) and was started anew: variables and imports are gone.]"
    )
}

#[test]
fn the_table_of_5_2() {
    for world in everybody() {
        let root = world.root.to_str().unwrap();
        for (code, expected) in [
            ("x=1", NOTHING),
            ("x+1", "2"),
            ("for i in range(3): display(i)\n\"last\"", "012'last'"),
            (
                "from IPython.display import *\ndisplay(HTML(\"<b>x</b>\"))",
                "<IPython.core.display.HTML object>",
            ),
            ("display({'text/html': '<b>'}, raw=True)", NOTHING),
            ("", NOTHING),
            (
                "print('a'); import sys; print('b', file=sys.stderr, end='')",
                "a\nb",
            ),
            ("!pwd", root),
            ("!printf 'a\\nb\\n'", "a\r\nb"),
            ("%cd /tmp", "/tmp"),
            ("import os; os.getcwd()", "'/tmp'"),
            ("print('\\x1b[1;31mred\\x1b[0m \\x1b[Kx')", "red \x1b[Kx"),
            (
                "def f(:",
                "  Cell In[1], line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax",
            ),
            ("print('é€😀')", "é€😀"),
            (
                "import os; _ = os.write(1, b'\\xff\\xfea')",
                "\u{fffd}\u{fffd}a",
            ),
            (
                "import subprocess; _ = subprocess.run(['sh', '-c', 'echo out; echo err >&2'])",
                "out\nerr",
            ),
            (
                "_ = subprocess.run(['echo', 'x'], stdout=sys.stdout, stderr=sys.stderr)",
                "x",
            ),
            ("print('no newline', end='')", "no newline"),
            ("import logging; logging.warning('w')", "WARNING:root:w"),
        ] {
            assert_eq!(
                world.cell(code),
                expected,
                "5.2 as {}: {code}",
                world.username
            );
        }
        let traceback = format!(
            "{DASHES}\nZeroDivisionError                         Traceback (most recent call last)\n\
             Cell In[1], line 1\n----> 1 1/0\n\nZeroDivisionError: division by zero"
        );
        assert_eq!(world.cell("1/0"), traceback);
        let exit = world.cell("raise SystemExit(\"bye\")");
        assert!(
            exit.starts_with(
                "An exception has occurred, use %tb to see the full traceback.\n\nSystemExit: bye"
            ),
            "{exit}"
        );
        let input = world.cell("input(\"q\")");
        assert!(input.ends_with("StdinNotImplementedError: raw_input was called, but this frontend does not support input requests."), "{input}");
        let pip = world.cell("%pip --version");
        assert!(
            pip.starts_with("pip ")
                && pip
                    .ends_with("Note: you may need to restart the kernel to use updated packages."),
            "{pip}"
        );
    }
}

#[test]
fn an_answer_has_every_field() {
    let world = World::new();
    let code = format!(
        "from IPython.display import Image; import base64\nImage(base64.b64decode('{PNG}'))"
    );
    let answer = world.cell_within(&code, 60.0);
    let expected = json!({
        "message": "Code executed in IPython cell.",
        "observation": "run_ipython",
        "content": format!(
            "<IPython.core.display.Image object>\n[Jupyter current working directory: {}]\n\
             [Jupyter Python interpreter: {}]", world.root.display(), world.interpreter),
        "extras": {"code": code, "image_urls": [format!("data:image/png;base64,{PNG}")]},
        "success": true,
    });
    assert_eq!(answer, expected);
    let args = json!({"code": "2", "include_extra": false});
    let answer = world
        .process
        .act(&json!({"action": "run_ipython", "args": args}));
    assert_eq!(answer["content"], "2");
    assert_eq!(answer["extras"], json!({"code": "2", "image_urls": null}));
}

#[test]
fn a_figure_is_an_image() {
    for world in everybody() {
        // The first time it looks for fonts, and may complain.
        world.cell("import matplotlib.pyplot as plt");
        let answer = world.cell_within("plt.plot([1, 3, 2]); plt.show()", 120.0);
        assert_eq!(
            world.text(&answer),
            "<Figure size 640x480 with 1 Axes>",
            "5.2 as {}",
            world.username
        );
        let images = answer["extras"]["image_urls"].as_array().unwrap();
        let image = images[0].as_str().unwrap();
        let base64 = image.strip_prefix("data:image/png;base64,").unwrap();
        let code = format!(
            "import base64, io, PIL.Image\nPIL.Image.open(io.BytesIO(base64.b64decode('{base64}'))).format"
        );
        assert_eq!((images.len(), world.cell(&code).as_str()), (1, "'PNG'"));
    }
}

#[test]
fn without_the_plugin_there_is_no_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let process = crate::client::serve(directory.path());
    let answer = process.post(r#"{"action":{"action":"run_ipython","args":{"code":"1"}}}"#);
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (
            500,
            r#"{"detail":"Internal server error: JupyterRequirement not found. Unable to run IPython action."}"#
        )
    );
}

#[test]
fn the_kernel_is_where_and_who_the_shell_is() {
    for world in everybody() {
        let shell = |command: &str| {
            world.process.run(command)["content"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        for (code, command) in [
            (
                "import os; print(os.getuid(), os.getgid(), *sorted({os.getgid(), *os.getgroups()}))",
                "echo $(id -u) $(id -g) $(id -G | tr ' ' '\\n' | sort -n)",
            ),
            (
                "print(*[os.environ.get(name) for name in ('HOME', 'USER', 'LOGNAME', 'SHELL', 'PATH', 'LANG')])",
                "echo $HOME $USER $LOGNAME $SHELL $PATH ${LANG-None}",
            ),
            (
                "_ = os.umask(0o22); os.umask(_); print(f'{_:04o}')",
                "umask",
            ),
            ("print('SESSION_API_KEY' in os.environ)", "echo False"),
            ("print(os.getcwd())", "pwd"),
            (
                "print(os.environ.get('PYTHONPATH'))",
                "echo ${PYTHONPATH-None}",
            ),
        ] {
            let (cell, shell) = (world.cell(code), shell(command));
            assert_eq!(cell, shell, "{} {code}", world.username);
        }
        // Who made a file does not show.
        let path = world.root.join("file");
        world.cell("open('file', 'w').close()");
        let made = shell("stat -c '%U %G %a' file");
        shell("rm file; touch file");
        assert_eq!(shell("stat -c '%U %G %a' file"), made);
        shell("rm file");
        world.process.act(&json!({"action": "edit", "args": {"path": path, "command": "create", "file_text": ""}}));
        assert_eq!(
            shell("stat -c '%U %G' file"),
            made.rsplit_once(' ').unwrap().0
        );
    }
}

#[test]
fn the_kernel_follows_the_shell() {
    let world = World::new();
    world.process.run("mkdir -p 'a \"b' c");
    world.process.run("cd 'a \"b'");
    let here = world.root.join("a \"b").display().to_string();
    let answer = world.cell_within("import os; print(os.getcwd())", 60.0);
    let tail = format!("{here}\n[Jupyter current working directory: {here}]");
    assert!(
        answer["content"].as_str().unwrap().starts_with(&tail),
        "{answer}"
    );
    // The kernel's own change lasts until the shell's next one.
    world.cell("%cd /");
    world.process.run("true");
    assert_eq!(world.cell("os.getcwd()"), "'/'");
    world.process.run("cd ../c");
    assert_eq!(
        world.cell("print(os.getcwd())"),
        world.root.join("c").display().to_string()
    );
    world.process.run("mkdir gone; cd gone; rmdir $PWD");
    assert_eq!(world.cell("1"), "1");
}

#[test]
fn time_that_is_over_keeps_what_was_written() {
    let world = World::new();
    world.cell("import time");
    let answer = world.cell_within("x = 1; print('half', end=''); time.sleep(1000)", 4.5);
    assert_eq!(
        world.text(&answer),
        "half\n[Execution timed out (4.5 seconds).]",
        "5.3 partial output is kept"
    );
    assert_eq!(world.cell("x"), "1");
    let answer = world.cell_within("!sleep 1000", 3.0);
    assert_eq!(world.text(&answer), "[Execution timed out (3.0 seconds).]");
    assert_eq!(world.cell("x"), "1");
}

#[test]
fn who_does_not_heed_interrupts_is_replaced() {
    let world = World::new();
    world.process.run("mkdir a; cd a");
    world.cell("1");
    let deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('on')\nwhile True: time.sleep(1)";
    let answer = world.cell_within(deaf, 4.0);
    assert_eq!(
        world.text(&answer),
        "on\n[Execution timed out (4.0 seconds).]"
    );
    let answer = world.cell_within("print(1)", 0.3);
    let expected = format!(
        "[Execution timed out (0.3 seconds).]\n{}",
        restarted("it did not react")
    );
    assert_eq!(world.text(&answer), expected);
    let here = world.root.join("a").display().to_string();
    assert_eq!(
        world.cell("print(os.getcwd(), open_file.__name__)"),
        format!("{here} open_file")
    );
}

#[test]
fn a_kernel_that_ends_is_replaced() {
    let world = World::new();
    let gone = restarted("killed by signal 9");
    let die =
        "import os; os.write(1, b'last'); import time; time.sleep(0.5); os.kill(os.getpid(), 9)";
    let answer = world.cell_within(die, 60.0);
    let text = world.text(&answer);
    assert_eq!(text, format!("last\n{gone}"), "5.3 killed in a cell");
    assert_eq!(world.cell("print(1, open_file.__name__)"), "1 open_file");
    // Between cells: the next one says so, and runs.
    let pid = world.cell("import os; print(os.getpid())");
    world.process.run(&format!(
        "kill -9 {pid}; while kill -0 {pid}; do sleep 0.01; done"
    ));
    assert_eq!(world.cell("print(2)"), format!("{gone}\n2"));
    assert_eq!(world.cell("print(3)"), "3");
    let exit = world.cell("os._exit(3)");
    assert_eq!(exit, restarted("exit status 3"));
    let pid = world.cell("import os; print(os.getpid())");
    world.cell("exit");
    world
        .process
        .run(&format!("while kill -0 {pid}; do sleep 0.01; done"));
    assert_eq!(
        world.cell("print(4)"),
        format!("{}\n4", restarted("exit status 0")),
        "5.3 exit"
    );
}

/// Programs that use every processor while they live.
struct Load(Vec<Child>);

impl Load {
    fn full() -> Self {
        let processors = std::thread::available_parallelism().unwrap().get();
        let busy = || {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
                .unwrap()
        };
        Self((0..2 * processors).map(|_| busy()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn every_output_arrives_once_and_in_order_under_load() {
    let world = World::new();
    world.cell("x = 0");
    let before = world.process.peak();
    let _load = Load::full();
    for number in 0..500 {
        let code = format!("print({number}); x += 1; import sys; print('e', file=sys.stderr)\nx");
        let text = world.cell(&code);
        // The two streams have no order between them, not even within a line.
        assert_eq!(text.matches('e').count(), 1, "{text}");
        let printed = text.replace('e', "\n");
        let words: Vec<_> = printed.split_whitespace().collect();
        let expected = [number.to_string(), (number + 1).to_string()];
        assert_eq!(words, expected, "{text}");
    }
    assert!(world.process.peak() < before + (4 << 10));
}

#[test]
fn text_that_is_none_is_told_all_the_same() {
    let world = World::new();
    for (code, expected) in [
        // Names of files are such.
        (
            "import os; open(b'f\\xff', 'w').close(); print(*[name for name in os.listdir('.') if name[0] == 'f'])",
            "f\u{fffd}",
        ),
        ("print('a\\ud800b')", "a?b"),
        ("display({'text/plain': '\\udcff'}, raw=True)", "\u{fffd}"),
        ("'\\udcff'", "'\\udcff'"),
        ("!printf 'a\\377b'", "a\u{fffd}b"),
    ] {
        assert_eq!(world.cell(code), expected, "{code}");
    }
    for (code, end) in [
        ("raise ValueError('a\\udcffb')", "\nValueError: a\u{fffd}b"),
        ("raise ValueError('a\\ud800b')", "\nValueError: a?b"),
    ] {
        let text = world.cell(code);
        assert!(text.ends_with(end), "{text}");
    }
}

#[test]
fn a_gigabyte_is_cut_and_costs_little() {
    let world = World::new();
    world.cell("1");
    for code in [
        "for i in range(16384): print('x' * 65535)\nprint('end')",
        // Past the kernel.
        "import subprocess; _ = subprocess.run(['sh', '-c', 'head -c 1073741824 /dev/zero | tr \"\\\\0\" x; echo; echo end'])",
    ] {
        let answer = world.cell_within(code, 600.0);
        let text = world.text(&answer);
        assert!(
            text.contains("\n[... Observation truncated due to length ...]\n")
                && text.ends_with("x\nend")
                && text.starts_with("xxx"),
            "{code}"
        );
        assert!(text.len() < 2 << 20);
    }
    let text = world.cell("print('y' * (64 << 20))");
    assert!(text.starts_with("yyy") && text.contains("truncated") && text.len() < 2 << 20);
    assert_eq!(world.cell("print(1)"), "1");
    let many = world.cell("for i in range(20000): display(i)");
    assert!(many.starts_with("0123") && many.ends_with("19999"));
    assert!(world.process.peak() < 100 << 10, "{}", world.process.peak());
}

#[test]
fn what_is_too_large_to_be_told_is_no_success() {
    let world = World::new();
    assert_eq!(
        world.cell("'y' * (32 << 20)"),
        "\n[A result is left out: too large]"
    );
    let text = world.cell("print('before')\nraise ValueError('z' * (32 << 20))");
    assert_eq!(
        text,
        "before\n\n[An error has occurred; what it says is left out: too large]"
    );
}

#[test]
fn kernels_that_do_not_live_are_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("work");
    let startup = root.join(".ipython/profile_default/startup");
    fs::create_dir_all(&startup).unwrap();
    // Each kernel ends on its way into the shell's directory.
    let deadly = "import os; os.chdir = lambda directory: os._exit(5)";
    fs::write(startup.join("deadly.py"), deadly).unwrap();
    let process = Process::start(serve_command(&root, &PLUGINS).env("PATH", path()));
    let args = json!({"code": "print(1)", "include_extra": false});
    let answer = process.act(&json!({"action": "run_ipython", "args": args}));
    assert_eq!(answer["content"], restarted("exit status 5"));
}

#[test]
fn images_are_bounded() {
    let world = World::new();
    let code = "from IPython.display import display\nfor _ in range(5): display({'text/plain': 'i', 'image/png': 'A' * (8 << 20)}, raw=True)";
    let answer = world.cell_within(code, 120.0);
    assert_eq!(answer["extras"]["image_urls"].as_array().unwrap().len(), 2);
    assert_eq!(
        world
            .text(&answer)
            .matches("[An image is left out: too large]")
            .count(),
        3
    );
}

#[test]
fn cells_do_not_wait_for_commands() {
    let world = World::new();
    world.process.run("mkfifo gate");
    std::thread::scope(|scope| {
        let long = scope.spawn(|| world.process.run("cat gate"));
        let gate = fs::OpenOptions::new()
            .write(true)
            .open(world.root.join("gate"));
        assert_eq!(world.cell("print(1)"), "1");
        drop(gate);
        long.join().unwrap();
    });
}

fn put_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_plain_image_gets_a_clear_answer_and_a_second_chance() {
    let directory = tempfile::tempdir().unwrap();
    let bin = directory.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let bare = Command::new(python())
        .args(["-c", "import sys; print(sys.base_prefix)"])
        .output()
        .unwrap();
    let bare = String::from_utf8(bare.stdout).unwrap();
    // Not a link: Python finds what belongs to it beside the name that it is called by.
    let wrapper = format!("#!/bin/sh\nexec {}/bin/python3 -I \"$@\"\n", bare.trim());
    let put = |text: &str| put_program(&bin.join("python3"), text);
    put(&wrapper);
    for tool in ["sh", "bash"] {
        std::os::unix::fs::symlink(format!("/bin/{tool}"), bin.join(tool)).unwrap();
    }
    let mut command = serve_command(&directory.path().join("w"), &PLUGINS);
    let process = Process::start(command.env("PATH", &bin));
    let cell = || process.act(&json!({"action": "run_ipython", "args": {"code": "print(1)"}}));
    let answer = cell();
    assert_eq!(answer["observation"], "error");
    let text = answer["content"].as_str().unwrap();
    let python3 = bin.join("python3").display().to_string();
    assert!(
        text.starts_with("No Python in this sandbox can run a Jupyter kernel.\n"),
        "{text}"
    );
    assert!(
        text.contains(&python3)
            && text.contains("No module named 'ipykernel'")
            && text.contains("pip install ipykernel"),
        "{text}"
    );
    let health = process.get("/server_info").json()["plugins"]["jupyter"].clone();
    assert!(
        health.as_str().unwrap().starts_with("failed: No Python"),
        "{health}"
    );
    put(&format!("#!/bin/sh\nexec {} \"$@\"\n", python().display()));
    assert!(cell()["content"].as_str().unwrap().starts_with("1\n"));
    assert_eq!(
        process.get("/server_info").json()["plugins"]["jupyter"],
        "ready"
    );
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn what_cells_started_ends_with_the_kernel() {
    let world = World::new();
    let start =
        "import os, subprocess; left = subprocess.Popen(['sleep', '1000']); print(left.pid)";
    let left = world.cell(start);
    assert!(is_alive(&left), "{left}");
    assert_eq!(world.cell("os._exit(3)"), restarted("exit status 3"));
    while is_alive(&left) {
        std::thread::yield_now();
    }
}

#[test]
fn kernels_end_with_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let temporary = directory.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    for signal in [Signal::TERM, Signal::KILL] {
        let mut command = serve_command(&directory.path().join("w"), &PLUGINS);
        command.env("PATH", path()).env("TMPDIR", &temporary);
        let process = Process::start(&mut command);
        let code = "import os, subprocess; print(os.getpid())";
        let answer = process.act(&json!({"action": "run_ipython", "args": {"code": code}}));
        let pid = answer["content"]
            .as_str()
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .to_owned();
        assert!(is_alive(&pid));
        process.signal(signal);
        process.wait();
        if signal == Signal::TERM {
            assert!(!is_alive(&pid));
            assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
        }
        // It looks for its parent about every second.
        while is_alive(&pid) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_stop_during_the_start_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let temporary = directory.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let _load = Load::full();
    for moment in 0..20 {
        let mut command = serve_command(&directory.path().join("w"), &PLUGINS);
        command.env("PATH", path()).env("TMPDIR", &temporary);
        let process = Process::start(&mut command);
        // A little later each time.
        for _ in 0..moment {
            assert_eq!(process.get("/alive").status, 200);
        }
        process.signal(Signal::TERM);
        assert_eq!(process.wait().code(), Some(0));
    }
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn a_stop_does_not_wait_for_a_cell() {
    let world = World::new();
    world.process.run("mkfifo gate");
    std::thread::scope(|scope| {
        let body =
            json!({"action": {"action": "run_ipython", "args": {"code": "open('gate').read()"}}});
        let body = body.to_string();
        let stream = crate::client::send(
            world.process.address,
            "POST /execute_action",
            &[("X-Session-API-Key", KEY)],
            body.as_bytes(),
        );
        let cell = scope.spawn(|| crate::client::receive(stream));
        let _gate = fs::OpenOptions::new()
            .write(true)
            .open(world.root.join("gate"))
            .unwrap();
        rustix::process::kill_process(Pid::from_child(&world.process.child), Signal::TERM).unwrap();
        let answer = cell.join().unwrap();
        assert_eq!(answer.status, 500);
        assert!(
            answer.body.contains("the server is shutting down"),
            "{}",
            answer.body
        );
    });
}

#[test]
fn a_kernel_costs_the_start_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (bin, gate) = (directory.path().join("bin"), directory.path().join("gate"));
    fs::create_dir(&bin).unwrap();
    Command::new("mkfifo").arg(&gate).status().unwrap();
    // One that starts when it is let.
    let wrapper = format!(
        "#!/bin/sh\nread line <{}\nexec {} \"$@\"\n",
        gate.display(),
        python().display()
    );
    put_program(&bin.join("python3"), &wrapper);
    let mut command = serve_command(&directory.path().join("w"), &PLUGINS);
    let process = Process::start(command.env("PATH", format!("{}:{}", bin.display(), path())));
    let health = || process.get("/server_info").json()["plugins"]["jupyter"].clone();
    assert_eq!(process.run("echo hi")["content"], "hi");
    assert_eq!(health(), "starting");
    fs::write(&gate, "\n").unwrap();
    process.act(&json!({"action": "run_ipython", "args": {"code": "1"}}));
    assert_eq!(health(), "ready");
}
