//! The action `run_ipython` with a real kernel (`docs/specs/executor.md`, section 5).

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use crate::client::{content, open_gate, receive, set_mode, wait_until};
use crate::fixture::ServerFixture;
use crate::plugins::{all_users, is_alive, path, python, python_output, with_plugins};
use crate::soak::CpuLoad;
use crate::transfer::fields;

const DASHES: &str = "---------------------------------------------------------------------------";
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn restarted(why: &str) -> String {
    format!(
        "[The Jupyter kernel has ended ({why}) and was started anew: variables and imports are gone.]"
    )
}

#[test]
fn cells_match_the_table_of_5_2() {
    for fixture in all_users() {
        for row in [
            "x=1 | [Code executed successfully with no output]",
            "x+1 | 2",
            "for i in range(3): display(i)\n\"last\" | 012'last'",
            "from IPython.display import *\ndisplay(HTML(\"<b>x</b>\")) | \
             <IPython.core.display.HTML object>",
            "display({'text/html': '<b>'}, raw=True) | \
             [Code executed successfully with no output]",
            " | [Code executed successfully with no output]",
            "print('a'); import sys; print('b', file=sys.stderr, end='') | a\nb",
            "!pwd | {}",
            "!printf 'a\\nb\\n' | a\r\nb",
            "%cd /tmp | /tmp",
            "import os; os.getcwd() | '/tmp'",
            "print('\\x1b[1;31mred\\x1b[0m \\x1b[Kx') | red \x1b[Kx",
            "def f(: |   Cell In[1], line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax",
            "print('é€😀') | é€😀",
            "import os; _ = os.write(1, b'\\xff\\xfea') | \u{fffd}\u{fffd}a",
            "import subprocess; _ = subprocess.run(['sh', '-c', 'echo out; echo err >&2']) | out\nerr",
            "_ = subprocess.run(['echo', 'x'], stdout=sys.stdout, stderr=sys.stderr) | x",
            "print('no newline', end='') | no newline",
            "import logging; logging.warning('w') | WARNING:root:w",
        ] {
            let [code, expected] = fields(row);
            let user = fixture.username;
            assert_eq!(
                fixture.cell(code),
                fixture.fill(expected),
                "5.2 as {user}: {code}"
            );
        }
        let traceback = format!(
            "{DASHES}\nZeroDivisionError                         Traceback (most recent call last)\n\
             Cell In[1], line 1\n----> 1 1/0\n\nZeroDivisionError: division by zero"
        );
        assert_eq!(fixture.cell("1/0"), traceback);
        for row in [
            "raise SystemExit(\"bye\") | An exception has occurred, use %tb to see the full \
             traceback.\n\nSystemExit: bye | ",
            "input(\"q\") |  | StdinNotImplementedError: raw_input was called, but this frontend \
             does not support input requests.",
            "%pip --version | pip  | Note: you may need to restart the kernel to use updated packages.",
        ] {
            let [code, start, end] = fields(row);
            let text = fixture.cell(code);
            assert!(text.starts_with(start) && text.ends_with(end), "{text}");
        }
    }
}

#[test]
fn cell_observation_has_every_field() {
    let fixture = with_plugins(&[]);
    let code = format!(
        "from IPython.display import Image; import base64\nImage(base64.b64decode('{PNG}'))"
    );
    let answer = fixture.cell_within(&code, 60.0);
    let expected = json!({
        "message": "Code executed in IPython cell.",
        "observation": "run_ipython",
        "content": format!(
            "<IPython.core.display.Image object>\n[Jupyter current working directory: {}]\n\
             [Jupyter Python interpreter: {}]", fixture.root.display(), fixture.interpreter()),
        "extras": {"code": code, "image_urls": [format!("data:image/png;base64,{PNG}")]},
        "success": true,
    });
    assert_eq!(answer, expected);
    let args = json!({"code": "2", "include_extra": false});
    let answer = fixture.act("run_ipython", &args);
    assert_eq!(answer["content"], "2");
    assert_eq!(answer["extras"], json!({"code": "2", "image_urls": null}));
}

