//! Network policies as the kernel enforces them with the rules of `standalone::network_policy`, against
//! an independent analyzer (`hack/python-analyzer`): both get the same objects and have to agree on
//! each connection of a table.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

use kube::ResourceExt as _;
use rustix::net::{AddressFamily, SendFlags, SocketType, bind, ipproto, sendto, socket};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use standalone::network_policy::PolicyInput;
use tests::binaries::is_root_or_skips;
use tests::cli_tools::{feed, file, run, text};

/// By name, which is that of the namespace too. The analyzer has limits: it takes ranges as outside of
/// the cluster, so that none contains Pods; with `Exists` it misses other namespaces; and a port
/// without a number it takes for none.
const POLICIES: &str = "
kube-system: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}
no-ingress: {podSelector: {}, policyTypes: [Ingress]}
no-egress: {podSelector: {matchLabels: {app: x}}, policyTypes: [Egress], egress: []}
own-namespace: {podSelector: {}, policyTypes: [Ingress, Egress], egress: [{to: [{podSelector: {}}]}],
  ingress: [{from: [{podSelector: {matchLabels: {app: other}}}]}]}
any-namespace: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{from: [{namespaceSelector: {}}]}],
  egress: [{to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: other}}}]}]}
expressions: {podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}, policyTypes: [Ingress],
  ingress: [{from: [{namespaceSelector: {matchLabels: {name: kube-system}}}]}, {from: [
    {namespaceSelector: {matchExpressions: [{key: name, operator: In, values: [no-egress, expressions]}]},
     podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [x]}]}}]}]}
range: {podSelector: {}, policyTypes: [Egress], egress: [{to: [
  {ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 169.254.0.0/16]}}, {ipBlock: {cidr: '::/0'}}]}]}
range-or-label: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 53}], from: [
  {ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.128/25]}}, {podSelector: {matchLabels: {app: other}}}]}]}
ports: {podSelector: {}, policyTypes: [Ingress, Egress],
  ingress: [{ports: [{port: 53, protocol: UDP}, {port: 8081}, {port: http}]}],
  egress: [{to: [{namespaceSelector: {}}], ports: [{port: http}]}]}
ranges: {podSelector: {}, policyTypes: [Ingress, Egress], egress: [{ports: [{port: 8080, endPort: 8081}]}],
  ingress: [{ports: [{port: 50, endPort: 53, protocol: UDP}, {port: 8000, endPort: 8080}]}]}
other-ports: {podSelector: {}, policyTypes: [Ingress],
  ingress: [{ports: [{port: http, protocol: UDP}, {port: unknown}, {port: 53}]}]}
";
const OUTSIDE: [&str; 4] = ["8.8.8.8", "169.254.169.254", "192.0.2.127", "192.0.2.128"];
/// The last is called outside only: the chart opens it for ranges that contain the Pods.
const PORTS: &str = "TCP 53, UDP 53, TCP 8080, UDP 8080, TCP 8081, TCP 443";

fn policies(specs: &str) -> impl Iterator<Item = Value> {
    let specs: Map<String, Value> = serde_yaml::from_str(specs).unwrap();
    specs
        .into_iter()
        .map(|(name, spec)| json!({"metadata": {"name": name, "namespace": name}, "spec": spec}))
}

/// For each policy its namespace, a Pod of its name with the labels it selects, and another Pod.
fn cluster(policies: &[Value]) -> PolicyInput {
    let (mut pods, mut namespaces) = (Vec::new(), Vec::new());
    for policy in policies {
        let namespace = &policy["metadata"]["namespace"];
        let labels = policy["spec"]["podSelector"]["matchLabels"].clone();
        for (suffix, labels) in [("", labels), ("-other", json!({"app": "other"}))] {
            let name = policy["metadata"]["name"].as_str().unwrap().to_owned() + suffix;
            pods.push(json!({
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": {"containers": [{"name": "c", "ports": [
                    {"name": "http", "containerPort": 8080}, {"name": "admin", "containerPort": 8081},
                ]}]},
                "status": {"podIP": format!("10.0.0.{}", pods.len())},
            }));
        }
        let labels = json!({"name": namespace, "kubernetes.io/metadata.name": namespace});
        namespaces.push(json!({"metadata": {"name": namespace, "labels": labels}}));
    }
    let input = json!({"namespaces": namespaces, "pods": pods, "policies": policies});
    serde_json::from_value(input).unwrap()
}

