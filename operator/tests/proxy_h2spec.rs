//! HTTP/2 as the standard wants it (RFC 9113, RFC 7541), tried by h2spec: frames, states, flow control
//! and header compression, right and wrong. Without the tool nothing is tested, and it is said.

#[cfg(test)]
#[path = "gateway_support/support.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::task;

use support::stage::{Stage, Wire};

const OK: &str = "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello";

/// The program, if it has been built.
#[cfg(test)]
fn h2spec() -> Option<PathBuf> {
    let hack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/h2spec/build");
    let told = Command::new(hack).arg("path").output().unwrap();
    assert!(told.status.success(), "{told:?}");
    let program = PathBuf::from(String::from_utf8(told.stdout).unwrap().trim_end());
    if !program.is_file() {
        eprintln!("SKIPPED, needs h2spec (hack/install h2spec): the standard of HTTP/2");
        return None;
    }
    Some(program)
}

/// Everything that h2spec tries, with requests for `path`.
#[cfg(test)]
async fn tried(program: &Path, stage: &Stage, path: &str) -> BTreeSet<String> {
    let (port, path) = (stage.address.port().to_string(), path.to_owned());
    let mut run = Command::new(program);
    run.args(["--strict", "--port", &port, "--path", &path]);
    let output = task::spawn_blocking(move || run.output().unwrap());
    let output = String::from_utf8(output.await.unwrap().stdout).unwrap();
    assert!(output.contains("146 tests, "), "{output}");
    assert!(output.contains(" 0 skipped, "), "{output}");
    let (_, faults) = output.split_once("Failures:").unwrap_or_default();
    let faults = faults.lines().map(str::trim);
    let faults: BTreeSet<_> = faults
        .filter(|line| line.starts_with('×'))
        .map(ToOwned::to_owned)
        .collect();
    if faults.len() > 1 {
        println!("{output}");
    }
    faults
}

/// What it calls a fault is none of a port that speaks HTTP/1.1 as well: to something that is no HTTP/2
/// from its first byte, the answer is a 400 of the other version, and then the end.
#[cfg(test)]
const OTHER_VERSION: &str = "× 2: Sends invalid connection preface";

/// What fails every time. Some cases do wrong to a stream that may have been answered and ended before,
/// so they are given more than one chance.
#[cfg(test)]
async fn check(program: &Path, stage: &Stage, path: &str) {
    let expected = BTreeSet::from([OTHER_VERSION.to_owned()]);
    let mut faults = tried(program, stage, path).await;
    for _ in 0..4 {
        if faults == expected {
            return;
        }
        let again = tried(program, stage, path).await;
        faults.retain(|fault| again.contains(fault));
    }
    assert_eq!(faults, expected);
}

#[tokio::test]
async fn the_api_speaks_http_2() {
    let Some(program) = h2spec() else {
        return;
    };
    let stage = Stage::new().await;
    check(&program, &stage, "/nothing").await;
}

#[tokio::test]
async fn the_proxy_speaks_http_2() {
    let Some(program) = h2spec() else {
        return;
    };
    let stage = Stage::new().await;
    let path = format!("/{}/runtime/", stage.id);
    let answering = async {
        loop {
            let (stream, _) = stage.upstream.accept().await.unwrap();
            task::spawn(answer(Wire::new(stream)));
        }
    };
    tokio::select! {
        () = check(&program, &stage, &path) => {}
        () = answering => {}
    }
}

/// Answers one request after the other, whatever body it has.
#[cfg(test)]
async fn answer(mut sandbox: Wire) {
    while sandbox.has_head().await {
        sandbox.send(OK).await;
    }
}
