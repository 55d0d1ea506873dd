//! Kubeconfig for clients of this server.

/// Returns a kubeconfig for the server at `base_url`, which may end in a path.
pub fn kubeconfig(base_url: &str) -> String {
    let server = serde_json::Value::from(base_url.trim_end_matches('/'));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: sandbox-standalone
  cluster: {{server: {server}}}
contexts:
- name: sandbox-standalone
  context: {{cluster: sandbox-standalone, namespace: default, user: sandbox-standalone}}
users:
- name: sandbox-standalone
  user: {{}}
current-context: sandbox-standalone
"
    )
}