#[test]
fn figure_becomes_an_image() {
    for fixture in all_users() {
        // The first import builds a font cache and may print warnings.
        fixture.cell("import matplotlib.pyplot as plt");
        let answer = fixture.cell_within("plt.plot([1, 3, 2]); plt.show()", 120.0);
        let (text, user) = (fixture.text(&answer), fixture.username);
        assert_eq!(text, "<Figure size 640x480 with 1 Axes>", "5.2 as {user}");
        let images = answer["extras"]["image_urls"].as_array().unwrap();
        let image = images[0].as_str().unwrap();
        let base64 = image.strip_prefix("data:image/png;base64,").unwrap();
        let code = format!(
            "import base64, io, PIL.Image\nPIL.Image.open(io.BytesIO(base64.b64decode('{base64}'))).format"
        );
        assert_eq!((images.len(), fixture.cell(&code).as_str()), (1, "'PNG'"));
    }
}

#[test]
fn run_ipython_fails_without_the_plugin() {
    let action = r#"{"action":{"action":"run_ipython","args":{"code":"1"}}}"#;
    let answer = ServerFixture::new("root").post(action);
    let detail =
        "Internal server error: JupyterRequirement not found. Unable to run IPython action.";
    assert_eq!(
        (answer.status, answer.json()),
        (500, json!({"detail": detail}))
    );
}

#[test]
fn kernel_has_user_and_directory_of_the_shell() {
    for fixture in all_users() {
        let shell = |command: &str| fixture.output(command);
        for row in [
            "import os; print(os.getuid(), os.getgid(), *sorted({os.getgid(), *os.getgroups()})) | \
             echo $(id -u) $(id -g) $(id -G | tr ' ' '\\n' | sort -n)",
            "print(*[os.environ.get(name) for name in ('HOME', 'USER', 'LOGNAME', 'SHELL', 'PATH', \
             'LANG')]) | echo $HOME $USER $LOGNAME $SHELL $PATH ${LANG-None}",
            "_ = os.umask(0o22); os.umask(_); print(f'{_:04o}') | umask",
            "print('SESSION_API_KEY' in os.environ) | echo False",
            "print(os.getcwd()) | pwd",
            "print(os.environ.get('PYTHONPATH')) | echo ${PYTHONPATH-None}",
        ] {
            let (code, command) = row.split_once(" | ").unwrap();
            let (cell, shell) = (fixture.cell(code), shell(command));
            assert_eq!(cell, shell, "{} {code}", fixture.username);
        }
        // Files of the kernel, the shell and the editor have the same owner.
        let path = fixture.root.join("file");
        fixture.cell("open('file', 'w').close()");
        let made = shell("stat -c '%U %G %a' file");
        shell("rm file; touch file");
        assert_eq!(shell("stat -c '%U %G %a' file"), made);
        shell("rm file");
        fixture.act(
            "edit",
            &json!({"path": path, "command": "create", "file_text": ""}),
        );
        let owner = shell("stat -c '%U %G' file");
        assert_eq!(owner, made.rsplit_once(' ').unwrap().0);
    }
}

#[test]
fn kernel_follows_directory_of_the_shell() {
    let fixture = with_plugins(&[]);
    fixture.run("mkdir -p 'a \"b' c");
    fixture.run("cd 'a \"b'");
    let here = fixture.root.join("a \"b").display().to_string();
    let answer = fixture.cell_within("import os; print(os.getcwd())", 60.0);
    let tail = format!("{here}\n[Jupyter current working directory: {here}]");
    assert!(content(&answer).starts_with(&tail), "{answer}");
    // A change by the kernel lasts until the next one of the shell.
    fixture.cell("%cd /");
    fixture.run("true");
    assert_eq!(fixture.cell("os.getcwd()"), "'/'");
    fixture.run("cd ../c");
    assert_eq!(fixture.cell("print(os.getcwd())"), fixture.fill("{}/c"));
    fixture.run("mkdir gone; cd gone; rmdir $PWD");
    assert_eq!(fixture.cell("1"), "1");
}

