//! Network policies as the process node enforces them for Pods that run: on a machine of its own, and
//! each with what is reached without the policy as a control.

use std::path::Path;

use serde_json::{Value, json};
use tests::binaries::is_root_or_skips;
use tests::standalone::Standalone;

use crate::escapes::network::{Machine, PUBLIC, SERVER, machines};

/// Tries that a change takes at most, of at most a second each.
const MAX_TRIES: usize = 60;

struct Setting<'a> {
    machine: &'a Machine,
    standalone: &'a Standalone,
    state: &'a Path,
}

impl Setting<'_> {
    fn apply(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let file = self.state.join(format!("{name}.json"));
        std::fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&format!("apply -f {}", file.display()));
    }

    fn apply_policy(&self, name: &str, spec: &Value) {
        self.apply(
            &json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name}, "spec": spec}),
        );
    }

    /// Starts a Pod that serves, and waits until it runs.
    fn run(&self, name: &str) {
        let command = ["perl", "-e", SERVER];
        let container = json!({"name": "main", "image": "host", "command": command});
        self.apply(&json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container]}}));
        self.kubectl(&format!(
            "wait --for=condition=Ready pod/{name} --timeout=60s"
        ));
    }

    fn kubectl(&self, words: &str) -> String {
        self.machine.kubectl(self.standalone, words)
    }

    /// Returns whether a Pod connects to a port of the public address.
    fn reaches(&self, pod: &str, port: u16) -> bool {
        let connect =
            format!("timeout 1 bash -c '</dev/tcp/{PUBLIC}/{port}' && echo yes || echo no");
        let command = ["exec", pod, "--", "bash", "-c", &connect];
        let output = self.machine.command("kubectl", &command);
        let output = { output }.envs(&self.standalone.env).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(["yes", "no"].contains(&text.trim()), "{output:?}");
        text.trim() == "yes"
    }

    /// Waits until a Pod reaches exactly these of the two ports.
    #[track_caller]
    fn until(&self, pod: &str, expected: &[u16]) {
        let reached = || {
            [8080, 8081]
                .into_iter()
                .filter(|port| self.reaches(pod, *port))
        };
        let arrived = (0..MAX_TRIES).any(|_| reached().eq(expected.iter().copied()));
        assert!(arrived, "{pod} does not come to {expected:?}");
    }
}

#[test]
fn running_pods_follow_policies_and_labels() {
    if !is_root_or_skips() {
        return;
    }
    let (machine, outside) = machines();
    let _servers = [8080, 8081].map(|port| outside.serve(port));
    let state = tempfile::tempdir().unwrap();
    let standalone = machine.start(state.path(), &[]);
    let setting = Setting {
        machine: &machine,
        standalone: &standalone,
        state: state.path(),
    };
    setting.run("first");
    assert!(
        [8080, 8081]
            .iter()
            .all(|port| setting.reaches("first", *port)),
        "the control"
    );

    let closed = json!({"podSelector": {"matchLabels": {"app": "first"}}, "policyTypes": ["Ingress", "Egress"]});
    setting.apply_policy("closed", &closed);
    setting.until("first", &[]);
    // The machine itself, with gateway and controller, reaches the Pod.
    let address = setting.kubectl("get pod first -o jsonpath={.status.podIP}");
    machine.sh(&format!("timeout 2 bash -c '</dev/tcp/{address}/8080'"));

    let cidr = format!("{PUBLIC}/32");
    let narrow = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [
        {"to": [{"ipBlock": {"cidr": cidr}}], "ports": [{"port": 8081, "endPort": 8090}]},
        {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [cidr]}}]},
    ]});
    setting.apply_policy("narrow", &narrow);
    setting.until("first", &[8081]);
    // In force when a Pod starts: its first attempt fails.
    setting.run("second");
    assert!(!setting.reaches("second", 8080) && setting.reaches("second", 8081));

    setting.kubectl("delete networkpolicy narrow");
    setting.until("first", &[]);
    setting.until("second", &[8080, 8081]);
    setting.kubectl("label pod second app=first --overwrite");
    setting.until("second", &[]);
    setting.kubectl("delete networkpolicy closed");
    setting.until("first", &[8080, 8081]);

    let mut invalid = machine.command("kubectl", &["apply", "-f", "-"]);
    let manifest = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "invalid"}, "spec": {"podSelector": {}, "policyTypes": ["Sideways"]}});
    let said = tests::cli_tools::feed(invalid.envs(&standalone.env), &manifest.to_string());
    assert!(said.unwrap_err().contains("must be Ingress or Egress"));
    assert_eq!(standalone.stop().code(), Some(0));
    let tables = machine.sh("nft list tables");
    assert!(!tables.contains("sandbox_"), "{tables}");
}
