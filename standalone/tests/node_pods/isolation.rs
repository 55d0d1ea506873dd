//! What one Pod sees of another and of the host: nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::harness::{Machine, PATIENCE, exit_code, running};

/// Answers every connection on port 8080 with the name of the host.
const SERVER: &str = r"
    use IO::Socket::INET; use Sys::Hostname;
    my $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 9, ReuseAddr => 1) or die $!;
    while (my $c = $s->accept) { print $c hostname(); close $c; }
";

fn address(pod: &Pod) -> String {
    pod.status.clone().unwrap().pod_ip.unwrap()
}

/// What the server in a Pod says. It may not listen yet although it runs.
async fn ask(address: String) -> String {
    let target: SocketAddr = format!("{address}:8080").parse().unwrap();
    let attempts = async move {
        loop {
            if let Ok(mut stream) = TcpStream::connect(target) {
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                return text;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, attempts).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_share_a_port_but_nothing_else() {
    let machine = Machine::new();
    let node = machine.node();
    for name in ["one", "two"] {
        let script = format!("echo {name} > /tmp/{name}; exec perl -e '{SERVER}'");
        let main = json!({"name": "main", "image": "any", "command": ["bash", "-c", script]});
        machine.create(name, json!({"containers": [main]})).await;
    }
    let one = machine.wait("one", running).await;
    let two = machine.wait("two", running).await;
    assert_ne!(address(&one), address(&two));
    assert_eq!(ask(address(&one)).await, "one");
    assert_eq!(ask(address(&two)).await, "two");

    let host = TcpListener::bind("0.0.0.0:0").unwrap();
    let script = format!(
        "ls /tmp; ls -d /proc/[0-9]*; ls -A /home /root /home/openhands | grep -v '^[.]'; ls /etc/shadow /sys;\
         ls {state}; cat /proc/net/dev | grep -c :;\
         reach() {{ timeout 1 bash -c \"exec 3<>/dev/tcp/$1/$2\" 2>/dev/null && echo reached $1; }};\
         reach {one} 8080; reach {gateway} {port}; reach 127.0.0.1 {port}; echo done",
        state = machine.state.path().display(),
        one = address(&one),
        gateway = one.status.as_ref().unwrap().host_ip.as_deref().unwrap(),
        port = host.local_addr().unwrap().port(),
    );
    let pod = machine.once("three", &script).await;
    let log = machine.log("three", "main");
    assert_eq!(exit_code(&pod), 0, "{log}");
    assert!(log.starts_with("/proc/1\n/home:\n"), "{log}");
    assert!(!log.contains("reached"), "{log}");
    for unseen in [
        "/etc/shadow",
        "/sys",
        &machine.state.path().display().to_string(),
    ] {
        assert!(
            log.contains(&format!("'{unseen}': No such file")),
            "{unseen}: {log}"
        );
    }
    assert!(log.ends_with("\n2\ndone\n"), "{log}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_executor_image_holds_the_executor_only() {
    let machine = Machine::new();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&std::fs::read(crate::harness::self_exe()).unwrap())
        .unwrap();
    let executor = file.into_temp_path();
    std::fs::set_permissions(
        &executor,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let node = machine.node_with(|config| config.executor_binary = executor.to_path_buf());
    let main = json!({
        "name": "main", "image": "localhost/sandbox-executor:dev",
        "command": ["/sandbox-executor", "exec-as", "--", "/sandbox-executor", "--help"],
    });
    let shell = json!({
        "name": "shell", "image": "localhost/sandbox-executor:dev", "command": ["/bin/sh"],
    });
    machine
        .create(
            "pod",
            json!({"restartPolicy": "Never", "containers": [main, shell]}),
        )
        .await;
    let pod = machine.wait("pod", crate::harness::ended).await;
    assert_eq!(exit_code(&pod), 0, "{}", machine.log("pod", "main"));
    let statuses = pod.status.unwrap().container_statuses.unwrap();
    let shell = statuses[1].state.clone().unwrap().terminated.unwrap();
    assert_eq!(shell.exit_code, 127);
    node.stop().await;
}

/// A network beyond this host, removed at the end of the test.
struct World(&'static str);

impl World {
    fn make() -> Self {
        let script = "ip netns add sbtest-world && ip -n sbtest-world link add eth0 type veth peer name sbtest netns 1 && \
            ip -n sbtest-world addr add 198.51.100.2/30 dev eth0 && ip -n sbtest-world link set eth0 up && \
            ip -n sbtest-world link set lo up && ip addr add 198.51.100.1/30 dev sbtest && ip link set sbtest up";
        assert!(sh(script).success());
        Self("sbtest-world")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        sh(&format!(
            "ip netns del {}; ip link del sbtest 2>/dev/null",
            self.0
        ));
    }
}

fn sh(script: &str) -> std::process::ExitStatus {
    Command::new("sh").args(["-c", script]).status().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_reach_the_world_beyond_the_host() {
    let machine = Machine::new();
    let node = machine.node();
    let world = World::make();
    let mut server = Command::new("ip")
        .args(["netns", "exec", world.0, "perl", "-e", SERVER])
        .spawn()
        .unwrap();
    // The world knows no way to the Pod: its answer arrives only if the host translates addresses.
    let script = "until exec 3<>/dev/tcp/198.51.100.2/8080; do :; done 2>/dev/null; cat <&3";
    let pod = machine.once("pod", script).await;
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(exit_code(&pod), 0);
    assert!(!machine.log("pod", "main").is_empty());
    node.stop().await;
}