#[test]
fn timeout_keeps_partial_output() {
    let fixture = with_plugins(&[]);
    fixture.cell("import time");
    for row in [
        "5.3 partial output is kept | x = 1; print('half', end=''); time.sleep(1000) | 4.5 | half\n",
        "5.3 a program | !sleep 1000 | 3.0 | ",
    ] {
        let [section, code, seconds, output] = fields(row);
        let expected = format!("{output}[Execution timed out ({seconds} seconds).]");
        let text = fixture.text_within(code, seconds.parse().unwrap());
        assert_eq!(text, expected, "{section}");
        assert_eq!(fixture.cell("x"), "1");
    }
}

#[test]
fn kernel_is_replaced_when_it_ignores_interrupt() {
    let fixture = with_plugins(&[]);
    fixture.run("mkdir a; cd a");
    fixture.cell("1");
    let deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('on')\nwhile True: time.sleep(1)";
    let text = fixture.text_within(deaf, 4.0);
    assert_eq!(text, "on\n[Execution timed out (4.0 seconds).]");
    let text = fixture.text_within("print(1)", 0.3);
    let replaced = restarted("it did not respond to the interrupt");
    assert_eq!(
        text,
        format!("[Execution timed out (0.3 seconds).]\n{replaced}")
    );
    let text = fixture.cell("print(os.getcwd(), open_file.__name__)");
    assert_eq!(text, fixture.fill("{}/a open_file"));
}

#[test]
fn kernel_is_replaced_when_it_ends() {
    let fixture = with_plugins(&[]);
    let gone = restarted("killed by signal 9");
    let die =
        "import os; os.write(1, b'last'); import time; time.sleep(0.5); os.kill(os.getpid(), 9)";
    let text = fixture.cell(die);
    assert_eq!(text, format!("last\n{gone}"), "5.3 killed in a cell");
    assert_eq!(fixture.cell("print(1, open_file.__name__)"), "1 open_file");
    // Killed between cells: the next cell reports it and runs.
    let pid = fixture.cell("import os; print(os.getpid())");
    fixture.run(&format!("kill -9 {pid}"));
    wait_until(|| !is_alive(&pid));
    assert_eq!(fixture.cell("print(2)"), format!("{gone}\n2"));
    assert_eq!(fixture.cell("print(3)"), "3");
    let exit = fixture.cell("os._exit(3)");
    assert_eq!(exit, restarted("exit status 3"));
    let pid = fixture.cell("import os; print(os.getpid())");
    fixture.cell("exit");
    wait_until(|| !is_alive(&pid));
    let expected = format!("{}\n4", restarted("exit status 0"));
    assert_eq!(fixture.cell("print(4)"), expected, "5.3 exit");
}

#[test]
fn output_arrives_once_and_in_order_under_load() {
    let fixture = with_plugins(&[]);
    fixture.cell("x = 0");
    let before = fixture.peak();
    let _load = CpuLoad::full();
    for number in 0..500 {
        let code = format!("print({number}); x += 1; import sys; print('e', file=sys.stderr)\nx");
        let text = fixture.cell(&code);
        // The two streams have no order between them, even within a line.
        assert_eq!(text.matches('e').count(), 1, "{text}");
        let printed = text.replace('e', "\n");
        let words: Vec<_> = printed.split_whitespace().collect();
        let expected = [number.to_string(), (number + 1).to_string()];
        assert_eq!(words, expected, "{text}");
    }
    assert!(fixture.peak() < before + (4 << 10));
}

#[test]
fn invalid_text_is_replaced() {
    let fixture = with_plugins(&[]);
    for row in [
        // File names may be invalid UTF-8.
        "import os; open(b'f\\xff', 'w').close(); \
         print(*[name for name in os.listdir('.') if name[0] == 'f']) | f\u{fffd}",
        "print('a\\ud800b') | a?b",
        "display({'text/plain': '\\udcff'}, raw=True) | \u{fffd}",
        "'\\udcff' | '\\udcff'",
        "!printf 'a\\377b' | a\u{fffd}b",
    ] {
        let [code, expected] = fields(row);
        assert_eq!(fixture.cell(code), expected, "{code}");
    }
    for (byte, shown) in [("\\udcff", "\u{fffd}"), ("\\ud800", "?")] {
        let text = fixture.cell(&format!("raise ValueError('a{byte}b')"));
        assert!(
            text.ends_with(&format!("\nValueError: a{shown}b")),
            "{text}"
        );
    }
}

