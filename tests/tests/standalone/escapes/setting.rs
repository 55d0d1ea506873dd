//! Sandboxes and the place outside of them in which the same attempts are made.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use serde_json::{Value, json};
use tests::registry::{LocalRegistry, add_program, image_of, small_root};

use crate::fixture::{Fixture, fixture_with};

/// Capabilities that the node grants beyond the default ones.
const GRANTABLE: [&str; 18] = [
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "BLOCK_SUSPEND",
    "CHECKPOINT_RESTORE",
    "IPC_LOCK",
    "IPC_OWNER",
    "LEASE",
    "LINUX_IMMUTABLE",
    "NET_ADMIN",
    "NET_BROADCAST",
    "NET_RAW",
    "SETFCAP",
    "SYSLOG",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_RESOURCE",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// A process that ends with the value.
#[derive(Debug)]
pub(crate) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// A process that does nothing, in a group of its own.
    pub(super) fn idle() -> Self {
        let mut command = Command::new("sleep");
        let child = command.arg("infinity").process_group(0).spawn();
        Self(child.unwrap())
    }

    pub(super) fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

/// A standalone, and a registry with an image that has Perl and bash.
pub(super) struct Setting {
    pub(super) fixture: Fixture,
    pub(super) image: String,
    pub(super) registry: LocalRegistry,
}

/// `None` where standalone cannot run.
pub(super) fn setting(flags: &[&str]) -> Option<Setting> {
    let registry = LocalRegistry::start();
    let host = registry.host();
    let fixture = fixture_with(&[&["--insecure-registries", &host], flags].concat())?;
    let root = small_root();
    add_program(root.path(), "/usr/bin/perl");
    let image = registry.push(image_of(root.path(), &json!({})).path(), "app:1");
    Some(Setting {
        fixture,
        image,
        registry,
    })
}

/// Security context of root, alone and with all that the node grants.
pub(super) fn contexts() -> [(&'static str, Value); 2] {
    let granted = json!({"runAsUser": 0, "capabilities": {"add": GRANTABLE}});
    [("plain", json!({"runAsUser": 0})), ("granted", granted)]
}

impl Setting {
    /// Runs a command in a Pod to its end; its log.
    pub(super) fn once(&self, pod: &str, image: &str, more: &Value) -> String {
        self.fixture.pod(pod, image, more);
        self.ended(pod)
    }

    /// Waits for the end of a Pod; its log.
    pub(super) fn ended(&self, pod: &str) -> String {
        let phase = "jsonpath={.status.phase}";
        let ended = format!("wait --for={phase}=Succeeded pod/{pod} --timeout=60s");
        self.fixture.kubectl(&ended);
        self.fixture.kubectl(&format!("logs {pod}"))
    }

    /// Starts a Pod and waits until it runs.
    pub(super) fn run(&self, pod: &str, image: &str, more: &Value) {
        self.fixture.pod(pod, image, more);
        self.ready(pod);
    }

    pub(super) fn ready(&self, pod: &str) {
        let ready = format!("wait --for=condition=Ready pod/{pod} --timeout=60s");
        self.fixture.kubectl(&ready);
    }

    /// Runs a script in a Pod that runs; what it prints, also on its standard error.
    pub(super) fn exec(&self, pod: &str, script: &str) -> String {
        let mut command = self.fixture.standalone.command("kubectl");
        command.args(["exec", pod, "-c", "main", "--", "sh", "-c", script]);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap()
    }

    /// Path of a file of the host that holds `secret`.
    pub(super) fn secret(&self) -> String {
        let path = self.fixture.state.path().join("secret-of-the-host");
        fs::write(&path, "secret").unwrap();
        path.to_str().unwrap().to_owned()
    }
}
