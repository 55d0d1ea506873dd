//! Use of CPU, memory and disk by the programs in a sandbox.

use serde_json::Value;

use super::Cli;

const MIB: u64 = 1 << 20;
/// Uses a core and holds 200 MiB.
const PROGRAM: &str = "setsid -f sh -c 'while :; do :; done' </dev/null >/dev/null 2>&1\n\
    setsid -f python3 -c 'import time; held = b\"x\" * (200 << 20); time.sleep(600)' </dev/null >/dev/null 2>&1";

#[test]
fn top_shows_what_programs_in_the_sandbox_use() {
    let Some(cli) = Cli::with_sandbox("used") else {
        return;
    };
    let measure = || -> Value {
        let top = cli.succeeds(&["top", "used", "-o", "json"]);
        let top: Value = serde_json::from_str(&top).unwrap();
        top["sandboxes"][0].clone()
    };
    let before = measure();
    let memory = |top: &Value| top["server"]["sandbox"]["memory"]["used"].as_u64().unwrap();
    assert!(memory(&before) < 200 * MIB, "{before}");
    let disk = &before["server"]["sandbox"]["disk"];
    assert!(disk["used"].as_u64() > Some(0) && disk["total"].as_u64() > disk["used"].as_u64());

    cli.succeeds(&["exec", "used", "--", "sh", "-c", PROGRAM]);
    // The machine may be busy with other tests: a part of a core is enough.
    let is_shown = |top: &Value| {
        let cores = top["cpu_cores"].as_f64();
        memory(top) > memory(&before) + 200 * MIB && cores.is_some_and(|cores| cores > 0.2)
    };
    // Each reading takes a second; a sandbox that never shows it ends with the test's time limit.
    let shown = std::iter::repeat_with(measure).find(is_shown).unwrap();
    let server = shown["server"]["resources"]["memory"]["rss"].as_u64();
    assert!(server.is_some_and(|rss| rss < 200 * MIB), "{shown}");
    let table = cli.succeeds(&["top", "used"]);
    assert!(table.contains('%') && table.contains("MiB"), "{table}");
}
