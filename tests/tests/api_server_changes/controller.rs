//! The controller as a process that can be stopped, under a name that the audit log knows.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_yaml::Value;
use tests::binaries::binary;
use tests::clients::HttpClient;
use tests::free_port::free_port;
use tokio::time::{Duration, sleep, timeout};

/// Its user in the audit log.
pub(crate) const NAME: &str = "the-controller";
/// Longest time until a signal has taken effect.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A running controller. Ends when dropped.
pub(crate) struct Controller {
    child: Child,
    directory: tempfile::TempDir,
    admin: u16,
}

impl Controller {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, impersonating()).unwrap();
        let admin = free_port();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let child = Command::new(binary("sandbox-operator"))
            .args(["controller", "--no-leader-election"])
            .args(["--base-url", "https://sandboxes.example.com"])
            .args(["--admin-listen", &format!("127.0.0.1:{admin}")])
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "info")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            directory,
            admin,
        }
    }

    /// Has it stand still, and returns when it does.
    pub(crate) async fn stop(&self) {
        self.signal("-STOP");
        let stat = PathBuf::from(format!("/proc/{}/stat", self.child.id()));
        let standing = async {
            while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let stopped = timeout(STOP_TIMEOUT, standing).await;
        assert!(stopped.is_ok(), "it runs on: {}", self.log());
    }

    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// Returns its readiness report.
    pub(crate) async fn readyz(&self) -> (u16, String) {
        let url = format!("http://127.0.0.1:{}/readyz", self.admin);
        let answer = HttpClient::unpooled(&[]).get(&url).await;
        (answer.status, answer.body.to_string())
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kubeconfig of the administrator, acting for the controller.
fn impersonating() -> String {
    let path = std::env::var("KUBECONFIG").unwrap();
    let mut config: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for entry in config["users"].as_sequence_mut().unwrap() {
        entry["user"]["as"] = NAME.into();
        entry["user"]["as-groups"] = vec![Value::from("system:masters")].into();
    }
    serde_yaml::to_string(&config).unwrap()
}