/// Lines `SOURCE|DESTINATION|PROTOCOLS|PORTS}`; `None` without the analyzer.
fn analysis(cluster: &PolicyInput) -> Option<String> {
    let installed = run(file("hack/python-analyzer/install").to_str()?, &[]);
    if !installed.status.success() {
        eprintln!("SKIPPED, needs hack/python-analyzer: network policies, {installed:?}");
        return None;
    }
    let input = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let list = |items| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let lists: Vec<_> = json!(cluster).as_object()?.values().map(list).collect();
    std::fs::write(&input, lists.join("\n---\n")).unwrap();
    let mut command = Command::new(String::from_utf8(installed.stdout).unwrap().trim());
    let arguments = "--connectivity -o txt_no_fw_rules --output_endpoints pods -r";
    command.args(arguments.split(' ')).arg(input.path());
    let lines = feed(&mut command, "").unwrap();
    let lines = lines.replace("All connections", "{protocols:TCP UDP,dst_ports:0-65535}");
    let lines = lines.replace(" => ", "|").replace(" : {protocols:", "|");
    Some(lines.replace(",dst_ports:", "|"))
}

fn analyzer_allows(line: &str, from: &str, to: &str, protocol: &str, port: &str) -> bool {
    let fields: Vec<_> = line.split('|').collect();
    matches!(fields[..], [source, destination, protocols, ports]
        if is_in::<Ipv4Addr>(source, from) && is_in::<Ipv4Addr>(destination, to)
            && protocols.contains(protocol)
            && ports.split([',', '}']).any(|range| is_in::<u16>(range, port)))
}

/// True if the text is the same, or is a value in the range.
fn is_in<T: std::str::FromStr + PartialOrd>(range: &str, value: &str) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let values = [first, value, last].map(|v| v.parse::<T>().ok());
    range == value || values[0].is_some() && values.is_sorted()
}

/// Sends the first packet of a connection, which the kernel refuses if a rule drops it.
fn kernel_allows(from: &str, to: &str, protocol: &str, port: &str) -> bool {
    let kind = [ipproto::UDP, ipproto::TCP][usize::from(protocol == "TCP")];
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(kind)).unwrap();
    let address = |ip: &str| SocketAddrV4::new(ip.parse().unwrap(), 0);
    bind(&socket, &address(from)).unwrap();
    // A SYN of TCP; UDP reads its length of 20 where TCP has the sequence number.
    let mut packet = *b"\0\x01\0\0\0\x14\0\0\0\0\0\0\x50\x02\0\0\0\0\0\0";
    packet[2..4].copy_from_slice(&port.parse::<u16>().unwrap().to_be_bytes());
    let sent = sendto(&socket, &packet, SendFlags::empty(), &address(to));
    sent.map_err(|e| assert_eq!(e, rustix::io::Errno::PERM))
        .is_ok()
}

#[test]
fn kernel_enforces_policies_as_analyzer_reads_them() {
    let manifest = text("manifests/install.yaml");
    let documents = serde_yaml::Deserializer::from_str(&manifest);
    let documents = documents.map(|d| Value::deserialize(d).unwrap());
    let chart = documents.filter(|d| d["kind"] == "NetworkPolicy");
    let cluster = cluster(&chart.chain(policies(POLICIES)).collect::<Vec<_>>());
    assert_eq!(cluster.policies.len(), 14);
    let Some(analysis) = analysis(&cluster).filter(|_| is_root_or_skips()) else {
        return;
    };
    // All addresses are local in a network of this thread: what would be forwarded is output there.
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    let setup = "ip link set lo up; ip route add local default dev lo; nft -f -";
    let rules = cluster.ruleset("test");
    let rules = rules.replace("hook forward", "hook output");
    feed(Command::new("sh").args(["-ec", setup]), &rules).unwrap();
    let mut places = OUTSIDE.map(|ip| (ip.to_owned(), ip.to_owned())).to_vec();
    for pod in &cluster.pods {
        let name = format!("{}/{}", pod.namespace().unwrap(), pod.name_any());
        places.push((name, pod.status.clone().unwrap().pod_ip.unwrap()));
    }
    let mut differences = Vec::new();
    for (from, source) in &places {
        for (to, destination) in &places {
            let (is_outside, to_outside) = (from == source, to == destination);
            let ports = PORTS.split(", ").take(5 + usize::from(to_outside));
            for called in ports.filter(|_| from != to && !(is_outside && to_outside)) {
                let (protocol, port) = called.split_once(' ').unwrap();
                let mut lines = analysis.lines();
                let analyzer = lines.any(|l| analyzer_allows(l, from, to, protocol, port));
                let kernel = kernel_allows(source, destination, protocol, port);
                if kernel != analyzer {
                    differences.push(format!("{from} to {to}, {called}: {kernel}, {analyzer}"));
                }
            }
        }
    }
    assert!(differences.is_empty(), "kernel, analyzer: {differences:#?}");
}
