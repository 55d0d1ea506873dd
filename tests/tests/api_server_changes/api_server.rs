//! The API server of the test's cluster, which comes back with an empty memory of changes.

use std::process::{Command, Stdio};

use kube::Client;
use tests::cli_tools::{cluster_directory, run_checked};
use tokio::time::{Duration, Instant, sleep};

/// The longest that a start may take.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Command line of the API server.
pub(crate) struct ApiServer {
    command: Vec<String>,
}

impl ApiServer {
    pub(crate) fn find() -> Self {
        let command = std::fs::read(format!("/proc/{}/cmdline", pid())).unwrap();
        let words = command.split(|byte| *byte == 0);
        let words = words.map(|word| String::from_utf8(word.to_vec()).unwrap());
        Self {
            command: words.filter(|word| !word.is_empty()).collect(),
        }
    }

    /// Ends it without warning, starts it as it was, and waits until it is ready.
    pub(crate) async fn restart(&self) {
        let pid = pid();
        run_checked("kill", &["-KILL", &pid]);
        let end = Instant::now() + START_TIMEOUT;
        while is_alive(&pid) {
            assert!(Instant::now() < end, "the API server does not end");
            sleep(Duration::from_millis(20)).await;
        }
        let log = std::fs::File::create(cluster_directory().join("log/kube-apiserver-again.log"))
            .unwrap();
        // It ends with the first process of its namespaces, which `hack/cluster down` ends.
        let started = Command::new("setsid")
            .args(["--fork", "nsenter", "--mount", "--net", "--pid"])
            .args(["--target", &first(), "--"])
            .args(&self.command)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .status();
        assert!(started.unwrap().success());
        while !is_ready().await {
            assert!(Instant::now() < end, "the API server does not come back");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn is_ready() -> bool {
    let Ok(client) = Client::try_default().await else {
        return false;
    };
    let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
    client.request_text(request).await.is_ok()
}

/// The first process of the cluster's namespaces.
fn first() -> String {
    std::env::var("CLUSTER_PID").expect("hack/cluster env sets CLUSTER_PID")
}

/// The API server of this cluster: the one in its process namespace.
fn pid() -> String {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    // Children of the first process are in its PID namespace.
    let own = namespace(&first());
    let all = run_checked("ps", &["-e", "-o", "pid=,args="]);
    let mut servers = all.lines().filter_map(|line| {
        let (pid, args) = line.trim().split_once(' ')?;
        let program = args.trim().split(' ').next()?;
        let name = program.rsplit('/').next()?;
        (name == "kube-apiserver" && namespace(pid) == own).then(|| pid.to_owned())
    });
    servers.next().expect("the cluster has an API server")
}

/// Returns whether a thread is left, and with it the socket: the first may be a zombie before others end.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.map_or(0, Iterator::count);
    !stat.is_empty() && (!state.starts_with('Z') || threads > 1)
}
