//! Isolation of a sandbox from others, seen from inside, on a real node.
//!
//! Network policies are not part of it, because this cluster does not enforce them.

use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use kube::Api;
use serde_json::{Value, json};

use crate::session;
use crate::test_namespace::TestNamespace;

/// Prints what the kernel says a process may do, as `Name value` lines.
const PRIVILEGES: &str =
    "grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status | tr -d ':'";

fn privileges(printed: &str) -> Value {
    let lines = printed
        .lines()
        .filter_map(|l| l.split_once(char::is_whitespace));
    lines.map(|(name, value)| (name, value.trim())).collect()
}

/// The capabilities that the profile `sudo` keeps, and their numbers in the kernel.
const SUDO: [(&str, u8); 11] = [
    ("CHOWN", 0),
    ("DAC_OVERRIDE", 1),
    ("FOWNER", 3),
    ("FSETID", 4),
    ("KILL", 5),
    ("SETGID", 6),
    ("SETUID", 7),
    ("SETPCAP", 8),
    ("NET_BIND_SERVICE", 10),
    ("SYS_CHROOT", 18),
    ("AUDIT_WRITE", 29),
];

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn restricted_profile_has_no_privileges() {
    let ns = TestNamespace::new("restricted").await;
    let spec = json!({"command": ["sleep", "infinity"]});
    ns.apply("image", &spec);
    let user = json!({"command": ["sleep", "infinity"], "securityContext": {"runAsUser": 1000}});
    ns.apply("user", &user);
    for (name, uid) in [("image", "0"), ("user", "1000")] {
        ns.ready(name).await;
        let none = "0000000000000000";
        let wanted = json!({"CapPrm": none, "CapEff": none, "CapBnd": none, "NoNewPrivs": "1", "Seccomp": "2"});
        assert_eq!(privileges(&ns.exec(name, PRIVILEGES)), wanted, "{name}");
        assert_eq!(ns.exec(name, "id -u"), uid);
    }
    // A setuid program gives nothing.
    let sudo = ns.exec("user", "sudo -n id -u 2>&1 || true");
    assert!(sudo.contains("no new privileges"), "{sudo}");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn sandbox_root_is_not_node_root() {
    let _scene = TestNamespace::of_gateway().await;
    let session = session::start("isolated").await;
    assert_eq!(session.run("sudo id -u").await, "0");
    let seen = privileges(&session.run(&format!("sudo {PRIVILEGES}")).await);
    let capabilities = SUDO.iter().fold(0_u64, |all, (_, bit)| all | 1 << bit);
    assert_eq!(seen["CapBnd"], format!("{capabilities:016x}"));
    assert_eq!(seen["Seccomp"], "2");
    for forbidden in [
        "sudo mount -t tmpfs none /mnt",
        "sudo mknod /tmp/disk b 8 0",
        "sudo sh -c 'echo 1 > /proc/sys/kernel/panic'",
        "sudo sh -c 'echo b > /proc/sysrq-trigger'",
        "d=/sys/fs/cgroup/memory; [ -d $d ] || d=/sys/fs/cgroup; sudo mkdir $d/x",
        "sudo unshare --net true",
        "sudo dmesg",
    ] {
        let script = format!("{forbidden} >/dev/null 2>&1; echo $?");
        assert_ne!(session.run(&script).await, "0", "{forbidden}");
    }
    // Its own processes are all that it sees.
    let first = "tr '\\0' ' ' < /proc/1/cmdline | cut -d' ' -f1,2";
    let supervisor = session.run(&format!("sudo {first}")).await;
    let first = "sandbox-executor supervise";
    assert!(supervisor.contains(first), "{supervisor}");
    session.stop().await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn sandbox_has_no_access_to_the_api_and_other_sandboxes() {
    let ns = TestNamespace::of_gateway().await;
    let (a, b) = tokio::join!(session::start("key-a"), session::start("key-b"));
    let tokens = "ls -d /var/run/secrets /run/secrets 2>/dev/null | wc -l";
    assert_eq!(a.run(tokens).await, "0");
    let spec = ns.get::<Pod>(&a.id).await.spec.unwrap();
    assert_eq!(spec.automount_service_account_token, Some(false));
    // The address of the API server is known to every Pod; without a token it says nothing.
    let ask = "curl -sk -o /dev/null -w '%{http_code}' \
               https://$KUBERNETES_SERVICE_HOST/api/v1/namespaces/default/secrets";
    assert_eq!(a.run(ask).await, "403");
    let own = ns.get::<crds::Sandbox>(&b.id).await;
    let ip = own.status.unwrap().pod_ip.unwrap();
    let url = format!("http://{ip}:60000/execute_action");
    let body = r#"{"action": {"action": "run", "args": {"command": "id"}}}"#;
    let ask = format!(
        "curl -s -o /dev/null -w '%{{http_code}}' -H 'X-Session-API-Key: {}' \
         -H 'Content-Type: application/json' -d '{body}' {url}",
        a.key
    );
    assert_eq!(a.run(&ask).await, "403");
    assert_eq!(b.status_with_key(&a.key).await, 403);
    assert_eq!(b.status_with_key(&b.key).await, 200);
    a.stop().await;
    b.stop().await;
}

/// The memory limit, which counts kernel memory of each process, and the CPU limit contain a fork
/// bomb.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn fork_bomb_does_not_harm_other_sandboxes() {
    let ns = TestNamespace::new("bomb").await;
    let bomb = "sleep 10; bomb() { bomb | bomb & }; bomb; exec sleep infinity";
    let limits = json!({"memory": "48Mi", "cpu": "1"});
    let spec = json!({"command": ["bash", "-c", bomb], "resources": {"limits": limits}});
    ns.apply("quiet", &json!({"command": ["sleep", "infinity"]}));
    ns.ready("quiet").await;
    ns.apply("bomb", &spec);
    ns.ready("bomb").await;
    let pod = ns.get::<Pod>("bomb").await;
    // While it goes off, the node and its neighbours go on.
    let started = "sleep 15; echo here";
    assert_eq!(ns.exec("quiet", started), "here");
    let node: Node = Api::all(ns.client.clone()).get("node").await.unwrap();
    let conditions = node.status.unwrap().conditions.unwrap();
    let fine = |c: &NodeCondition| (c.type_ == "Ready") == (c.status == "True");
    assert!(conditions.iter().all(fine), "{conditions:?}");
    // Sooner or later its own first process is among those that the kernel ends.
    let over = ns.until("bomb", "over", |s| s.restarts.count > 0).await;
    assert_eq!(over.restarts.reasons[0], "OOMKilled");
    ns.delete::<crds::Sandbox>("bomb").await;
    ns.gone(&pod).await;
}

/// The kubelet of the test cluster has a `podPidsLimit` of 4096, as clusters should. With memory for
/// more, forks fail in the sandbox, and no process is killed.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn process_limit_follows_the_kubelet() {
    let ns = TestNamespace::new("count").await;
    let limits = json!({"memory": "1Gi", "cpu": "1"});
    let sleep = json!({"command": ["sleep", "infinity"], "resources": {"limits": limits}});
    ns.apply("many", &sleep);
    ns.ready("many").await;
    ns.reported("many").await;
    let begin = "
import threading, time
threading.stack_size(32768)
count = 0
try:
    while count < 5000:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        count += 1
except RuntimeError:
    pass
print(count, flush=True)
import os
os._exit(0)";
    let count = ns.exec("many", &format!("python3 -c '{begin}'"));
    let count: u32 = count.parse().unwrap();
    assert!((3900..4096).contains(&count), "{count}");
    let status = ns.get::<crds::Sandbox>("many").await.status.unwrap();
    assert_eq!(status.restarts.count, 0);
    assert_eq!(ns.exec("many", "echo alive"), "alive");
}
