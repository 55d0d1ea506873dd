//! Many steps in one browser: memory stays flat, and no process and no file is left.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use super::{error, processes, serve};
use crate::client::{TestProcess, serve_command, wait_until};

const STEPS: usize = 200;
/// With `LONG_TESTS`.
const LONG_STEPS: usize = 2000;
/// Steps after which caches are filled.
const WARM_UP: usize = 100;
/// Allowed growth of the executor and of the whole browser, in KiB: their allocators, and code of pages.
const MAX_GROWTH_KIB: [u64; 2] = [4 << 10, 64 << 10];

const PAGE: &str = "<title>Form</title><iframe srcdoc='<p>frame</p>'></iframe>
    <input><select><option>a<option>b</select><button onclick='alert(1)'>press</button>
    <a href=/file.pdf download>get</a><div onclick=\"open('about:blank')\">open</div>
    <script>document.write('<p>text</p>'.repeat(200))</script>";

/// Program of a step, and how its error begins.
fn program(number: usize, base: &str) -> (String, &'static str) {
    match number % 10 {
        1 => ("fill(\"4\", \"x\")".into(), ""),
        2 => ("new_tab()\ngoto(\"data:text/html,<p>other\")".into(), ""),
        3 => ("tab_close()".into(), ""),
        4 => ("scroll(0, 300)\nclick(\"nothing\")".into(), "ValueError"),
        5 => ("press(\"4\", \"Tab\")".into(), ""),
        6 => (format!("goto(\"{base}/absent\")\ngo_back()"), ""),
        7 => ("this is no program".into(), "ValueError"),
        8 if number % 100 == 8 => (format!("goto(\"{base}/file.pdf\")"), "download"),
        _ => (format!("goto(\"{base}/?{number}\")"), ""),
    }
}

fn step(process: &TestProcess, number: usize, base: &str) {
    let (program, expected) = program(number, base);
    let args = json!({"browser_actions": program});
    let answer =
        process.act(&json!({"action": "browse_interactive", "args": args, "timeout": 120}));
    if expected == "download" {
        assert_eq!(answer["observation"], "download", "{number}: {answer}");
        return;
    }
    let said = error(&answer);
    let as_expected = said.starts_with(expected) && said.is_empty() == expected.is_empty();
    assert!(as_expected, "{number}, {program}: {said}");
}

/// Memory of the executor and of the browser, in KiB, and the number of the browser's processes.
fn usage(process: &TestProcess) -> ([u64; 2], usize) {
    let browser = processes(process, "chrom");
    let size = |pid: &i32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = text.lines().find(|line| line.starts_with("Pss:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let total = browser.iter().filter_map(size).sum();
    ([process.memory("VmRSS:"), total], browser.len())
}

#[test]
fn browser_leaks_nothing_in_many_steps() {
    let steps = std::env::var_os("LONG_TESTS").map_or(STEPS, |_| LONG_STEPS);
    let base = serve(&[("/file.pdf", "%PDF-1.4 text"), ("/", PAGE)]);
    let [workspace, temporary] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut command = serve_command(workspace.path(), &["--enable-browser"]);
    let process = TestProcess::start(command.env("TMPDIR", temporary.path()));
    (0..WARM_UP).for_each(|number| step(&process, number, &base));
    let (before, count) = usage(&process);
    (WARM_UP..steps).for_each(|number| step(&process, number, &base));
    // Renderers of closed tabs take a moment to end.
    wait_until(|| usage(&process).1 <= count);
    let (after, _) = usage(&process);
    eprintln!("executor and browser: {before:?} KiB, after {steps} steps {after:?} KiB");
    for ((before, after), growth) in before.into_iter().zip(after).zip(MAX_GROWTH_KIB) {
        assert!(after <= before + growth, "{before} KiB, then {after} KiB");
    }
    let browser = processes(&process, "chrom");
    process.signal(Signal::TERM);
    process.wait();
    let runs = |pid: &i32| fs::exists(format!("/proc/{pid}")).unwrap();
    wait_until(|| !browser.iter().any(runs));
    let left: Vec<_> = fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // Downloads and screenshots are files of the user.
    let mut entries: Vec<_> = fs::read_dir(workspace.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    entries.retain(|name| !name.to_string_lossy().starts_with("file_"));
    entries.sort();
    assert_eq!(entries, [".browser_screenshots", ".downloads"]);
}
