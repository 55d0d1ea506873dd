//! Images of a registry, run by reference.

use std::process::Command;

use serde_json::{Value, json};
use tests::binaries::binary;
use tests::registry::{LocalRegistry, image_of, small_root};

use crate::fixture::{Fixture, fixture_with, start, start_body};

fn command(image: &str) -> Value {
    let mut body = start_body("images");
    body["image"] = json!(image);
    body
}

/// Standalone that pulls from `registry`.
pub(crate) fn with_registry(registry: &LocalRegistry) -> Option<Fixture> {
    fixture_with(&["--insecure-registries", &registry.host()])
}

impl Fixture {
    /// A sandbox of the image.
    pub(crate) async fn run_image(&self, session: &str, image: &str) -> tests::session::Session {
        let mut body = command(image);
        body["session_id"] = json!(session);
        tests::session::Session::start(self.api(), self.key(), &body).await
    }

    /// Success and output of `sandbox-standalone images`; after a failure, its errors.
    fn images(&self, args: &[&str], registry: &LocalRegistry) -> (bool, String) {
        let output = Command::new(binary("sandbox-standalone"))
            .args(["--insecure-registries", &registry.host(), "--state-dir"])
            .arg(self.state.path())
            .arg("images")
            .args(args)
            .output()
            .unwrap();
        let is_success = output.status.success();
        let text = if is_success {
            output.stdout
        } else {
            output.stderr
        };
        (is_success, String::from_utf8(text).unwrap())
    }

