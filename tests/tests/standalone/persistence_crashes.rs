//! The process ends at any point of a pause or a resume: the workspace is there, files are those that
//! were written, and no state runs twice.

use std::time::Duration;

use tests::binaries::{criu_or_skip, is_root_or_skips};
use tests::persistence_session::beats::{BEATS, runs_of};
use tests::persistence_session::body_with_processes;
use tests::session::Session;
use tests::size::full_or;
use tests::standalone::Standalone;
use tests::test_cluster::SeededRng;

/// Longest time from the call until the process is killed.
const LONGEST: Duration = Duration::from_millis(900);

/// Number of beating processes, once another line is there.
const BEATING: &str = "lines() { cat /workspace/beats | wc -l; }; before=$(lines); \
    for n in $(seq 600); do [ $(lines) -gt $before ] && break; sleep 0.05; done; \
    pgrep -fc workspace/beats.py";

/// Tries of a look at the incarnation, which the status has soon after a start, and the time between
/// them.
const MAX_POLLS: u32 = 600;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Starts the beating process, unless it goes on. Returns its token.
async fn beating(session: &Session) -> String {
    let start = "touch /workspace/beats; if ! pgrep -f workspace/beats.py >/dev/null; then \
        python3 /workspace/beats.py 0 >/dev/null 2>&1 & fi";
    session.run(start).await;
    let beating = session.run(BEATING).await;
    // One process, also after a restore. The shell may tell of a job that has ended.
    assert_eq!(beating.lines().next(), Some("1"), "{beating}");
    let beats = session.sandbox.read("/workspace/beats").await.unwrap();
    let (token, _) = runs_of(&beats).pop().expect(&beating);
    token
}

/// Waits until the status has this incarnation or a later one.
async fn incarnation(session: &Session, at_least: u64) -> u64 {
    for _ in 0..MAX_POLLS {
        let info = session.info().await;
        let incarnation = info["incarnation"].as_u64().expect("a number");
        if incarnation >= at_least {
            return incarnation;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    panic!("the incarnation does not rise: {}", session.info().await);
}

#[tokio::test]
async fn kills_at_any_point_lose_no_file_and_run_no_state_twice() {
    if !is_root_or_skips() {
        return;
    }
    let Some(criu) = criu_or_skip() else { return };
    let state = tempfile::tempdir().unwrap();
    let flags = ["--memory-persistence", "--criu", criu.to_str().unwrap()];
    let mut standalone = Standalone::start(state.path(), &flags);
    let body = body_with_processes("killed", "host", "root");
    let mut random = SeededRng::new(7);
    let rounds = full_or(60, 6);
    // Incarnation and token of the process before the kill.
    let mut before: Option<(u64, String)> = None;
    for round in 1..=rounds {
        // A paused sandbox is resumed by this.
        let session = Session::start(standalone.api(), standalone.key(), &body).await;
        if round == 1 {
            session.write("/workspace/beats.py", BEATS).await;
        }
        let files = session
            .run("ls /etc/round-* /workspace/round-* 2>/dev/null | wc -l")
            .await;
        assert_eq!(files, (2 * (round - 1)).to_string(), "round {round}");
        let token = beating(&session).await;
        // The number tells whether processes went on.
        let number = match &before {
            Some((number, earlier)) if token == *earlier => {
                let now = incarnation(&session, *number).await;
                assert_eq!(now, *number, "round {round}: the process went on");
                now
            }
            Some((number, _)) => incarnation(&session, number + 1).await,
            None => incarnation(&session, 0).await,
        };
        before = Some((number, token));
        let write = format!(
            "echo {round} >/etc/round-{round}; echo {round} >/workspace/round-{round}; sync"
        );
        session.run(&write).await;
        session.pause().await;
        if random.percent(40) {
            // The resume, too, is interrupted.
            tokio::time::sleep(random.time(LONGEST)).await;
            session.resume().await;
        }
        tokio::time::sleep(random.time(LONGEST)).await;
        standalone.kill();
        standalone = Standalone::start(state.path(), &flags);
    }
    // Between a pause and a resume nothing is interrupted by a kill: the process goes on.
    let session = Session::start(standalone.api(), standalone.key(), &body).await;
    let token = beating(&session).await;
    session.pause().await;
    let paused = format!("sbx/{}", session.id);
    let wait = [
        "wait",
        "--for=jsonpath={.status.phase}=Paused",
        "--timeout=60s",
    ];
    standalone.run("kubectl", &[&wait[..], &[&paused]].concat());
    let kept = session.info().await;
    assert_eq!(kept["persisted"]["level"], "Memory", "{kept}");
    standalone.kill();
    standalone = Standalone::start(state.path(), &flags);
    let session = Session::start(standalone.api(), standalone.key(), &body).await;
    let info = session.info().await;
    assert_eq!(info["restored"]["level"], "Memory", "{info}");
    assert_eq!(info["incarnation"], kept["incarnation"], "{info}");
    assert_eq!(beating(&session).await, token);
    session.stop().await;
}
