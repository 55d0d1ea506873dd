//! Full image builds with the rights that the chart grants, in the namespace that it makes.

use std::process::Command;

use serde_json::json;
use tests::binaries::binary;
use tests::cli_tools::{get, try_kubectl, until};
use tests::image_builds::Builder;
use tests::registry::{LocalRegistry, image_of, small_root};

use crate::release::{IMAGE, NAMESPACE, Release};

const BUILDS: &str = "sandbox-builds";

pub(crate) async fn are_made_where_only_the_controller_creates_pods(release: &Release) {
    let address = std::env::var("CLUSTER_REGISTRY").unwrap();
    let registry = LocalRegistry::start_at(address.parse().unwrap());
    let layout = image_of(small_root().path(), &json!({"Env": ["PATH=/bin"]}));
    let base = registry.push(layout.path(), "team/base:1");
    let values = format!(
        "sandboxes.imageBuilds=full,builds.builderImage=localhost/buildkit:1,builds.memory=1Gi,\
         builds.disk=2Gi,gateway.insecureRegistries[0]={address}"
    );
    release.helm("upgrade", &["--set", &values]);
    let key = new_key(&format!("{address}/team"));
    let builder = Builder::new(&release.url, &key);
    let dockerfile = format!("FROM {base}\nRUN echo fine > /made\n");
    let target = format!("{address}/team/runtime:made");
    let id = builder.submit(&dockerfile, &target).await;
    let log = builder.log(&id).await;
    assert!(log.contains("RUN echo fine"), "{log}");
    assert_eq!(builder.end(&id).await.status, "SUCCESS");
    // The kept one.
    assert!(builder.log(&id).await.contains("RUN echo fine"));
    until("the Pod is gone", || {
        get(&["pods", "-n", BUILDS])["items"] == json!([])
    });
    until("other Pods are refused", || {
        let image = format!("--image={IMAGE}");
        let run = try_kubectl(&["run", "other", &image, "-n", BUILDS], "");
        run.is_err_and(|error| error.contains("only the controller creates Pods"))
    });
    release.helm("upgrade", &[]);
}

/// Creates a key as an administrator does.
fn new_key(prefix: &str) -> String {
    let output = Command::new(binary("sandbox-operator"))
        .args([
            "keys",
            "--operator-namespace",
            NAMESPACE,
            "create",
            "builder",
        ])
        .args(["--registry-prefix", prefix])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
