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

use serde::Deserialize;

use super::super::launcher::{HostNamespace, Launcher, inside, new_network_namespace, run_to_end};
use super::super::paths::Paths;
use super::firewall::{INTERFACES, read_table, rules, table};
use super::ipam::{Cidr, spread};
use super::{Lan, NetworkError, ip_forward, resolver};

/// Prefix of a node's part of the range: 1021 Pods.
const PART: u8 = 22;

/// Firewall table and address part of the node.
#[derive(Debug)]
pub(super) struct Namespaces {
    launcher: Launcher,
    tag: String,
    part: Cidr,
    /// Holds the claim on the part.
    _claim: UnixListener,
}

impl Namespaces {
    /// Claims a part of `range` and installs firewall and forwarding.
    pub(super) async fn start(
        range: Cidr,
        lan: Lan,
        paths: &Paths,
        launcher: &Launcher,
    ) -> Result<Self, NetworkError> {
        let tag = paths.tag.clone();
        let _lock = launcher.run(|_| ip_forward::lock()).await?;
        remove_tables(launcher, &tag).await?;
        ip_forward::enable()?;
        let routes = foreign_routes(launcher, &tag).await?;
        let free = |part: Cidr| !routes.iter().any(|route| route.overlaps(part));
        let (parts, first) = (range.parts(PART), spread(&tag));
        let numbers = (0..parts).map(|step| (first + step) % parts);
        let mut free = numbers.filter(|number| free(range.part(*number, PART)));
        let claimed = free.find_map(|number| Some((number, claim(number)?)));
        let (number, claim) = claimed.ok_or(NetworkError::RangeTaken(range))?;
        let part = range.part(number, PART);
        let servers = match lan {
            Lan::Open => None,
            Lan::Closed => Some(resolver::servers()),
        };
        let rules = rules(&tag, number, part, servers.as_deref());
        launcher.command(nft(&["-f", "-"]), rules).await?;
        Ok(Self {
            launcher: launcher.clone(),
            tag,
            part,
            _claim: claim,
        })
    }

    pub(super) fn part(&self) -> Cidr {
        self.part
    }

    pub(super) fn gateway(&self) -> Ipv4Addr {
        self.part.address(1)
    }

    /// Creates the namespace of the Pod with `address`.
    pub(super) async fn connect(&self, address: Ipv4Addr) -> io::Result<OwnedFd> {
        let offset = address.to_bits() - self.part.address(0).to_bits();
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

    /// Removes the table and, as the last node, forwarding. The next start removes what fails here.
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
        let _ = run_to_end(ip(&["link", "del", link]), "");
    }
    let namespace = new_network_namespace(host)?;
    inside(Some(&namespace), host, || {
        // As in container runtimes: the capability would have to be one of the host.
        std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")?;
        run_to_end(ip(&["-batch", "-"]), within)
    })?;
    run_to_end(ip(&["-batch", "-"]), outside)?;
    Ok(namespace)
}

fn ip(arguments: &[&str]) -> Command {
    program("ip", arguments)
}

fn nft(arguments: &[&str]) -> Command {
    program("nft", arguments)
}

/// Both are in `sbin`, which is not in the `PATH` of ordinary users.
fn program(name: &str, arguments: &[&str]) -> Command {
    let candidates =
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|directory| Path::new(directory).join(name));
    let found = candidates.into_iter().find(|path| path.exists());
    let mut command = Command::new(found.unwrap_or_else(|| name.into()));
    command.args(arguments);
    command
}

async fn tables(launcher: &Launcher) -> io::Result<Vec<String>> {
    let output = launcher
        .command(nft(&["list", "tables", "inet"]), String::new())
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
            let delete = format!("delete table inet {}\n", table(owner, part));
            launcher.command(nft(&["-f", "-"]), delete).await?;
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
async fn foreign_routes(launcher: &Launcher, tag: &str) -> io::Result<Vec<Cidr>> {
    let arguments = ["-json", "-4", "route", "show", "table", "all"];
    let output = launcher.command(ip(&arguments), String::new()).await?;
    let routes: Vec<Route> = serde_json::from_slice(&output.stdout)?;
    let own = format!("{INTERFACES}{tag}");
    let foreign = routes.iter().filter(|route| !route.dev.starts_with(&own));
    Ok(foreign
        .filter_map(|route| destination(&route.dst))
        .collect())
}

/// Parses the destination of a route; `None` for default routes.
fn destination(text: &str) -> Option<Cidr> {
    let (address, prefix) = text.split_once('/').unwrap_or((text, "32"));
    let prefix: u8 = prefix
        .parse()
        .ok()
        .filter(|prefix| (9..=32).contains(prefix))?;
    Some(Cidr::new(address.parse().ok()?, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_parses_routes() {
        assert_eq!(destination("10.231.0.0/16"), Some(Cidr::DEFAULT));
        assert!(destination("10.231.4.9").unwrap().overlaps(Cidr::DEFAULT));
        assert_eq!(destination("default"), None);
        assert_eq!(destination("0.0.0.0/0"), None);
    }
}
