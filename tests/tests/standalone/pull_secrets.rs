//! Images of a registry with tokens: by the Pod's pull secret, whose content is shown nowhere.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use data_encoding::BASE64;
use serde_json::{Value, json};
use tests::binaries::{binary, is_root_or_skips};
use tests::registry::{LocalRegistry, PASSWORD, USER, image_of, small_root};
use tests::standalone::Standalone;

use crate::fixture::Fixture;

const WRONG_PASSWORD: &str = "wrong-horse-battery";

/// Starts standalone with a log of everything.
fn start(state: &Path, log: &Path, registry: &LocalRegistry) -> Standalone {
    let program = state.join("start-with-log");
    let (binary, log) = (binary("sandbox-standalone"), log.display());
    let text = format!(
        "#!/bin/sh\nRUST_LOG=trace exec {} \"$@\" 2> {log}\n",
        binary.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let flags = ["--insecure-registries", &registry.host()];
    Standalone::start_binary(&program, state, &flags)
}

impl Fixture {
    fn apply_object(&self, name: &str, object: &Value) {
        let path = self.state.path().join(format!("{name}.json"));
        fs::write(&path, object.to_string()).unwrap();
        self.kubectl(&format!("apply -f {}", path.display()));
    }

    /// Applies a pull secret of this name.
    fn pull_secret(&self, name: &str, registry: &LocalRegistry, password: &str) {
        let login = json!({"username": USER, "password": password});
        let mut auths = json!({});
        auths[registry.host()] = login;
        let config = BASE64.encode(json!({"auths": auths}).to_string().as_bytes());
        self.apply_object(
            name,
            &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
                "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": config}}),
        );
    }

    /// Applies a Pod that always pulls its image, with a pull secret.
    fn pulling(&self, name: &str, image: &str, secret: &str) {
        let container = json!({"name": "main", "image": image, "imagePullPolicy": "Always",
            "command": ["/bin/sleep", "1000"]});
        let spec = json!({"containers": [container], "imagePullSecrets": [{"name": secret}]});
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": spec});
        self.apply_object(name, &object);
    }

    /// Waits until the pull for a Pod has failed; its message.
    fn refusal(&self, pod: &str) -> String {
        let state = "{.status.containerStatuses[0].state.waiting";
        let wait = format!("jsonpath={state}.reason}}=ErrImagePull pod/{pod} --timeout=60s");
        self.kubectl(&format!("wait --for={wait}"));
        self.kubectl(&format!("get pod {pod} -o jsonpath={state}.message}}"))
    }
}

#[test]
fn private_image_needs_the_right_pull_secret_which_no_log_shows() {
    if !is_root_or_skips() {
        return;
    }
    let registry = LocalRegistry::with_tokens();
    let layout = image_of(small_root().path(), &json!({}));
    let image = registry.push(layout.path(), "team/private:1");
    let state = tempfile::tempdir().unwrap();
    let log = state.path().join("log");
    let standalone = start(state.path(), &log, &registry);
    let fixture = Fixture { standalone, state };
    fixture.pull_secret("right", &registry, PASSWORD);
    fixture.pull_secret("wrong", &registry, WRONG_PASSWORD);

    let failed = format!("failed to pull image {image:?}: {image}: access denied: ");
    let refusals = [
        ("wrong", format!("{failed}incorrect user or password")),
        ("none", format!("{failed}authentication required")),
    ];
    for (secret, expected) in &refusals {
        fixture.pulling(secret, &image, secret);
        assert_eq!(fixture.refusal(secret), *expected);
    }
    fixture.pulling("right", &image, "right");
    fixture.kubectl("wait --for=condition=Ready pod/right --timeout=60s");
    // The image is there now, which is no reason to give it to others.
    for (secret, expected) in &refusals {
        let pod = format!("{secret}-later");
        fixture.pulling(&pod, &image, secret);
        assert_eq!(fixture.refusal(&pod), *expected);
    }
    let events = fixture.kubectl("get events,pods -o json");
    assert!(events.contains("incorrect user or password"), "{events}");

    let log = fs::read_to_string(&log).unwrap();
    assert!(
        log.contains("start failed") && log.contains("TRACE"),
        "{log}"
    );
    let mut secrets = registry.issued_tokens();
    assert!(secrets.len() >= 3);
    for password in [PASSWORD, WRONG_PASSWORD] {
        let login = format!("{USER}:{password}");
        secrets.extend([password.to_owned(), BASE64.encode(login.as_bytes())]);
    }
    for secret in secrets {
        let shown = [&log, &events].map(|text| text.contains(&secret));
        assert_eq!(shown, [false, false], "{secret}");
    }
}
