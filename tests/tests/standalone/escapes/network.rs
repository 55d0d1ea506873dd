//! Networks that a sandbox must not reach. Standalone runs on a machine of its own: a network
//! namespace with addresses of a private network and of a metadata service behind a link.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use tests::binaries::{binary, is_root_or_skips};
use tests::standalone::Standalone;

use super::setting::Running;

/// Address of a server beyond the machine that sandboxes may reach.
pub(crate) const PUBLIC: &str = "198.51.100.2";
/// Others, which they may not.
const CLOSED: [&str; 3] = ["10.99.66.2", "169.254.169.254", "192.168.99.2"];

/// Answers on a port of all addresses, by default 8080.
pub(crate) const SERVER: &str = "use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalPort => $ARGV[0] // 8080, \
    Listen => 9, ReuseAddr => 1) or die; $| = 1; print \"on\\n\"; \
    while (my $c = $s->accept) { print $c \"hello\"; close $c }";

/// Prints the addresses that answer, as `ADDRESS:PORT`; the first is waited for.
const REACH: &str = "reach() { timeout 2 bash -c \"exec 3<>/dev/tcp/${1%:*}/${1##*:}\" 2>/dev/null; }; \
    until reach $1; do :; done; for a; do reach $a && echo $a; done; echo end";

/// A network namespace that ends with the value.
pub(crate) struct Machine(Running);

impl Machine {
    fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up; echo; exec sleep infinity",
        ]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0];
        let stdout = child.stdout.as_mut().unwrap();
        std::io::Read::read_exact(stdout, &mut line).unwrap();
        Self(Running(child))
    }

    /// A command inside.
    fn enter(&self) -> Vec<String> {
        let namespace = format!("--net=/proc/{}/ns/net", self.0.0.id());
        ["nsenter".to_owned(), namespace].into()
    }

    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let enter = self.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).arg(program).args(args);
        command
    }

    pub(crate) fn sh(&self, script: &str) -> String {
        let output = self.command("bash", &["-c", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A server on all addresses of this machine.
    pub(crate) fn serve(&self, port: u16) -> Running {
        let mut command = self.command("perl", &["-e", SERVER, &port.to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.as_mut().unwrap();
        std::io::Read::read_exact(stdout, &mut [0; 3]).unwrap();
        Running(child)
    }

    /// Starts standalone on this machine.
    pub(crate) fn start(&self, state: &Path, flags: &[&str]) -> Standalone {
        let program = state.join("start-inside");
        let (enter, binary) = (self.enter().join(" "), binary("sandbox-standalone"));
        let text = format!("#!/bin/sh\nexec {enter} {} \"$@\"\n", binary.display());
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Standalone::start_binary(&program, state, flags)
    }

    pub(crate) fn kubectl(&self, standalone: &Standalone, words: &str) -> String {
        let words: Vec<_> = words.split(' ').collect();
        let mut command = self.command("kubectl", &words);
        let output = command.envs(&standalone.env).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Two machines with a link, and the addresses of the second one.
pub(crate) fn machines() -> (Machine, Machine) {
    let (machine, outside) = (Machine::new(), Machine::new());
    let id = outside.0.0.id();
    machine.sh(&format!(
        "ip link add out type veth peer name in netns {id}; ip link set out up"
    ));
    outside.sh("ip link set in up");
    for address in CLOSED.iter().chain([&PUBLIC]) {
        let (network, _) = address.rsplit_once('.').unwrap();
        machine.sh(&format!("ip addr add {network}.1/24 dev out"));
        outside.sh(&format!("ip addr add {address}/24 dev in"));
    }
    (machine, outside)
}

#[test]
fn sandboxes_reach_neither_private_networks_nor_the_machine_nor_each_other() {
    if !is_root_or_skips() {
        return;
    }
    let (machine, outside) = machines();
    let _servers = (outside.serve(8080), machine.serve(8080));
    for flags in [&[][..], &["--allow-lan"]] {
        let state = tempfile::tempdir().unwrap();
        let standalone = machine.start(state.path(), flags);
        let server = json!({"name": "main", "image": "host", "command": ["perl", "-e", SERVER]});
        let apply = |name: &str, container: &serde_json::Value| {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"restartPolicy": "Never", "containers": [container]}});
            let file = state.path().join(format!("{name}.json"));
            fs::write(&file, pod.to_string()).unwrap();
            machine.kubectl(&standalone, &format!("apply -f {}", file.display()));
        };
        apply("neighbour", &server);
        let wait = "wait --for=condition=Ready pod/neighbour --timeout=60s";
        machine.kubectl(&standalone, wait);
        let get = |path: &str| {
            let words = format!("get pod neighbour -o jsonpath={{{path}}}");
            machine.kubectl(&standalone, &words)
        };
        let (neighbour, host) = (get(".status.podIP"), get(".status.hostIP"));
        let port = |name: &str| {
            let url = standalone.env[name].clone();
            let port = url.rsplit(':').next().unwrap();
            port.trim_end_matches('/').to_owned()
        };
        let ports = fs::read_to_string(state.path().join("ports-of-test")).unwrap();
        let (gateway, api) = ports.split_once(' ').unwrap();
        assert_eq!(port("SANDBOX_API_URL"), gateway);
        let mut targets = vec![format!("{PUBLIC}:8080")];
        targets.extend(CLOSED.map(|address| format!("{address}:8080")));
        targets.push(format!("{neighbour}:8080"));
        for address in [&host, "198.51.100.1", "10.99.66.1", "127.0.0.1"] {
            targets.push(format!("{address}:8080"));
            targets.push(format!("{address}:{gateway}"));
        }
        targets.push(format!("127.0.0.1:{api}"));
        // The control: from the machine itself, all of them answer.
        let arguments = targets.join(" ");
        let script = format!("set -- {arguments}; {REACH}");
        assert_eq!(machine.sh(&script).lines().count(), targets.len() + 1);

        let command = ["bash", "-c", &script];
        apply(
            "pod",
            &json!({"name": "main", "image": "host", "command": command}),
        );
        let ended = "wait --for=jsonpath={.status.phase}=Succeeded pod/pod --timeout=120s";
        machine.kubectl(&standalone, ended);
        let reached = machine.kubectl(&standalone, "logs pod");
        let private = [CLOSED[0], CLOSED[2]].map(|address| format!("{address}:8080"));
        let mut expected = vec![format!("{PUBLIC}:8080")];
        if !flags.is_empty() {
            expected.extend(private);
        }
        expected.push("end".into());
        assert_eq!(reached.lines().collect::<Vec<_>>(), expected, "{flags:?}");
    }
}
