//! HTTP/2 as the standard wants it (RFC 9113, RFC 7541), tried by h2spec: frames, states, flow control
//! and header compression, right and wrong. Without the tool nothing is tested, and it is said.

#[cfg(test)]
#[path = "gateway_support/fake_api.rs"]
#[allow(dead_code, reason = "shared with the tests of the API")]
mod fake_api;
#[cfg(test)]
#[path = "gateway_support/stage.rs"]
#[allow(dead_code, reason = "shared by the tests of the proxy")]
mod stage;
#[cfg(test)]
#[path = "gateway_support/world.rs"]
#[allow(dead_code, reason = "shared with the tests of the API")]
mod world;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tokio::task;

use stage::{Stage, Wire};

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
async fn tried(program: PathBuf, stage: &Stage, path: &str) -> Output {
    let (port, path) = (stage.address.port().to_string(), path.to_owned());
    let run = move || {
        let args = ["--strict", "--port", &port, "--path", &path];
        Command::new(program).args(args).output().unwrap()
    };
    task::spawn_blocking(run).await.unwrap()
}

/// What it calls a fault is none of a port that speaks HTTP/1.1 as well: to something that is no HTTP/2
/// from its first byte, the answer is a 400 of the other version, and then the end.
#[cfg(test)]
const OTHER_VERSION: &str = "× 2: Sends invalid connection preface";

#[cfg(test)]
fn check(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, faults) = text.split_once("Failures:").unwrap();
    let faults: Vec<_> = faults
        .lines()
        .map(str::trim)
        .filter(|l| l.starts_with('×'))
        .collect();
    assert_eq!(faults, [OTHER_VERSION], "{text}");
    assert!(
        text.contains("146 tests, 145 passed, 0 skipped, 1 failed"),
        "{text}"
    );
}

#[tokio::test]
async fn the_api_speaks_http_2() {
    let Some(program) = h2spec() else {
        return;
    };
    let stage = Stage::new().await;
    check(&tried(program, &stage, "/nothing").await);
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
        output = tried(program, &stage, &path) => check(&output),
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
