//! Isolation of Pods from each other and from the host.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::harness::{
    KilledOnDrop, Machine, ended, eventually, exit_code, running, self_exe, started,
};

/// Server that answers every connection on port 8080 with its host name.
const SERVER: &str = r"
    use IO::Socket::INET; use Sys::Hostname;
    my $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 9, ReuseAddr => 1) or die $!;
    while (my $c = $s->accept) { print $c hostname(); close $c; }
";

fn address(pod: &Pod) -> String {
    pod.status.clone().unwrap().pod_ip.unwrap()
}

/// Response of the server in a Pod. It may not listen yet.
async fn read_hostname(address: String) -> String {
    let target: SocketAddr = format!("{address}:8080").parse().unwrap();
    let mut text = String::new();
    eventually("the server responds", || {
        let stream = TcpStream::connect(target);
        stream.is_ok_and(|mut stream| stream.read_to_string(&mut text).is_ok())
    })
    .await;
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_isolated_from_each_other_and_host() {
    let (machine, node) = started();
    for name in ["one", "two"] {
        let script = format!("echo {name} > /tmp/{name}; exec perl -e '{SERVER}'");
        let main = json!({"name": "main", "image": "any", "command": ["bash", "-c", script]});
        machine.create(name, json!({"containers": [main]})).await;
    }
    let one = machine.wait("one", running).await;
    let two = machine.wait("two", running).await;
    assert_ne!(address(&one), address(&two));
    assert_eq!(read_hostname(address(&one)).await, "one");
    assert_eq!(read_hostname(address(&two)).await, "two");

    let host = TcpListener::bind("0.0.0.0:0").unwrap();
    let script = format!(
        "ls /tmp; ls -d /proc/[0-9]*; ls -A /home /root /home/openhands | grep -v '^[.]'; ls \
            /etc/shadow /sys;\
         ls {state}; cat /proc/net/dev | grep -c :;\
         reach() {{ timeout 1 bash -c \"exec 3<>/dev/tcp/$1/$2\" 2>/dev/null && echo reached $1; \
             }};\
         perl -e '{SERVER}' & until reach 127.0.0.1 8080; do :; done;\
         reach {one} 8080; reach {gateway} {port}; reach 127.0.0.1 {port}; echo done",
        state = machine.state.path().display(),
        one = address(&one),
        gateway = one.status.as_ref().unwrap().host_ip.as_deref().unwrap(),
        port = host.local_addr().unwrap().port(),
    );
    let pod = machine.once("three", &script).await;
    let log = machine.log("three");
    assert_eq!(exit_code(&pod), 0, "{log}");
    assert!(log.starts_with("/proc/1\n/home:\n"), "{log}");
    // The control is the Pod's own server, which the same function reaches.
    assert_eq!(log.matches("reached").count(), 1, "{log}");
    let state = machine.state.path().display().to_string();
    for unseen in ["/etc/shadow", "/sys", &state] {
        let missing = format!("'{unseen}': No such file");
        assert!(log.contains(&missing), "{unseen}: {log}");
    }
    assert!(log.ends_with("\n2\nreached 127.0.0.1\ndone\n"), "{log}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn executor_image_contains_only_executor() {
    let machine = Machine::new();
    let directory = tempfile::tempdir().unwrap();
    let executor = directory.path().join("executor");
    std::fs::copy(self_exe(), &executor).unwrap();
    let node = machine.node_with(|config| config.executor_binary = executor);
    let main = json!({
        "name": "main", "image": "localhost/sandbox-executor:dev",
        "command": ["/sandbox-executor", "exec-as", "--", "/sandbox-executor", "--help"],
    });
    let shell = json!({
        "name": "shell", "image": "localhost/sandbox-executor:dev", "command": ["/bin/sh"],
    });
    let spec = json!({"restartPolicy": "Never", "containers": [main, shell]});
    machine.create("pod", spec).await;
    let pod = machine.wait("pod", ended).await;
    assert_eq!(exit_code(&pod), 0, "{}", machine.log("pod"));
    let statuses = pod.status.unwrap().container_statuses.unwrap();
    let shell = statuses[1].state.clone().unwrap().terminated.unwrap();
    assert_eq!(shell.exit_code, 127);
    node.stop().await;
}

/// A public and a private address beyond this host with a server, removed at the end of the test.
struct OutsideNetwork {
    _server: KilledOnDrop,
}

const PUBLIC: &str = "198.51.100.2";
const PRIVATE: &str = "10.99.66.2";

impl OutsideNetwork {
    fn make() -> Self {
        let script = "ip netns add sbtest-outside && \
            ip -n sbtest-outside link add eth0 type veth peer name sbtest netns 1 && \
            ip -n sbtest-outside addr add 198.51.100.2/30 dev eth0 && \
            ip -n sbtest-outside addr add 10.99.66.2/30 dev eth0 && \
            ip -n sbtest-outside link set eth0 up && ip -n sbtest-outside link set lo up && \
            ip addr add 198.51.100.1/30 dev sbtest && ip addr add 10.99.66.1/30 dev sbtest && \
            ip link set sbtest up";
        assert!(sh(script).success());
        let mut server = Command::new("ip");
        server.args(["netns", "exec", "sbtest-outside", "perl", "-e", SERVER]);
        let server = server.spawn().unwrap();
        Self {
            _server: KilledOnDrop(server),
        }
    }
}

impl Drop for OutsideNetwork {
    fn drop(&mut self) {
        sh("ip netns del sbtest-outside; ip link del sbtest 2>/dev/null");
    }
}

fn sh(script: &str) -> std::process::ExitStatus {
    Command::new("sh").args(["-c", script]).status().unwrap()
}

/// The outside has no route to the Pod: a response proves address translation. The public address
/// is the control: the private one is behind the same link.
#[tokio::test(flavor = "multi_thread")]
async fn pods_reach_public_and_only_if_allowed_private_networks() {
    let _outside = OutsideNetwork::make();
    for (allow_lan, expected) in [(false, "public\n"), (true, "public\nprivate\n")] {
        let machine = Machine::new();
        let node = machine.node_with(|config| config.allow_lan = allow_lan);
        let script = format!(
            "until exec 3<>/dev/tcp/{PUBLIC}/8080; do :; done 2>/dev/null; echo public; \
             timeout 2 bash -c 'exec 3<>/dev/tcp/{PRIVATE}/8080' 2>/dev/null && echo private; true"
        );
        let pod = machine.once("pod", &script).await;
        assert_eq!(exit_code(&pod), 0);
        assert_eq!(machine.log("pod"), expected, "allow_lan: {allow_lan}");
        node.stop().await;
    }
}
