//! Full image builds on a real node: BuildKit without root, and a containerd that pulls the image.

use serde_json::json;
use tests::cli_tools::get;
use tests::clients::v0::v0_command;
use tests::image_builds::Builder;
use tests::registry::{LocalRegistry, image_of, small_root};
use tests::session::Session;

use crate::installation::api;

/// Key of the tenant whose images are built; `with-operator` has its hash.
const KEY: &str = "cluster-builder-key";
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn dockerfile_runs_without_root_and_its_image_starts() {
    let address = std::env::var("CLUSTER_REGISTRY").expect("hack/cluster sets CLUSTER_REGISTRY");
    let registry = LocalRegistry::start_at(address.parse().unwrap());
    let layout = image_of(small_root().path(), &json!({"Env": ["PATH=/bin"]}));
    let base = registry.push(layout.path(), "team/base:1");
    let target = format!("{address}/team/runtime:made");
    let dockerfile = format!(
        "FROM {base}\nRUN echo built by $(id -u) > /made && mkdir /owned && chown 33:34 /owned\n\
         COPY code/poetry.lock /copied\n"
    );
    let api = api();
    let builder = Builder::new(&api, KEY);
    let id = builder.submit(&dockerfile, &target).await;
    let end = builder.end(&id).await;
    assert_eq!(end.status, "SUCCESS", "{end:?}");

    let started = json!({
        "session_id": "built", "image": target, "working_dir": "/workspace",
        "command": v0_command("", "root"),
    });
    let session = Session::start(&api, KEY, &started).await;
    let found = session
        .run("cat /made /copied; stat -c %u:%g:%a /owned /")
        .await;
    assert!(
        found.contains("built by 0\nlock\n33:34:755\n0:0:755"),
        "{found}"
    );

    let failing = format!("FROM {base}\nRUN echo the trouble is here >&2; exit 7\n");
    let target = format!("{address}/team/runtime:failing");
    let id = builder.submit(&failing, &target).await;
    let end = builder.end(&id).await;
    assert_eq!(end.status, "FAILURE");
    let error = end.error.unwrap();
    assert!(error.contains("the trouble is here"), "{error}");
    let log = get(&["configmap", &id, "-n", "sandbox-builds"]);
    assert!(
        log["data"]["log"]
            .as_str()
            .unwrap()
            .contains("the trouble is here")
    );
    let pods = get(&["pods", "-n", "sandbox-builds"]);
    assert_eq!(pods["items"], json!([]));
}