#[test]
fn huge_output_is_truncated_in_bounded_memory() {
    let fixture = with_plugins(&[]);
    fixture.cell("1");
    // A gigabyte in `make test-long`.
    let is_long = std::env::var_os("LONG_TESTS").is_some();
    let lines = if is_long { 16384 } else { 4096 };
    for code in [
        format!("for i in range({lines}): print('x' * 65535)\nprint('end')"),
        // Written directly to the pipe.
        format!(
            "import subprocess; _ = subprocess.run(['sh', '-c', 'head -c {} /dev/zero | tr \"\\\\0\" x; echo; echo end'])",
            lines << 16
        ),
    ] {
        let text = fixture.text_within(&code, 600.0);
        let notice = "\n[... Observation truncated due to length ...]\n";
        assert!(text.contains(notice) && text.len() < 2 << 20, "{code}");
        assert!(
            text.starts_with("xxx") && text.ends_with("x\nend"),
            "{code}"
        );
    }
    let text = fixture.cell("print('y' * (64 << 20))");
    assert!(text.starts_with("yyy") && text.contains("truncated") && text.len() < 2 << 20);
    assert_eq!(fixture.cell("print(1)"), "1");
    let many = fixture.cell("for i in range(20000): display(i)");
    assert!(many.starts_with("0123") && many.ends_with("19999"));
    assert!(fixture.peak() < 100 << 10, "{}", fixture.peak());
}

#[test]
fn too_large_results_errors_and_images_are_reported() {
    let fixture = with_plugins(&[]);
    for row in [
        "'y' * (32 << 20) | \n[A result is left out: too large]",
        "print('before')\nraise ValueError('z' * (32 << 20)) | \
         before\n\n[An error has occurred; what it says is left out: too large]",
    ] {
        let [code, expected] = fields(row);
        assert_eq!(fixture.cell(code), expected, "{code}");
    }
    let code =
        "for _ in range(5): display({'text/plain': 'i', 'image/png': 'A' * (8 << 20)}, raw=True)";
    let answer = fixture.cell_within(code, 120.0);
    assert_eq!(answer["extras"]["image_urls"].as_array().unwrap().len(), 2);
    let text = fixture.text(&answer);
    let left_out = text.matches("[An image is left out: too large]");
    assert_eq!(left_out.count(), 3);
}

#[test]
fn cell_fails_when_kernels_keep_ending() {
    let home = tempfile::tempdir().unwrap();
    let startup = home.path().join(".ipython/profile_default/startup");
    fs::create_dir_all(&startup).unwrap();
    // Each kernel ends when it changes to the directory of the shell.
    let deadly = "import os; os.chdir = lambda directory: os._exit(5)";
    fs::write(startup.join("deadly.py"), deadly).unwrap();
    let fixture = with_plugins(&[("HOME", home.path().to_str().unwrap())]);
    let args = json!({"code": "print(1)", "include_extra": false});
    let answer = fixture.act("run_ipython", &args);
    assert_eq!(answer["content"], restarted("exit status 5"));
}

#[test]
fn cell_runs_while_a_command_runs() {
    let fixture = with_plugins(&[]);
    fixture.while_waiting(&fixture.root, || {
        assert_eq!(fixture.cell("print(1)"), "1");
    });
}

fn put_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    set_mode(path, 0o755);
}

