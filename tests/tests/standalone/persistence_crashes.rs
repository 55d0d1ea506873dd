//! The process ends at any point of a pause or a resume: the workspace is there, files are those that
//! were written, and no state runs twice.

use std::time::Duration;

use tests::binaries::{criu_or_skip, is_root_or_skips};
use tests::persistence_session::body_with_processes;
use tests::session::Session;
use tests::size::full_or;
use tests::standalone::Standalone;
use tests::test_cluster::SeededRng;

/// Longest time from the call until the process is killed.
const LONGEST: Duration = Duration::from_millis(900);

/// Writes its token and a number that only rises, each once, if it is one process.
const BEATS: &str = r#"
import os, time
token, number = os.urandom(4).hex(), 0
while True:
    number += 1
    with open("/workspace/beats", "a") as beats:
        beats.write(f"{token} {number}\n")
    time.sleep(0.01)
"#;

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
    let (mut went_on, rounds) = (0, full_or(60, 6));
    for round in 1..=rounds {
        // A paused sandbox is resumed by this.
        let session = Session::start(standalone.api(), standalone.key(), &body).await;
        let info = session.info().await;
        if info["restored"]["level"] == "Memory" {
            went_on += 1;
        }
        if round == 1 {
            session.write("/workspace/beats.py", BEATS).await;
        }
        let twice = session
            .run("sort /workspace/beats 2>/dev/null | uniq -d | wc -l")
            .await;
        assert_eq!(twice, "0", "round {round}: {info}");
        let files = session
            .run("ls /etc/round-* /workspace/round-* 2>/dev/null | wc -l")
            .await;
        assert_eq!(
            files,
            (2 * (round - 1)).to_string(),
            "round {round}: {info}"
        );
        // One process at most, also after a restore.
        let start = "pgrep -f beats.py >/dev/null || python3 /workspace/beats.py >/dev/null 2>&1 &";
        session.run(start).await;
        session
            .run("sleep 0.3; [ $(pgrep -fc workspace/beats.py) = 1 ] && echo one")
            .await;
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
    println!("{went_on} of {rounds} starts went on");
    let session = Session::start(standalone.api(), standalone.key(), &body).await;
    session.stop().await;
}