    /// Applies a Pod with one container that runs once, with these fields.
    pub(crate) fn pod(&self, name: &str, image: &str, more: &Value) {
        let mut container = json!({"name": "main", "image": image});
        for (field, value) in more.as_object().unwrap() {
            container[field] = value.clone();
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "containers": [container]}});
        let path = self.state.path().join(format!("{name}.json"));
        std::fs::write(&path, pod.to_string()).unwrap();
        self.kubectl(&format!("apply -f {}", path.display()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_of_a_pulled_image_share_it_and_survive_the_registry() {
    let mut registry = LocalRegistry::start();
    let Some(fixture) = with_registry(&registry) else {
        return;
    };
    let image = registry.push(
        image_of(small_root().path(), &json!({})).path(),
        "team/app:1",
    );
    let first = fixture.run_image("first", &image).await;
    assert_eq!(
        first
            .run("echo changed > /tmp/mark; cat /etc/hostname")
            .await,
        first.id
    );
    registry.stop();
    let second = fixture.run_image("second", &image).await;
    assert_eq!(
        second.run("cat /tmp/mark").await,
        "cat: can't open '/tmp/mark': No such file or directory"
    );
    assert_eq!(first.run("cat /tmp/mark").await, "changed");
    let store = fixture.state.path().join("node/images/layers");
    let layers = std::fs::read_dir(store)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    assert_eq!(layers.filter(|path| path.is_dir()).count(), 1);
    // A killed server starts the sandboxes again without a registry.
    let Fixture { standalone, state } = fixture;
    standalone.kill();
    let standalone = start(state.path(), &["--insecure-registries", &registry.host()]);
    let fixture = Fixture { standalone, state };
    let again = fixture.run_image("second", &image).await;
    assert_eq!(again.run("id -u").await, "1000");
}

#[test]
fn configuration_of_the_image_is_honoured() {
    let registry = LocalRegistry::start();
    let Some(fixture) = with_registry(&registry) else {
        return;
    };
    let config = json!({
        "User": "web", "Env": ["GREETING=hello", "PATH=/bin"], "WorkingDir": "/srv/made",
        "Entrypoint": ["/bin/sh", "-c"], "StopSignal": "SIGINT", "Volumes": {"/data": {}},
        "Cmd": ["id; pwd; echo $GREETING $HOME; ls -d /data; trap 'echo interrupted' INT; sleep 300"],
    });
    let image = registry.push(image_of(small_root().path(), &config).path(), "app:1");
    fixture.pod("own", &image, &json!({}));
    let root = json!({"securityContext": {"runAsUser": 0},
        "args": ["id -u; touch /file; stat -c %u:%g /file /bin /etc/passwd"]});
    fixture.pod("root", &image, &root);
    fixture.kubectl("wait --for=jsonpath={.status.phase}=Succeeded pod/root --timeout=60s");
    assert_eq!(fixture.kubectl("logs root"), "0\n0:0\n0:0\n0:0\n");
    fixture.kubectl("wait --for=condition=Ready pod/own --timeout=60s");
    let log = fixture.kubectl("logs own");
    let expected = "uid=33(web) gid=34(web) groups=4(log)\n/srv/made\nhello /srv\n/data\n";
    assert_eq!(log, expected);
    fixture.pod(
        "named",
        &image,
        &json!({"securityContext": {"runAsNonRoot": true}}),
    );
    let reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    let failed = format!("wait --for={reason}=CreateContainerConfigError pod/named --timeout=60s");
    fixture.kubectl(&failed);
}

#[test]
fn image_that_cannot_be_pulled_says_why() {
    let registry = LocalRegistry::start();
    let Some(fixture) = with_registry(&registry) else {
        return;
    };
    let missing = format!("{}/none:1", registry.host());
    fixture.pod("missing", &missing, &json!({}));
    fixture.pod("never", &missing, &json!({"imagePullPolicy": "Never"}));
    let reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    fixture.kubectl(&format!(
        "wait --for={reason}=ErrImageNeverPull pod/never --timeout=60s"
    ));
    fixture.kubectl(&format!(
        "wait --for={reason}=ErrImagePull pod/missing --timeout=60s"
    ));
    let message =
        "get pod missing -o jsonpath={.status.containerStatuses[0].state.waiting.message}";
    let expected =
        format!("failed to pull image {missing:?}: {missing}: not found: manifest unknown");
    assert_eq!(fixture.kubectl(message), expected);
    let events = fixture.kubectl("get events -o jsonpath={.items[*].reason}");
    assert!(
        events.contains("Pulling") && events.contains("Failed"),
        "{events}"
    );
}

#[test]
fn store_is_managed_from_the_command_line() {
    let registry = LocalRegistry::start();
    let Some(fixture) = with_registry(&registry) else {
        return;
    };
    let images = |args: &[&str]| {
        let (is_success, output) = fixture.images(args, &registry);
        assert!(is_success, "{args:?}: {output}");
        output
    };
    let layout = image_of(small_root().path(), &json!({}));
    let (app, other) = (
        registry.push(layout.path(), "app:1"),
        registry.push(layout.path(), "app:2"),
    );
    let pulled = images(&["pull", &app, &other]);
    assert_eq!(pulled.lines().count(), 2, "{pulled}");
    let list = images(&["ls"]);
    assert!(list.contains(&app) && list.contains(&other), "{list}");
    fixture.pod(
        "uses",
        &app,
        &json!({"command": ["/bin/busybox", "sleep", "300"]}),
    );
    fixture.kubectl("wait --for=condition=Ready pod/uses --timeout=60s");
    let saved = fixture.state.path().join("saved.tar");
    let saved = saved.to_str().unwrap();
    images(&["save", &app, "-o", saved]);
    assert!(!fixture.images(&["save", &app, "-o", saved], &registry).0);
    images(&["rm", &app]);
    assert_eq!(images(&["load", saved]), format!("{app}\n"));
    images(&["rm", &other]);
    let freed = images(&["prune"]);
    assert!(freed.starts_with("0 images removed"), "{freed}");
    let list = images(&["ls"]);
    assert!(list.contains(&app) && !list.contains(&other), "{list}");
    let (_, error) = fixture.images(&["rm", &other], &registry);
    assert!(error.contains("no such image"), "{error}");
    let (_, error) = fixture.images(&["pull", "127.0.0.1:1/x"], &registry);
    assert!(error.contains("cannot connect"), "{error}");
}
