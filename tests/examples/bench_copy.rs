//! `sandbox cp` of one large file and of a tree of small ones, in both directions (`make bench-cp`).
//!
//! The reference, in the same run, is curl with the same file, or with an archive of the tree, through
//! the same gateway to a plain HTTP server in the sandbox. A downloaded archive is unpacked on the way.

#![allow(clippy::unwrap_used, reason = "a benchmark may fail")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tests::persistence_session::start_body;
use tests::session::Session;
use tests::standalone::Standalone;
use tokio::time::Instant;

const ROUNDS: usize = 3;
const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 2048 * MIB;
const FILES: u64 = 10_000;
const SMALL_BYTES: u64 = 10 << 10;
const WORK_PORT: u16 = 12000;
const NAME: &str = "copied";

/// Serves and stores files of the workspace.
const SERVER: &str = "\
import http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_PUT(self):
        left = int(self.headers['Content-Length'])
        with open(self.translate_path(self.path), 'wb') as file:
            while left:
                piece = self.rfile.read(min(left, 1 << 18))
                file.write(piece)
                left -= len(piece)
        self.send_response(201)
        self.send_header('Content-Length', '0')
        self.end_headers()
http.server.ThreadingHTTPServer(('', int(sys.argv[1])), Handler).serve_forever()
";

/// Source of a copy, and the file for curl.
const LOADS: [(&str, &str); 2] = [("file", "file"), ("tree", "tree.tar")];

struct Benchmark {
    programs: PathBuf,
    standalone: Standalone,
    session: Session,
    /// Server in the sandbox.
    url: String,
    /// Sources, and `out` for what comes back.
    local: TempDir,
}

#[tokio::main]
async fn main() {
    let programs = std::env::args().nth(1);
    let programs = PathBuf::from(programs.expect("usage: bench_copy BINARIES"));
    let state = tempfile::tempdir().unwrap();
    let program = programs.join("sandbox-standalone");
    let standalone = Standalone::start_binary(&program, state.path(), &[]);
    let mut body = start_body(NAME, "host");
    body["persistence"] = Value::from("Workspace");
    body["resource_factor"] = Value::from(8);
    let session = Session::start(standalone.api(), standalone.key(), &body).await;
    let benchmark = Benchmark {
        url: serve(&session).await,
        local: sources(),
        programs,
        standalone,
        session,
    };
    println!("median of {ROUNDS} (min-max); ratio of the throughput to that of curl");
    for (source, plain) in LOADS {
        benchmark.measure(source, plain).await;
    }
    benchmark.session.stop().await;
}

fn sources() -> TempDir {
    let local = tempfile::tempdir().unwrap();
    let random = |path: PathBuf, bytes: u64| {
        let mut random = File::open("/dev/urandom").unwrap().take(bytes);
        io::copy(&mut random, &mut File::create(path).unwrap()).unwrap();
    };
    random(local.path().join("file"), FILE_BYTES);
    for number in 0..FILES {
        let directory = local.path().join(format!("tree/{}", number % 100));
        fs::create_dir_all(&directory).unwrap();
        random(directory.join(number.to_string()), SMALL_BYTES);
    }
    let mut tar = Command::new("tar");
    tar.args(["-cf", "tree.tar", "tree"]).current_dir(&local);
    assert!(tar.status().unwrap().success());
    local
}

/// Starts the server in the sandbox; its URL of the gateway.
async fn serve(session: &Session) -> String {
    session.write("/workspace/server.py", SERVER).await;
    let start = format!(
        "cd /workspace && python3 server.py {WORK_PORT} >/dev/null 2>&1 & \
         until curl -s -o /dev/null localhost:{WORK_PORT}; do sleep 0.1; done"
    );
    session.run(&start).await;
    let info = session.info().await;
    let hosts = info["work_hosts"].as_object().unwrap();
    let (url, _) = hosts.iter().find(|(_, port)| **port == WORK_PORT).unwrap();
    url.trim_end_matches('/').to_owned()
}

