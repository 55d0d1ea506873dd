//! The operator as two processes outside the cluster, against its kubeconfig.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tests::binaries::{binary, root};
use tests::http::Json;
use tests::standalone::free_port;

/// Key of the runtime API in these tests, and its SHA-256.
pub(crate) const API_KEY: &str = "cluster-test-key";
const API_KEY_SHA256: &str = "1cfd8df8cba6ff7da6ed1397da1e4909b2710bc345ff339df2d06ac1c4f045db";

/// CRDs, API key, controller and gateway. Both processes end when it is dropped.
pub(crate) struct Installation {
    pub(crate) api: String,
    processes: Vec<Child>,
}

impl Installation {
    /// Installs everything and waits until the gateway answers.
    pub(crate) async fn new() -> Self {
        kubectl(&["apply", "--server-side", "-f", "manifests/crds"]);
        let established = "--for=condition=Established";
        kubectl(&["wait", established, "--timeout=60s", "-f", "manifests/crds"]);
        let keys = format!(
            r#"--from-literal=keys.json=[{{"name":"default","sha256":"{API_KEY_SHA256}"}}]"#
        );
        kubectl(&["create", "secret", "generic", "sandbox-api-keys", &keys]);
        let port = free_port();
        let api = format!("http://127.0.0.1:{port}");
        let urls = ["--base-url", &api, "--url-form", "loopback"];
        let admin = ["--admin-listen", "127.0.0.1:0"];
        let controller = operator("controller", &[&urls[..], &admin].concat());
        let listen = format!("0.0.0.0:{port}");
        let size = "100Mi";
        let gateway = operator(
            "gateway",
            &[&urls[..], &["--listen", &listen, "--workspace-size", size]].concat(),
        );
        let installation = Self {
            processes: vec![controller, gateway],
            api,
        };
        installation.answers().await;
        installation
    }

    async fn answers(&self) {
        for _ in 0..300 {
            let open = tokio::net::TcpStream::connect(self.api.trim_start_matches("http://")).await;
            if open.is_ok() {
                let client = Json::with_api_key(API_KEY);
                if client.get(&format!("{}/list", self.api)).await.status == 200 {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the gateway does not answer at {}", self.api);
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = Command::new("kill").arg(process.id().to_string()).status();
            let _ = process.wait();
        }
    }
}

fn operator(role: &str, args: &[&str]) -> Child {
    Command::new(binary("sandbox-operator"))
        .arg(role)
        .args(args)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs kubectl in the root of the checkout; its output if it succeeds.
pub(crate) fn kubectl(args: &[&str]) -> String {
    let output = Command::new("kubectl")
        .args(args)
        .current_dir(root())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// The README's script.
pub(crate) fn first_session_script() -> PathBuf {
    root().join("examples/first-session.sh")
}
