//! Users, groups, capabilities and environment of a container.

use serde_json::{Value, json};

use super::harness::{Machine, ended, exit_code, started};

/// Runs `script` with the security contexts of Pod and container; returns its output.
async fn output(
    machine: &Machine,
    name: &str,
    script: &str,
    pod: Value,
    container: Value,
) -> String {
    let main = json!({
        "name": "main", "image": "any", "command": ["bash", "-c", script],
        "securityContext": container,
        "env": [{"name": "LD_PRELOAD", "value": "/nonexistent.so"}, {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)2"}],
        "volumeMounts": [{"name": "work", "mountPath": "/workspace"}],
    });
    let volumes = json!([{"name": "work", "emptyDir": {"medium": "Memory"}}]);
    let spec = json!({"restartPolicy": "Never", "securityContext": pod, "containers": [main],
        "volumes": volumes});
    machine.create(name, spec).await;
    let ended = machine.wait(name, ended).await;
    let log = machine.log(name);
    assert_eq!(exit_code(&ended), 0, "{log}");
    let lines = log.split_inclusive('\n');
    lines.filter(|line| !line.contains("LD_PRELOAD")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn users_have_capabilities_and_files_of_their_contexts() {
    let script = "id -u; id -g; id -G; echo $HOME $B; grep -E 'CapEff|CapBnd' /proc/self/status; \
        touch /workspace/mine && stat -c '%u %g %a' /workspace /workspace/mine; \
        for fd in /proc/1/fd/*; do n=${fd##*/}; \
        [ -e $fd ] && [ $n -gt 2 ] && [ $n != 255 ] && echo open $n; done; true";
    let (machine, node) = started();
    let log = output(&machine, "root", script, json!({}), json!({})).await;
    let expected = "0\n0\n0\n/root 12\nCapEff:\t00000000200405fb\nCapBnd:\t00000000200405fb\n\
        0 0 777\n0 0 644\n";
    assert_eq!(log, expected);

    let pod = json!({"runAsUser": 1000, "fsGroup": 1000, "runAsNonRoot": true});
    let container = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let script = format!("whoami; touch ~/x /tmp/y; {script}");
    let log = output(&machine, "unprivileged", &script, pod, container).await;
    let expected = "openhands\n1000\n1000\n1000\n/home/openhands 12\nCapEff:\t0000000000000000\n\
        CapBnd:\t0000000000000000\n0 1000 2775\n1000 1000 644\n";
    assert_eq!(log, expected);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn root_is_an_unprivileged_user_of_the_host_behind_a_filter() {
    let (machine, node) = started();
    let script = "cat /proc/self/uid_map; grep -w Seccomp: /proc/self/status; stat -c %u:%g /usr; \
        unshare --user true 2>&1; chown 1000:1000 /workspace && stat -c %u /workspace; \
        perl -MIO::Socket -e 'IO::Socket::INET->new(LocalPort => 80, Listen => 1) or die; print \"80\\n\"'";
    let log = output(&machine, "pod", script, json!({}), json!({})).await;
    let lines: Vec<_> = log.lines().collect();
    let map = lines[0].split_whitespace().map(|id| id.parse().unwrap());
    let map: Vec<u32> = map.collect();
    assert_eq!((map[0], map[2]), (0, 65_536), "{log}");
    assert!(map[1] >= 0x7000_0000, "{log}");
    assert_eq!(lines[1..3], ["Seccomp:\t2", "0:0"], "{log}");
    assert!(lines[3].contains("Operation not permitted"), "{log}");
    assert_eq!(lines[4..], ["1000", "80"], "{log}");
    node.stop().await;
}