impl Benchmark {
    async fn measure(&self, source: &str, plain: &str) {
        let [mut copied_in, mut sent, mut copied_out, mut received] = [const { Vec::new() }; 4];
        let (local, out) = (self.local.path(), self.local.path().join("out"));
        let [local_source, local_plain] = [source, plain].map(|name| local.join(name));
        let [source_digest, plain_digest] = [source, plain].map(|name| digest(local, name));
        for _ in 0..ROUNDS {
            self.session
                .run("rm -rf /workspace/in && mkdir /workspace/in")
                .await;
            let _ = fs::remove_dir_all(&out);
            fs::create_dir(&out).unwrap();
            copied_in.push(self.copy(&local_source, format!("{NAME}:/workspace/in")));
            assert_eq!(self.digest_in_sandbox(source).await, source_digest);
            sent.push(self.curl(&format!("-T {}", local_plain.display()), plain, &out));
            assert_eq!(self.digest_in_sandbox(plain).await, plain_digest);
            copied_out.push(self.copy(format!("{NAME}:/workspace/in/{source}"), &out));
            assert_eq!(digest(&out, source), source_digest);
            fs::remove_dir_all(&out).unwrap();
            fs::create_dir(&out).unwrap();
            let target = if plain == source {
                "-o file"
            } else {
                "| tar -x"
            };
            received.push(self.curl(target, plain, &out));
            assert_eq!(digest(&out, source), source_digest);
        }
        let bytes = fs::metadata(local_plain).unwrap().len();
        report(&format!("{source} in"), bytes, copied_in, sent);
        report(&format!("{source} out"), bytes, copied_out, received);
    }

    fn copy(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Duration {
        let program = self.programs.join("sandbox");
        let mut command = self.standalone.command(program.to_str().unwrap());
        time(command.arg("cp").arg(from).arg(to))
    }

    /// Sends a file to the server, or receives one; `rest` says which, and follows the URL.
    fn curl(&self, rest: &str, name: &str, directory: &Path) -> Duration {
        let script = format!(
            "set -o pipefail; curl -sS --fail {}/in/{name} {rest}",
            self.url
        );
        time(
            Command::new("bash")
                .args(["-c", &script])
                .current_dir(directory),
        )
    }

    async fn digest_in_sandbox(&self, name: &str) -> String {
        self.session
            .run(&digest_script("/workspace/in", name))
            .await
    }
}

/// Time of a program that must succeed. What was written before is on the disk when it starts.
fn time(command: &mut Command) -> Duration {
    assert!(Command::new("sync").status().unwrap().success());
    let begin = Instant::now();
    let status = command.stdin(Stdio::null()).status().unwrap();
    let time = begin.elapsed();
    assert!(status.success(), "{command:?}");
    time
}

/// Digest of the names and contents of a file or tree.
fn digest(directory: &Path, name: &str) -> String {
    let script = digest_script(directory.to_str().unwrap(), name);
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn digest_script(directory: &str, name: &str) -> String {
    format!(
        "cd {directory} && find {name} -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum"
    )
}

fn report(name: &str, bytes: u64, copies: Vec<Duration>, references: Vec<Duration>) {
    let [copy, reference] = [("cp", copies), ("curl", references)].map(|(program, mut times)| {
        times.sort();
        let [shortest, middle, longest] =
            [0, ROUNDS / 2, ROUNDS - 1].map(|at| times[at].as_secs_f64());
        #[allow(clippy::cast_precision_loss, reason = "a size for people")]
        let rate = (bytes / MIB) as f64 / middle;
        print!(
            "{name:9} {program:4} {middle:6.2} s ({shortest:.2}-{longest:.2}) {rate:5.0} MiB/s   "
        );
        middle
    });
    println!("ratio {:.0} %", 100.0 * reference / copy);
}
