//! A session whose pauses keep changed files, the same wherever its sandbox runs.

pub mod beats;
pub mod interpreter;

use std::time::Duration;

use serde_json::{Value, json};

use crate::clients::v0::v0_command;
use crate::session::Session;

/// Tries of a look at a sandbox that is being paused, and the time between them.
const MAX_POLLS: u32 = 600;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Directories that changes are made in: all but the workspace and what every Pod has anew.
const DIRECTORIES: &str = "/etc /opt /root /home /var/lib /srv /usr/local/lib";

/// Changes of all kinds, some of which each round makes again. `$1` is the number of the round.
/// There are none in `/usr` where it is read-only.
const CHANGE: &str = r#"
set -eu
mkdir -p /opt/kept "/var/lib/kept/round $1"
echo "round $1" >"/etc/kept-$1"
echo "round $1" >>/etc/hosts.allow
dd if=/dev/urandom of=/opt/kept/random bs=64k count=16 status=none
ln -f /opt/kept/random /opt/kept/hard
ln -sfn "kept-$1" /etc/kept-link
cp /bin/true /opt/kept/program
chown 1000:1000 /opt/kept/program
chmod 4755 /opt/kept/program
mkfifo "/var/lib/kept/round $1/pipe"
echo secret >~/.token
chmod 600 ~/.token
touch -d "2001-02-03 04:05:06" "/home/dated-$1"
[ ! -e "/etc/kept-$(($1 - 2))" ] || rm -r "/etc/kept-$(($1 - 2))" "/var/lib/kept/round $(($1 - 2))"
rm -f /etc/debian_version
mkdir -p /usr/local/lib/kept 2>/dev/null || exit 0
cp /bin/true "/usr/local/lib/kept/program-$1"
head -c 100000 /dev/urandom >/usr/local/lib/kept/random
echo "round $1" >>/usr/local/lib/kept/log
rm -f "/usr/local/lib/kept/program-$(($1 - 2))"
"#;

/// Installs packages, whose versions are the number of the round.
const INSTALL: &str = include_str!("persistence_session/install.sh");
/// Prints these versions.
const VERSIONS: &str = include_str!("persistence_session/versions.sh");

/// Body of a `/start` with this image, by which the agent is root and a pause keeps its root.
pub fn start_body(session: &str, image: &str) -> Value {
    json!({
        "session_id": session, "image": image, "working_dir": "/workspace", "environment": {},
        "command": v0_command("", "root"), "persistence": "Root",
    })
}

/// Description of all changes: names, kinds, owners, modes, times and contents.
async fn fingerprint(session: &Session) -> String {
    let list = format!(
        "cd / && {{ find {DIRECTORIES} -xdev ! -type d -printf '%p %y %U:%G %m %n %l %s\\n'; \
         find /home -name 'dated-*' -printf '%p %t\\n'; \
         find {DIRECTORIES} -xdev -type f -exec sha256sum {{}} +; }} \
         | grep -vE '/\\.cache/|history|/etc/(hosts|hostname|resolv.conf|mtab)' | sort | sha256sum"
    );
    session.run(&list).await
}

