//! One network namespace and one point-to-point link per Pod.
//!
//! Nothing has a name in the file system: a namespace is a descriptor of this process, the link
//! ends with the namespace, the route with the link. A killed node leaves only its firewall table,
//! which the next start replaces.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Command;

use ipnet::Ipv4Net;
use serde::Deserialize;

use super::super::launcher::{HostNamespace, Launcher, inside, new_network_namespace, run_to_end};
use super::super::paths::Paths;
use super::firewall::{INTERFACES, policy_table, read_table, rules};
use super::{NetworkError, POD_RANGE, ip_forward, ipam, resolver};

/// Firewall table and address part of the node.
#[derive(Debug)]
pub(super) struct Namespaces {
    launcher: Launcher,
    tag: String,
    pub(super) part: Ipv4Net,
    /// Number of the part.
    number: u32,
    /// Holds the claim on the part.
    _claim: UnixListener,
}

impl Namespaces {
    /// Claims a part of the Pod range and installs firewall and forwarding.
    pub(super) async fn start(
        allow_lan: bool,
        paths: &Paths,
        launcher: &Launcher,
    ) -> Result<Self, NetworkError> {
        let tag = paths.tag.clone();
        let _lock = launcher.run(|_| ip_forward::lock()).await?;
        remove_tables(launcher, &tag).await?;
        ip_forward::enable()?;
        let routes = foreign_routes(launcher, &tag).await?;
        let count = ipam::parts(POD_RANGE);
        let numbers = (0..count).map(|step| (paths.hash + step) % count);
        let parts = numbers.map(|number| (number, ipam::part(POD_RANGE, number)));
        let mut free = parts.filter(|(_, part)| !routes.iter().any(|route| overlap(*route, *part)));
        let claimed = free.find_map(|(number, part)| Some((number, part, claim(number)?)));
        let (number, part, claim) = claimed.ok_or(NetworkError::RangeTaken)?;
        let servers = (!allow_lan).then(resolver::servers);
        let rules = rules(&tag, number, part, servers.as_deref());
        launcher
            .command(program("nft", &["-f", "-"]), rules)
            .await?;
        Ok(Self {
            launcher: launcher.clone(),
            tag,
            part,
            number,
            _claim: claim,
        })
    }

    /// Name of the table of network policies.
    pub(super) fn policy_table(&self) -> String {
        policy_table(&self.tag, self.number)
    }

    pub(super) fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.part.network().to_bits() + 1)
    }

    /// Creates the namespace of the Pod with `address`.
    pub(super) async fn connect(&self, address: Ipv4Addr) -> io::Result<OwnedFd> {
        let offset = address.to_bits() - self.part.network().to_bits();
        let link = format!("{INTERFACES}{}{offset}", self.tag);
        let (gateway, host) = (self.gateway(), std::process::id());
        let within = format!(
            "link set lo up\n\
             link add eth0 type veth peer name {link} netns {host}\n\
             addr add {address}/32 dev eth0\n\
             link set eth0 up\n\
             route add {gateway} dev eth0 scope link\n\
             route add default via {gateway}\n"
        );
        let outside = format!(
            "addr add {gateway}/32 dev {link}\n\
             link set {link} up\n\
             route add {address}/32 dev {link} src {gateway}\n"
        );
        self.launcher
            .run(move |host| connect(host, &link, &within, &outside))
            .await
    }

    /// Removes the tables and, as the last node, forwarding. The next start removes what fails here.
    pub(super) async fn stop(&self) {
        let _lock = self.launcher.run(|_| ip_forward::lock()).await;
        let removed = remove_tables(&self.launcher, &self.tag).await;
        let restored = match tables(&self.launcher).await {
            Ok(left) if left.iter().any(|name| read_table(name).is_some()) => Ok(()),
            Ok(_) => ip_forward::restore(),
            Err(error) => Err(error),
        };
        for error in removed.err().into_iter().chain(restored.err()) {
            tracing::warn!(%error, "Pod network not removed completely");
        }
    }
}

