//! The operator as two processes outside the cluster, against its kubeconfig: one installation for all
//! tests of this process.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tests::binaries::{binary, root};
use tests::http::Json;
use tests::standalone::free_port;
use tokio::sync::OnceCell;

use crate::command::apply;
use tests::tools::kubectl;

/// Key of the runtime API in these tests, and its SHA-256.
pub(crate) const API_KEY: &str = "cluster-test-key";
const API_KEY_SHA256: &str = "1cfd8df8cba6ff7da6ed1397da1e4909b2710bc345ff339df2d06ac1c4f045db";

/// The image of the sandboxes, see `hack/image`.
pub(crate) const IMAGE: &str = "localhost/sandbox-test:1";

/// What sandboxes get that ask for nothing: many have to fit on the node.
const SMALL: [&str; 2] = [
    "--default-requests=cpu=10m,memory=32Mi",
    "--default-limits=cpu=1,memory=256Mi",
];

/// CRDs, API key, controller and gateway.
#[derive(Debug)]
pub(crate) struct Installation {
    /// URL of the runtime API, whose sandboxes are in the namespace `default`.
    pub(crate) api: String,
    _processes: [Child; 2],
}

static INSTALLATION: OnceCell<Installation> = OnceCell::const_new();

/// Installs everything, once, and waits until the gateway answers.
pub(crate) async fn installed() -> &'static Installation {
    INSTALLATION.get_or_init(Installation::new).await
}

impl Installation {
    async fn new() -> Self {
        kubectl(&["apply", "--server-side", "-f", "manifests/crds"]);
        let established = "--for=condition=Established";
        kubectl(&["wait", established, "--timeout=60s", "-f", "manifests/crds"]);
        let keys = json!([{"name": "default", "sha256": API_KEY_SHA256}]);
        apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sandbox-api-keys"},
            "stringData": {"keys.json": keys.to_string()},
        }));
        let port = free_port();
        let api = format!("http://127.0.0.1:{port}");
        let urls = ["--base-url", &api, "--url-form", "loopback"];
        let admin = ["--admin-listen", "127.0.0.1:0"];
        let listen = format!("0.0.0.0:{port}");
        let own = ["--listen", &listen, "--workspace-size", "100Mi"];
        let installation = Self {
            _processes: [
                operator("controller", &[&urls[..], &admin, &SMALL].concat()),
                operator("gateway", &[&urls[..], &admin, &own].concat()),
            ],
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

/// Runs a program again whenever it ends, as a cluster does, until nobody holds its input open.
const KEEPER: &str = r#"
keep() {
    trap 'kill "$child"; wait "$child"; exit' TERM
    while :; do
        "$@" &
        child=$!
        wait "$child"
        sleep 0.2
    done
}
keep "$@" &
cat
kill "$!"
wait "$!"
"#;

/// Ends when this process does, however it does.
fn operator(role: &str, args: &[&str]) -> Child {
    Command::new("sh")
        .args(["-c", KEEPER, "sh"])
        .arg(binary("sandbox-operator"))
        .arg(role)
        .args(args)
        .env("RUST_LOG", "warn")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The README's script.
pub(crate) fn first_session_script() -> PathBuf {
    root().join("examples/first-session.sh")
}