#[test]
fn missing_ipykernel_is_reported_and_next_cell_retries() {
    let directory = tempfile::tempdir().unwrap();
    let bin = directory.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let bare = python_output("import sys; print(sys.base_prefix)");
    // Not a link: Python finds its library relative to the path of its executable.
    let wrapper = format!("#!/bin/sh\nexec {bare}/bin/python3 -I \"$@\"\n");
    let put = |text: &str| put_program(&bin.join("python3"), text);
    put(&wrapper);
    for tool in ["sh", "bash"] {
        std::os::unix::fs::symlink(format!("/bin/{tool}"), bin.join(tool)).unwrap();
    }
    let fixture = with_plugins(&[("PATH", bin.to_str().unwrap())]);
    let health = || fixture.plugin_state("jupyter");
    let cell = || fixture.cell_within("print(1)", 120.0);
    let answer = cell();
    assert_eq!(answer["observation"], "error");
    let text = content(&answer);
    let start = "No Python in this sandbox can run a Jupyter kernel.\n";
    assert!(text.starts_with(start), "{text}");
    let python3 = bin.join("python3").display().to_string();
    for part in [
        &python3,
        "No module named 'ipykernel'",
        "pip install ipykernel",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let failed = health();
    let start = "failed: No Python";
    assert!(failed.as_str().unwrap().starts_with(start), "{failed}");
    put(&format!("#!/bin/sh\nexec {} \"$@\"\n", python().display()));
    assert!(content(&cell()).starts_with("1\n"));
    assert_eq!(health(), "ready");
}

#[test]
fn child_processes_end_with_kernel() {
    let fixture = with_plugins(&[]);
    let start =
        "import os, subprocess; left = subprocess.Popen(['sleep', '1000']); print(left.pid)";
    let left = fixture.cell(start);
    assert!(is_alive(&left), "{left}");
    assert_eq!(fixture.cell("os._exit(3)"), restarted("exit status 3"));
    wait_until(|| !is_alive(&left));
}

#[test]
fn kernel_ends_with_the_server() {
    let temporary = tempfile::tempdir().unwrap();
    for signal in [Signal::TERM, Signal::KILL] {
        let fixture = with_plugins(&[("TMPDIR", temporary.path().to_str().unwrap())]);
        let pid = fixture.cell("import os; print(os.getpid())");
        assert!(is_alive(&pid));
        fixture.signal(signal);
        fixture.process.wait();
        if signal == Signal::TERM {
            assert!(!is_alive(&pid));
            assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
        }
        // ipykernel checks for its parent about every second.
        wait_until(|| !is_alive(&pid));
    }
}

#[test]
fn shutdown_during_start_leaves_no_files() {
    let temporary = tempfile::tempdir().unwrap();
    let _load = CpuLoad::full();
    for moment in 0..20 {
        let fixture = with_plugins(&[("TMPDIR", temporary.path().to_str().unwrap())]);
        // Shuts down a little later each time.
        for _ in 0..moment {
            assert_eq!(fixture.get("/alive").status, 200);
        }
        fixture.signal(Signal::TERM);
        assert_eq!(fixture.process.wait().code(), Some(0));
    }
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn shutdown_does_not_wait_for_a_cell() {
    let fixture = with_plugins(&[]);
    fixture.run("mkfifo gate");
    std::thread::scope(|scope| {
        let body = r#"{"action":{"action":"run_ipython","args":{"code":"open('gate').read()"}}}"#;
        let stream = fixture.send_keyed("POST /execute_action", body);
        let cell = scope.spawn(|| receive(stream));
        let _gate = open_gate(&fixture.path("gate"));
        fixture.signal(Signal::TERM);
        let answer = cell.join().unwrap();
        assert_eq!(answer.status, 500);
        let reason = "the server is shutting down";
        assert!(answer.body.contains(reason), "{}", answer.body);
    });
}

#[test]
fn server_starts_before_the_kernel_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let (bin, gate) = (directory.path().join("bin"), directory.path().join("gate"));
    fs::create_dir(&bin).unwrap();
    Command::new("mkfifo").arg(&gate).status().unwrap();
    // The kernel starts when the gate opens.
    let (pipe, python) = (gate.display(), python().display());
    let wrapper = format!("#!/bin/sh\nread line <{pipe}\nexec {python} \"$@\"\n");
    put_program(&bin.join("python3"), &wrapper);
    let fixture = with_plugins(&[("PATH", &format!("{}:{}", bin.display(), path()))]);
    let health = || fixture.plugin_state("jupyter");
    assert_eq!(fixture.output("echo hi"), "hi");
    assert_eq!(health(), "starting");
    fs::write(&gate, "\n").unwrap();
    fixture.cell_within("1", 120.0);
    assert_eq!(health(), "ready");
}