/// Changes files, pauses and resumes, as often as asked; every time, all changes are there.
pub async fn changed_files_survive_pauses(session: &Session, rounds: u32) {
    session.write("/workspace/change.sh", CHANGE).await;
    for (name, content) in [("install", INSTALL), ("versions", VERSIONS)] {
        session
            .write(&format!("/workspace/{name}.sh"), content)
            .await;
    }
    let versions = async || session.run("sh /workspace/versions.sh").await;
    let info = session.info().await;
    // The host's own root has no configuration of apt, and its `/usr` is read-only.
    let is_host = info["image"] == "host";
    let tool = if is_host { "pip" } else { "apt" };
    let first = info["incarnation"].as_u64();
    for round in 1..=rounds {
        let install = format!("sh /workspace/install.sh {round}");
        assert_eq!(session.run(&install).await, "", "round {round}");
        let installed = versions().await;
        let numbers: Vec<_> = installed
            .split(['\n', ' '])
            .filter(|it| it.parse::<u32>().is_ok())
            .collect();
        let is_current = numbers.iter().all(|number| **number == round.to_string());
        assert!(is_current && installed.contains(tool), "{installed}");
        let made = session
            .run(&format!("sh /workspace/change.sh {round} && echo made"))
            .await;
        assert!(made.contains("made"), "{made}");
        let before = fingerprint(session).await;
        let paused = pause(session).await;
        assert_eq!(paused["persisted"]["level"], "Root", "{paused}");
        assert_eq!(paused["persisted"]["reason"], Value::Null, "{paused}");
        session.resume().await;
        session.ready().await;
        assert_eq!(fingerprint(session).await, before, "round {round}");
        assert_eq!(versions().await, installed, "round {round}");
        let info = session.info().await;
        assert_eq!(info["restored"]["level"], "Root", "{info}");
        let incarnation = info["incarnation"].as_u64();
        assert_eq!(incarnation, first.map(|first| first + u64::from(round)));
    }
    let gone = session.run("ls /etc/debian_version").await;
    assert!(gone.contains("No such file"), "{gone}");
    if !is_host {
        let log = session.run("wc -l </usr/local/lib/kept/log").await;
        assert_eq!(log, rounds.to_string());
    }
}

/// A server with a random token and the number of its answers, which it counts in memory, in shared
/// memory of two kinds and in a database that it holds open. It uses files without a path: the
/// semaphore of its lock, and a library that was replaced, if it can be. It says whether a connection to
/// itself, in which a byte waits, is open.
const SERVER: &str = r#"
import http.server, multiprocessing, multiprocessing.shared_memory, os, shutil, socket, sqlite3, sys

token, answers = os.urandom(8).hex(), 0
counter = multiprocessing.Value("i", 0)
block = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("create table answers (number integer)")
library = next(line.split()[-1] for line in open("/proc/self/maps") if "libsqlite3" in line)
if os.access(os.path.dirname(library), os.W_OK):
    shutil.copy(library, library + ".new")
    os.rename(library + ".new", library)

listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far = listener.accept()[0]
near.send(b"x")

def connection():
    try:
        if far.recv(1) == b"x" and near.send(b"x") == 1:
            return "open"
    except OSError:
        pass
    return "closed"

def count():
    with counter.get_lock():
        counter.value += 1
    block.buf[0] += 1

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global answers
        answers += 1
        child = multiprocessing.Process(target=count)
        child.start()
        child.join()
        database.execute("insert into answers values (?)", [answers])
        rows = database.execute("select count(*) from answers").fetchone()[0]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{token} {answers} {counter.value} {block.buf[0]} {rows} {connection()}".encode())
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", 7070), Handler).serve_forever()
"#;

/// A server with random data, whose digest it answers with the number of its answers.
const NODE_SERVER: &str = "
const { createHash, randomBytes } = require('crypto');
const data = randomBytes(20 << 20);
let answers = 0;
require('http').createServer((_, answer) => {
  const digest = createHash('sha256').update(data).digest('hex');
  answer.end(`${digest} ${++answers}`);
}).listen(7071, '127.0.0.1');
";

/// Body of a `/start` with this image, whose pauses keep the processes, with a Jupyter kernel and the
/// shell of a user.
pub fn body_with_processes(session: &str, image: &str, user: &str) -> Value {
    let mut body = start_body(session, image);
    body["command"] = json!(v0_command("--plugins jupyter", user));
    body["persistence"] = Value::from("Memory");
    body
}

/// Processes that go on after pauses.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub rounds: u32,
    /// Directory of a database that is held open. Its files keep their inode numbers.
    pub directory: &'static str,
    /// Connections of processes to each other go on.
    pub keeps_connections: bool,
    /// MiB of an array of the Jupyter kernel; 0: the sandbox has no kernel.
    pub kernel_mib: u32,
    /// A process of root runs beside those of a user who has sudo.
    pub has_root_process: bool,
}