/// Runs on the launcher thread.
fn connect(host: &HostNamespace, link: &str, within: &str, outside: &str) -> io::Result<OwnedFd> {
    // Link of an earlier Pod with this address whose namespace is still being removed.
    if Path::new("/sys/class/net").join(link).exists() {
        let _ = run_to_end(program("ip", &["link", "del", link]), "");
    }
    let namespace = new_network_namespace(host)?;
    inside(Some(&namespace), host, || {
        // As in container runtimes: the capability would have to be one of the host.
        std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")?;
        run_to_end(program("ip", &["-batch", "-"]), within)
    })?;
    run_to_end(program("ip", &["-batch", "-"]), outside)?;
    Ok(namespace)
}

/// Both are in `sbin`, which is not in the `PATH` of ordinary users.
pub(super) fn program(name: &str, arguments: &[&str]) -> Command {
    let candidates =
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|directory| Path::new(directory).join(name));
    let found = candidates.into_iter().find(|path| path.exists());
    let mut command = Command::new(found.unwrap_or_else(|| name.into()));
    command.args(arguments);
    command
}

async fn tables(launcher: &Launcher) -> io::Result<Vec<String>> {
    let output = launcher
        .command(program("nft", &["list", "tables", "inet"]), String::new())
        .await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .map(str::to_owned)
        .collect())
}

/// Claims part `number` among the nodes of this network namespace, for the life of this process.
fn claim(number: u32) -> Option<UnixListener> {
    let name = format!("sandbox-standalone-part-{number}");
    let address = SocketAddr::from_abstract_name(name).ok()?;
    UnixListener::bind_addr(&address).ok()
}

/// Removes the tables of this node and of killed nodes.
async fn remove_tables(launcher: &Launcher, tag: &str) -> io::Result<()> {
    for name in tables(launcher).await? {
        let Some((part, owner)) = read_table(&name) else {
            continue;
        };
        let dead = claim(part);
        if owner == tag || dead.is_some() {
            let delete = format!("delete table inet {name}\n");
            launcher
                .command(program("nft", &["-f", "-"]), delete)
                .await?;
        }
    }
    Ok(())
}

/// Route in the output of `ip -json`.
#[derive(Debug, Deserialize)]
struct Route {
    dst: String,
    #[serde(default)]
    dev: String,
}

/// Ranges that this host routes elsewhere, except links of nodes.
async fn foreign_routes(launcher: &Launcher, tag: &str) -> io::Result<Vec<Ipv4Net>> {
    let arguments = ["-json", "-4", "route", "show", "table", "all"];
    let output = launcher
        .command(program("ip", &arguments), String::new())
        .await?;
    let routes: Vec<Route> = serde_json::from_slice(&output.stdout)?;
    let own = format!("{INTERFACES}{tag}");
    let foreign = routes.iter().filter(|route| !route.dev.starts_with(&own));
    let destinations = foreign.filter_map(|route| destination(&route.dst));
    Ok(destinations.collect())
}

/// Parses the destination of a route; `None` for default routes.
fn destination(text: &str) -> Option<Ipv4Net> {
    let network = match text.split_once('/') {
        Some(_) => text.parse().ok(),
        None => text.parse::<Ipv4Addr>().ok().map(Ipv4Net::from),
    };
    network.filter(|network: &Ipv4Net| network.prefix_len() >= 9)
}

fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other) || other.contains(&one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_into_the_pod_range_are_found() {
        for (route, expected) in [
            ("10.231.0.0/16", Some(true)),
            ("10.231.4.9", Some(true)),
            ("10.128.0.0/9", Some(true)),
            ("10.232.0.0/16", Some(false)),
            ("default", None),
            ("0.0.0.0/0", None),
        ] {
            let found = destination(route).map(|route| overlap(route, POD_RANGE));
            assert_eq!(found, expected, "{route}");
        }
    }
}
