//! Cost of the proxy: the same load directly to a server, through the gateway, and through nginx
//! where it is installed. All in one run, because only the comparison is meaningful on a shared
//! machine.
//!
//! `cargo run --release -p operator --example bench_proxy [seconds]`. Gateway and nginx are
//! separate processes, and in the second half the server is one too.

mod compare;
mod gateway;
mod large;
mod load;
mod nginx;
mod processes;
mod server;
mod target;
mod tunnels;

use std::net::SocketAddr;
use std::time::Duration;

use compare::compare;
use load::Request::{self, Get, Post};
use processes::{ChildProcess, Pinned};
use target::Target;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let first = std::env::args().nth(1);
    match first.as_deref() {
        Some(gateway::ROLE) => return gateway::run().await,
        Some(server::ROLE) => return server::run().await,
        _ => {}
    }
    let limit = Duration::from_secs(first.map_or(Ok(5), |text| text.parse())?);
    tunnels::raise_limit()?;
    measure(server::serve().await?, limit).await?;
    println!("The same with the server in a process of its own");
    measure_apart(limit).await
}

/// Load and server in one process, the target in which other routers were measured.
async fn measure(server: SocketAddr, limit: Duration) -> anyhow::Result<()> {
    let setup = Setup::start(server).await?;
    let targets = setup.targets()?;
    for request in [Get, Post] {
        for connections in [10, 50, 200] {
            requests(&targets, request, connections, limit).await?;
        }
    }
    for connections in [1, 50] {
        println!("WebSocket echo of 64 bytes, {connections} connections");
        compare(&targets, |target| load::echoes(target, connections, limit)).await?;
    }
    for target in &targets {
        let (down, up) = (large::download(target).await?, large::upload(target).await?);
        println!(
            "1 GiB  {:<8} down {down:>6.0} MB/s   up {up:>6.0} MB/s",
            target.name
        );
    }
    single_request_latency(&targets, None, limit).await
}

/// Separate processes, as in production: added latency of a single request, and tunnels, whose ends
/// do not fit into one process.
async fn measure_apart(limit: Duration) -> anyhow::Result<()> {
    let server = ChildProcess::start(&[server::ROLE])?;
    let setup = Setup::start(server.address).await?;
    let targets = setup.targets()?;
    for request in [Get, Post] {
        requests(&targets, request, 50, limit).await?;
    }
    println!("{}, 16 connections, 1 000 requests/s", Post.title());
    let paced = |target| load::requests(target, Post, 16, Some(1_000), limit);
    compare(&targets, paced).await?;
    single_request_latency(&targets, Some(server.id()), limit).await?;
    // As many processes as nginx has workers.
    let port = server.address.port().to_string();
    let second = ChildProcess::start(&[gateway::ROLE, &port])?;
    tunnels::report(&[gateway_target(&setup.gateway), gateway_target(&second)]).await?;
    if let Some(nginx) = &setup.nginx {
        tunnels::report(&[Target::new("nginx", nginx.even, "x", nginx.workers()?)]).await?;
    }
    Ok(())
}

async fn requests(
    targets: &[Target],
    request: Request,
    connections: u32,
    limit: Duration,
) -> anyhow::Result<()> {
    println!("{}, {connections} connections", request.title());
    let measure = |target| load::requests(target, request, connections, None, limit);
    compare(targets, measure).await
}

/// One request at a time, on all cores and on one, which leaves out the cost of waking a core.
async fn single_request_latency(
    targets: &[Target],
    server: Option<u32>,
    limit: Duration,
) -> anyhow::Result<()> {
    requests(targets, Post, 1, limit).await?;
    let all = targets
        .iter()
        .flat_map(|target| target.processes.iter().copied());
    let all = all.chain(server).chain([std::process::id()]);
    let _pinned = Pinned::on_one_core(all.collect())?;
    println!("All on one core:");
    requests(targets, Post, 1, limit).await
}

/// The proxies in front of a server.
struct Setup {
    server: SocketAddr,
    gateway: ChildProcess,
    nginx: Option<nginx::Nginx>,
}

impl Setup {
    async fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let nginx = nginx::start(server).await?;
        if nginx.is_none() {
            println!("nginx is not installed: no reference");
        }
        Ok(Self {
            server,
            gateway: ChildProcess::start(&[gateway::ROLE, &server.port().to_string()])?,
            nginx,
        })
    }

    fn targets(&self) -> anyhow::Result<Vec<Target>> {
        let direct = Target::new("direct", self.server, "x", Vec::new());
        let mut targets = vec![direct, gateway_target(&self.gateway)];
        if let Some(nginx) = &self.nginx {
            targets.push(Target::new("nginx", nginx.address, "x", nginx.workers()?));
        }
        Ok(targets)
    }
}

fn gateway_target(gateway: &ChildProcess) -> Target {
    let (address, host) = (gateway.address, &gateway.host);
    Target::new("gateway", address, host, vec![gateway.id()])
}

/// A free loopback address.
fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}
