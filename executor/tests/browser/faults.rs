//! Pages, programs and signals that could end the browser or spoil its answers.

use rustix::process::{Pid, Signal};

use super::{error, processes, run, serve, server};
use crate::fixture::ServerFixture;

#[test]
fn next_action_works_and_says_so_when_browser_was_killed_or_stopped() {
    let base = serve(&[("/", "<title>T</title><p>text")]);
    let server = server();
    let visit = format!("goto(\"{base}\")");
    assert_eq!(error(&run(&server, &visit)), "");
    for (option, signal, is_told) in [
        ("--user-data-dir", Signal::KILL, true),
        ("--type=renderer", Signal::KILL, true),
        ("--user-data-dir", Signal::STOP, true),
        // Chromium starts its network service again; only a visit that had begun before it noticed the
        // end fails, and says so. Drawing is done in its main process.
        ("--type=utility", Signal::KILL, false),
    ] {
        let pids = processes(&server, option);
        assert!(!pids.is_empty(), "{option}");
        for pid in pids {
            // It may have ended with another one.
            let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal);
        }
        let answer = run(&server, &visit);
        let case = format!("{option} {signal:?}");
        assert_eq!(
            answer["extras"]["url"],
            format!("{base}/"),
            "{case}: {answer}"
        );
        let told = error(&answer);
        let is_expected = if is_told {
            !told.is_empty()
        } else {
            told.is_empty() || told.starts_with("Error: Page.goto: net::ERR_ABORTED at ")
        };
        assert!(is_expected, "{case}: {told}");
        assert_eq!(error(&run(&server, &visit)), "", "{case}");
    }
    assert!(processes(&server, "--type=gpu-process").is_empty());
}

#[test]
fn page_that_takes_all_memory_is_ended_and_said_so() {
    const HUNGRY: &str = "<title>T</title><script>
        const all = [];
        setInterval(() => all.push(new Uint8Array(32 << 20).fill(1)), 10);
    </script>";
    let base = serve(&[("/", "<title>T</title><p>text"), ("/hungry", HUNGRY)]);
    let variables = [("SANDBOX_BROWSER_MEMORY_MIB", "600")];
    let server = ServerFixture::start("root", &["--enable-browser"], &variables);
    // It ends during its own step or a later one, whose answer says so.
    let first = run(&server, &format!("goto(\"{base}/hungry\")"));
    let mut answers = std::iter::once(first).chain((0..100).map(|_| run(&server, "noop(100)")));
    let notice = "A tab crashed and was closed.";
    assert!(answers.any(|answer| error(&answer).contains(notice)));
    let visit = format!("goto(\"{base}\")");
    let answer = run(&server, &visit);
    assert_eq!(answer["extras"]["url"], format!("{base}/"));
}

#[test]
fn pages_cannot_disturb_the_observation() {
    const HOSTILE: &str =
        "<title>T</title><button id=b>press</button><form><input name=getAttribute>
        <input name=setAttribute></form><img name=querySelectorAll><script>
        function Map() {} function Set() {} function Promise() {} function IntersectionObserver() {}
        document[Symbol.for('sandbox.marks')] = {name: {}};
        b.textContent = 'half \\ud800';
        b.onclick = () => b.textContent = 'clicked';
    </script>";
    let base = serve(&[("/", HOSTILE)]);
    let server = server();
    let answer = run(&server, &format!("goto(\"{base}\")"));
    assert_eq!(error(&answer), "");
    let content = answer["content"].as_str().unwrap();
    assert!(content.contains("[4] button 'half \u{fffd}'"), "{content}");
    let answer = run(&server, "click(\"4\")");
    let content = answer["content"].as_str().unwrap();
    assert!(content.contains("[4] button 'clicked'"), "{answer}");
}

#[test]
fn large_programs_are_answered() {
    let base = serve(&[("/", "<title>T</title><textarea></textarea>")]);
    let server = server();
    run(&server, &format!("goto(\"{base}\")"));
    let text = "x".repeat(1 << 16);
    let answer = run(&server, &format!("fill(\"4\", \"{text}\")"));
    assert_eq!(error(&answer), "");
    let row = format!("[4] textbox '' value='{text}'");
    assert!(answer["content"].as_str().unwrap().contains(&row));
    run(&server, "goto(\"about:blank\")");
    for part in ["x", "f(", "[{(", "'"] {
        let program = part.repeat((1 << 20) / part.len());
        let answer = run(&server, &program);
        let expected = "ValueError: Received an empty action.";
        assert_eq!(error(&answer), expected, "{part}");
    }
}
