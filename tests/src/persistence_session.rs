//! A session whose pauses keep changed files, the same wherever its sandbox runs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clients::http_client::text;
use crate::clients::v0::v0_command;
use crate::session::Session;

/// Tries of a look at a sandbox that is being paused, and the time between them.
const MAX_POLLS: u32 = 600;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Directories that changes are made in: all but the workspace and what every Pod has anew.
const DIRECTORIES: &str = "/etc /opt /root /home /var/lib /srv";

/// Changes of all kinds, some of which each round makes again. `$1` is the number of the round.
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
"#;

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
    let script = json!({"path": "/workspace/change.sh", "content": CHANGE});
    session.act("write", script).await.success();
    let first = session.info().await["incarnation"].as_u64();
    for round in 1..=rounds {
        let made = session
            .run(&format!("sh /workspace/change.sh {round} && echo made"))
            .await;
        assert!(made.contains("made"), "{made}");
        let before = fingerprint(session).await;
        let paused = pause(session).await;
        assert_eq!(paused["persisted"]["level"], "Root", "{paused}");
        assert_eq!(paused["persisted"]["reason"], Value::Null, "{paused}");
        session.change_state("resume").await;
        session.ready().await;
        assert_eq!(fingerprint(session).await, before, "round {round}");
        let info = session.info().await;
        assert_eq!(info["restored"]["level"], "Root", "{info}");
        let incarnation = info["incarnation"].as_u64();
        assert_eq!(incarnation, first.map(|first| first + u64::from(round)));
    }
    let gone = session.run("ls /etc/debian_version").await;
    assert!(gone.contains("No such file"), "{gone}");
}

/// A server whose random token and number of answers are in its memory alone.
const SERVER: &str = r#"
import http.server, os
token, answers = os.urandom(8).hex(), 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global answers
        answers += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{token} {answers}".encode())
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", 7070), Handler).serve_forever()
"#;

/// Body of a `/start` with this image, whose pauses keep the processes, with a Jupyter kernel and the
/// shell of a user.
pub fn body_with_processes(session: &str, image: &str, user: &str) -> Value {
    let mut body = start_body(session, image);
    body["command"] = json!(v0_command("--plugins jupyter", user));
    body["persistence"] = Value::from("Memory");
    body
}

/// Starts processes, pauses and resumes, as often as asked: they go on, with their memory.
pub async fn processes_survive_pauses(session: &Session, rounds: u32) {
    let script = json!({"path": "/workspace/server.py", "content": SERVER});
    session.act("write", script).await.success();
    session
        .run("greet() { echo \"hello $NAME\"; }; NAME=$RANDOM$RANDOM; cd /var/lib; sleep 100000 &")
        .await;
    session
        .run("python3 /workspace/server.py >/dev/null 2>&1 & sleep 1")
        .await;
    let cell = json!({"code": "import os; data = os.urandom(1 << 20); n = 0"});
    session.act("run_ipython", cell).await.success();
    let ask = "echo \"$(greet) $PWD $(jobs | wc -l)\"; curl -s 127.0.0.1:7070";
    let before = session.run(ask).await;
    let sum = "import hashlib; n += 1; print(hashlib.sha256(data).hexdigest(), n)";
    let cell = || json!({"code": sum});
    let digest = async || {
        let answer = session.act("run_ipython", cell()).await.success();
        text(&answer, "content")
    };
    let first = digest().await;
    let incarnation = session.info().await["incarnation"].clone();
    for round in 1..=rounds {
        let paused = pause(session).await;
        assert_eq!(paused["persisted"]["level"], "Memory", "{paused}");
        session.change_state("resume").await;
        session.ready().await;
        let info = session.info().await;
        assert_eq!(info["restored"]["level"], "Memory", "{info}");
        assert_eq!(info["incarnation"], incarnation, "{info}");
        let after = session.run(ask).await;
        let counted = before.replacen(" 1", &format!(" {}", round + 1), 1);
        assert!(
            after.contains(before.split_whitespace().nth(1).unwrap_or("?")),
            "{before:?}, then {after:?} and not {counted:?}"
        );
        let again = digest().await;
        let hash = |text: &str| text.split_whitespace().next().map(str::to_owned);
        assert_eq!(hash(&again), hash(&first), "round {round}");
    }
}

/// Pauses and waits until the status says what was kept.
async fn pause(session: &Session) -> Value {
    session.change_state("pause").await;
    for _ in 0..MAX_POLLS {
        let info = session.info().await;
        let kept = &info["persisted"];
        let restored = text_or_empty(&info["restored"], "at");
        if kept.is_object() && text_or_empty(kept, "at") >= restored {
            return info;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    panic!("never saved: {}", session.info().await);
}

fn text_or_empty(value: &Value, field: &str) -> String {
    if value[field].is_string() {
        text(value, field)
    } else {
        String::new()
    }
}
