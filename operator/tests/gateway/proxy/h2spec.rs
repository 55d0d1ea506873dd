//! HTTP/2 conformance (RFC 9113, RFC 7541), checked by h2spec: frames, states, flow control and
//! header compression. Prints SKIPPED without the tool.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::task;

use crate::support::socket_fixture::{RawConnection, SocketFixture};

const OK: &str = "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello";

/// Path of h2spec, if it has been built.
fn h2spec() -> Option<PathBuf> {
    let hack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/h2spec/build");
    let output = Command::new(hack).arg("path").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let program = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end());
    if !program.is_file() {
        eprintln!("SKIPPED, needs h2spec (hack/install h2spec): HTTP/2 conformance");
        return None;
    }
    Some(program)
}

/// Runs all h2spec cases with requests for `path` and returns the failed ones.
async fn failed_cases(program: &Path, fixture: &SocketFixture, path: &str) -> BTreeSet<String> {
    let (port, path) = (fixture.address.port().to_string(), path.to_owned());
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

/// The port speaks HTTP/1.1 too: input that is not HTTP/2 from its first byte gets a 400 of
/// HTTP/1.1.
const OTHER_VERSION: &str = "× 2: Sends invalid connection preface";

#[tokio::test]
async fn proxy_passes_h2spec() {
    let Some(program) = h2spec() else {
        return;
    };
    let fixture = SocketFixture::new().await;
    let path = format!("/{}/runtime/", fixture.id);
    let answering = async {
        loop {
            let (stream, _) = fixture.upstream.accept().await.unwrap();
            task::spawn(answer(RawConnection::new(stream)));
        }
    };
    tokio::select! {
        failed = failed_cases(&program, &fixture, &path) => {
            assert_eq!(failed, BTreeSet::from([OTHER_VERSION.to_owned()]));
        }
        () = answering => {}
    }
}

/// Answers every request once it has read its body: an earlier response would race with a fault in
/// the body.
async fn answer(mut sandbox: RawConnection) {
    while let Some(head) = sandbox.try_until("\n\n").await {
        if head.contains("transfer-encoding: chunked") && !read_chunks(&mut sandbox).await {
            return;
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if let Some(length) = length {
            sandbox.bytes(length.parse().unwrap()).await;
        }
        sandbox.send(OK).await;
    }
}

/// Reads a chunked body with its trailers; false if it breaks off.
async fn read_chunks(sandbox: &mut RawConnection) -> bool {
    while let Some(size) = sandbox.try_until("\n").await {
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        if size > 0 {
            sandbox.bytes(size + 2).await;
            continue;
        }
        while let Some(line) = sandbox.try_until("\n").await {
            if line == "\n" {
                return true;
            }
        }
    }
    false
}