/// Starts processes, pauses and resumes, as often as asked: they go on, with their memory. Node.js is
/// among them where the sandbox has it.
pub async fn processes_survive_pauses(session: &Session, workload: Workload) {
    let Workload {
        rounds,
        directory,
        keeps_connections,
        kernel_mib,
        has_root_process,
    } = workload;
    let connection = if keeps_connections { "open" } else { "closed" };
    session.write("/workspace/server.py", SERVER).await;
    session
        .run("greet() { echo \"hello $NAME\"; }; NAME=$RANDOM$RANDOM; cd /var/lib; sleep 100000 &")
        .await;
    session
        .run(&format!(
            "python3 /workspace/server.py {directory}/answers.db >/workspace/server.log 2>&1 &"
        ))
        .await;
    if has_root_process {
        let start = "sleep 100001 >/dev/null 2>&1 & echo $! >/workspace/root.pid";
        session.run(&format!("sudo -n sh -c '{start}'")).await;
    }
    let has_node = session.run("command -v node").await.contains("node");
    if has_node {
        session.write("/workspace/server.js", NODE_SERVER).await;
        session
            .run("node /workspace/server.js >/workspace/node.log 2>&1 &")
            .await;
    }
    let cell = format!("import os; data = bytearray(os.urandom(1 << 20)) * {kernel_mib}; n = 0");
    let has_kernel = kernel_mib > 0;
    if has_kernel {
        session.run_python(&cell).await;
    }
    let node = async || {
        let ask = "curl -s --retry 50 --retry-delay 1 --retry-connrefused 127.0.0.1:7071";
        session.run(ask).await
    };
    let node_digest = if has_node {
        node().await
    } else {
        String::new()
    };
    // With the process ids, which stay the same.
    let state = "echo \"$(greet) $PWD\" $$ $(jobs -p)";
    let ask = &format!("{state}; curl -s 127.0.0.1:7070");
    let wait = "curl -s --retry 50 --retry-delay 1 --retry-connrefused 127.0.0.1:7070 || cat /workspace/server.log";
    let first = session.run(wait).await;
    let token = first.strip_suffix(" 1 1 1 1 open").expect(&first);
    let shell = session.run(state).await;
    let sum = "import hashlib; n += 1; print(hashlib.sha256(data).hexdigest(), os.getpid(), n)";
    let digest = async || {
        let content = session.run_python(sum).await;
        content.lines().next().unwrap_or_default().to_owned()
    };
    let first_digest = if has_kernel {
        digest().await
    } else {
        String::new()
    };
    let incarnation = session.info().await["incarnation"].clone();
    for round in 1..=rounds {
        let paused = pause(session).await;
        assert_eq!(paused["persisted"]["level"], "Memory", "{paused}");
        session.resume().await;
        session.ready().await;
        let info = session.info().await;
        assert_eq!(info["restored"]["level"], "Memory", "{info}");
        assert_eq!(info["incarnation"], incarnation, "{info}");
        let n = round + 1;
        let answer = session.run(ask).await;
        assert_eq!(
            answer,
            format!("{shell}\n{token} {n} {n} {n} {n} {connection}")
        );
        if has_root_process {
            let ask = "ps -o user=,args= -p $(cat /workspace/root.pid)";
            assert_eq!(session.run(ask).await, "root     sleep 100001");
        }
        if has_kernel {
            let hash = first_digest.strip_suffix(" 1").expect(&first_digest);
            assert_eq!(digest().await, format!("{hash} {n}"));
        }
        if has_node {
            let digest = node_digest.strip_suffix(" 1").expect(&node_digest);
            assert_eq!(node().await, format!("{digest} {n}"));
        }
    }
}

/// Pauses and waits until the status says what was kept.
pub async fn pause(session: &Session) -> Value {
    let before = session.info().await;
    if before["persisted"]["at"] == before["restored"]["at"] {
        // Times of the status have whole seconds: this pause could have the time of the one before.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    session.pause().await;
    for _ in 0..MAX_POLLS {
        let info = session.info().await;
        let kept = &info["persisted"];
        if kept.is_object() && kept["at"] != before["persisted"]["at"] {
            return info;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    panic!("never saved: {}", session.info().await);
}
