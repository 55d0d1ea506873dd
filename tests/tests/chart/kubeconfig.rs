//! `sandbox` without URL and API key: a kubeconfig leads to the gateway, and the API key of the
//! installation is used.

use std::process::{Command, Output};

use serde_json::Value;
use tests::binaries::binary;
use tests::cli_tools::{apply, kubectl, run_checked, until};

use crate::release::{IMAGE, NAMESPACE, Release};

const SESSION: &str = "by-kubeconfig";
const USER: &str = "developer";
const TLS_SECRET: &str = "gateway-tls";
/// Of a server, signed by itself.
const CERTIFICATE: &str = "[req]
distinguished_name = name
x509_extensions = server
[name]
[server]
basicConstraints = critical, CA:FALSE
subjectAltName = DNS:gateway.example
";

pub(crate) fn is_enough_for_sandboxes_and_keys() {
    let started = done(
        &["run", "--name", SESSION, IMAGE, "--", "echo", "started"],
        "",
    );
    assert_eq!(started, "started\n");
    let folder = tempfile::tempdir().unwrap();
    let (sent, received) = (folder.path().join("sent"), folder.path().join("received"));
    // More than fits into buffers on the way.
    let content = b"some bytes ".repeat(1 << 20);
    std::fs::write(&sent, &content).unwrap();
    let inside = format!("{SESSION}:/workspace/file");
    done(&["cp", sent.to_str().unwrap(), &inside], "");
    done(&["cp", &inside, received.to_str().unwrap()], "");
    assert!(
        std::fs::read(&received).unwrap() == content,
        "the copy differs"
    );

    let key = done(&["keys", "create", "team", "--max-sandboxes", "1"], "");
    let key = key.trim();
    until("the gateway knows the new key", || {
        command(&["list", "-o", "name"], key).status.success()
    });
    assert_eq!(
        done(&["list", "-o", "name"], key),
        "",
        "sandboxes of another key"
    );
    let list: Vec<Value> =
        serde_json::from_str(&done(&["keys", "list", "-o", "json"], "")).unwrap();
    let names: Vec<_> = list
        .iter()
        .map(|key| key["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"team"), "{names:?}");
    done(&["keys", "revoke", "team"], "");
    until("the gateway rejects the key", || {
        !command(&["list"], key).status.success()
    });
    least_rights_are_enough();
    done(&["stop", SESSION], "");
    let wrong = command(&["list", "--release", "other"], "");
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        said.contains("no gateway of a Helm release other"),
        "{said}"
    );
}

/// Those of docs/cli.md, as a service account has them.
fn least_rights_are_enough() {
    let role = format!(
        "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {USER}}}}}\n---\n\
         {{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {{name: {USER}}}, rules: [\
         {{apiGroups: [apps], resources: [deployments], verbs: [list]}}, \
         {{apiGroups: [''], resources: [pods], verbs: [list]}}, \
         {{apiGroups: [''], resources: [pods/portforward], verbs: [get, create]}}, \
         {{apiGroups: [''], resources: [secrets], verbs: [get], \
         resourceNames: [sandbox-operator-default-key]}}]}}\n---\n\
         {{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {{name: {USER}}}, \
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {USER}}}, \
         subjects: [{{kind: ServiceAccount, name: {USER}, namespace: {NAMESPACE}}}]}}\n"
    );
    apply(&role, &["-n", NAMESPACE]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let kubeconfig = file.to_str().unwrap();
    let admin = kubectl(&["config", "view", "--raw", "--flatten"]);
    std::fs::write(&file, admin).unwrap();
    let token = kubectl(&["create", "token", USER, "-n", NAMESPACE]);
    let change = |args: &[&str]| {
        kubectl(&[&["config", "--kubeconfig", kubeconfig], args].concat());
    };
    change(&[
        "set-credentials",
        USER,
        &format!("--token={}", token.trim()),
    ]);
    change(&["set-context", "--current", &format!("--user={USER}")]);
    let listed = done(&["list", "-o", "name", "--kubeconfig", kubeconfig], "");
    assert!(listed.lines().any(|name| name == SESSION), "{listed}");
    let keys = command(&["keys", "list", "--kubeconfig", kubeconfig], "");
    let said = String::from_utf8_lossy(&keys.stderr);
    assert!(
        !keys.status.success() && said.contains("forbidden"),
        "{said}"
    );
    for kind in ["rolebinding", "role", "serviceaccount"] {
        kubectl(&["delete", kind, USER, "-n", NAMESPACE]);
    }
}

/// A gateway that speaks TLS has a certificate for its public name, which the command asks for through
/// the forwarded port.
pub(crate) fn reaches_a_gateway_with_tls(release: &Release) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (config, certificate, key) = (path("openssl.conf"), path("tls.crt"), path("tls.key"));
    std::fs::write(&config, CERTIFICATE).unwrap();
    let request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=gateway";
    let files = ["-config", &config, "-out", &certificate, "-keyout", &key];
    let words: Vec<_> = request.split(' ').chain(files).collect();
    run_checked("openssl", &words);
    let secret = ["create", "secret", "tls", TLS_SECRET, "-n", NAMESPACE];
    let files = [format!("--cert={certificate}"), format!("--key={key}")];
    kubectl(&[&secret[..], &[&*files[0], &files[1]]].concat());
    let tls = format!("--set=gateway.tlsSecret={TLS_SECRET}");
    release.helm("upgrade", &[&tls, "--set=baseUrl=https://gateway.example"]);

    let list = || sandbox(&["list", "-o", "name"], "");
    let trusting = list().env("SSL_CERT_FILE", &certificate).output().unwrap();
    assert!(trusting.status.success(), "{trusting:?}");
    let doubting = list().output().unwrap();
    let said = String::from_utf8_lossy(&doubting.stderr);
    assert!(
        !doubting.status.success() && said.contains("certificate"),
        "{said}"
    );
    release.helm("upgrade", &[]);
    kubectl(&["delete", "secret", TLS_SECRET, "-n", NAMESPACE]);
}

fn done(args: &[&str], key: &str) -> String {
    let output = command(args, key);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn command(args: &[&str], key: &str) -> Output {
    sandbox(args, key).output().unwrap()
}

fn sandbox(args: &[&str], key: &str) -> Command {
    let mut command = Command::new(binary("sandbox"));
    command
        .args(["--operator-namespace", NAMESPACE])
        .args(args)
        .env_remove("SANDBOX_API_URL")
        .env("SANDBOX_API_KEY", key);
    command
}
