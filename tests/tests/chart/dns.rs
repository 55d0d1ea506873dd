//! Names of headless Services, for the Pods of a cluster that has no DNS: a server on this machine,
//! behind the address that the kubelet tells Pods. It answers as the endpoints are.

use std::net::{Ipv4Addr, UdpSocket};

use serde_json::json;

use tests::cli_tools::{apply, run};

/// Serves until the process ends.
pub(crate) fn serve() {
    let machine = std::env::var("CLUSTER_HOST").unwrap();
    let cluster = machine.split('.').nth(2).unwrap();
    let port = json!([{"name": "dns", "protocol": "UDP", "port": 53}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": format!("10.97.{cluster}.10"), "ports": port},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": "kube-dns", "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "endpoints": [{"addresses": [machine]}], "ports": port,
    });
    apply(&format!("{service}\n---\n{slice}"), &[]);
    let socket = UdpSocket::bind((machine.as_str(), 53)).unwrap();
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, peer)) = socket.recv_from(&mut packet) {
            if let Some(answer) = answer(&packet[..length]) {
                let _ = socket.send_to(&answer, peer);
            }
        }
    });
}

/// The answer to one question (RFC 1035 4.1).
fn answer(packet: &[u8]) -> Option<Vec<u8>> {
    let (name, end) = name(packet.get(12..)?)?;
    let end = 12 + end;
    let is_address = packet.get(end..end + 2)? == [0, 1];
    let (told, code) = match service(&name) {
        Some(service) if is_address => (addresses(service), 0),
        Some(_) => (Vec::new(), 0),
        None => (Vec::new(), 3),
    };
    let count = u8::try_from(told.len()).ok()?;
    let mut answer = packet[..2].to_vec();
    answer.extend([0x84, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
    answer.extend(packet.get(12..end + 4)?);
    for address in told {
        // The name of the question, A, IN, one second.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

/// A name, and where it ends.
fn name(packet: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 0);
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(std::str::from_utf8(packet.get(at..at + length)?).ok()?);
        at += length;
    }
}

/// Name and namespace of the Service that a name is of.
fn service(name: &str) -> Option<[&str; 2]> {
    let parts: Vec<_> = name.split('.').collect();
    match parts[..] {
        [service, namespace, "svc", "cluster", "local"] => Some([service, namespace]),
        _ => None,
    }
}

fn addresses([service, namespace]: [&str; 2]) -> Vec<Ipv4Addr> {
    let label = format!("--selector=kubernetes.io/service-name={service}");
    let all = "-o=jsonpath={.items[*].endpoints[*].addresses[0]}";
    let slices = ["get", "endpointslices", "-n", namespace, &label, all];
    let output = run("kubectl", &slices).stdout;
    let text = String::from_utf8_lossy(&output);
    text.split(' ').filter_map(|ip| ip.parse().ok()).collect()
}
