//! One network namespace and one point-to-point link per Pod.
//!
//! Nothing here has a name in the file system: a namespace is a descriptor that this process
//! holds, the link dies with the namespace, the route with the link. So a killed node leaves only
//! its firewall table, which the next start replaces.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::super::launcher::{Home, Launcher, inside, new_network_namespace, run_to_end};
use super::super::paths::Paths;
use super::address::{Cidr, spread};
use super::firewall::{INTERFACES, read_table, rules, table};
use super::{NetworkError, forwarding};

/// Each node takes this much of the range: 1021 Pods.
const PART: u8 = 22;

/// The node's firewall table and part of the range.
#[derive(Debug)]
pub(super) struct Namespaces {
    launcher: Launcher,
    tag: String,
    part: Cidr,
    /// Holds the claim on the part.
    _claim: UnixListener,
}

impl Namespaces {
    /// Claims a part of `range`, and installs firewall and forwarding.
    pub(super) async fn start(
        range: Cidr,
        paths: &Paths,
        launcher: &Launcher,
    ) -> Result<Self, NetworkError> {
        let tag = paths.tag.clone();
        let _alone = launcher.run(|_| forwarding::lock()).await?;
        remove_tables(launcher, &tag).await?;
        forwarding::enable()?;
        let routes = foreign_routes(launcher, &tag).await?;
        let free = |part: Cidr| !routes.iter().any(|route| route.overlaps(part));
        let (parts, first) = (range.parts(PART), spread(&tag));
        let numbers = (0..parts).map(|step| (first + step) % parts);
        let mut free = numbers.filter(|number| free(range.part(*number, PART)));
        let claimed = free.find_map(|number| Some((number, claim(number)?)));
        let (number, claim) = claimed.ok_or(NetworkError::RangeTaken(range))?;
        let part = range.part(number, PART);
        let rules = rules(&tag, number, part);
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

    /// Makes the namespace of the Pod with `address`.
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
            .run(move |home| connect(home, &link, &within, &outside))
            .await
    }

    /// Removes the table and, as the last node, forwarding. Failures are logged: whatever is
    /// left the next start removes.
    pub(super) async fn stop(&self) {
        let _alone = self.launcher.run(|_| forwarding::lock()).await;
        let removed = remove_tables(&self.launcher, &self.tag).await;
        let restored = match tables(&self.launcher).await {
            Ok(left) if left.iter().any(|name| read_table(name).is_some()) => Ok(()),
            Ok(_) => forwarding::restore(),
            Err(error) => Err(error),
        };
        for error in removed.err().into_iter().chain(restored.err()) {
            tracing::warn!(%error, "Pod network not removed completely");
        }
    }
}

/// Runs on the launcher thread.
fn connect(home: &Home, link: &str, within: &str, outside: &str) -> io::Result<OwnedFd> {
    // The end of a Pod that had the address before and whose namespace is not quite gone.
    if Path::new("/sys/class/net").join(link).exists() {
        let _ = run_to_end(ip(&["link", "del", link]), "");
    }
    let namespace = new_network_namespace(home)?;
    inside(Some(&namespace), home, || {
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

/// Both live in `sbin`, which the `PATH` of ordinary users lacks.
fn program(name: &str, arguments: &[&str]) -> Command {
    let places =
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|place| Path::new(place).join(name));
    let found = places.into_iter().find(|path| path.exists());
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

/// Claims part `number` among all nodes of this network namespace. The claim ends with the
/// process, however that ends.
fn claim(number: u32) -> Option<UnixListener> {
    let name = format!("sandbox-standalone-part-{number}");
    let address = SocketAddr::from_abstract_name(name).ok()?;
    UnixListener::bind_addr(&address).ok()
}

/// Removes the tables of this node and of those that were killed.
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

/// A route as `ip -json` prints it.
#[derive(Debug, Deserialize)]
struct Route {
    dst: String,
    #[serde(default)]
    dev: String,
}

/// Ranges that this host routes elsewhere. Links of nodes, ours and others', do not count.
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

/// Default routes and the like claim nothing.
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
    fn destinations_of_routes_are_read() {
        assert_eq!(destination("10.231.0.0/16"), Some(Cidr::DEFAULT));
        assert!(destination("10.231.4.9").unwrap().overlaps(Cidr::DEFAULT));
        assert_eq!(destination("default"), None);
        assert_eq!(destination("0.0.0.0/0"), None);
    }
}
