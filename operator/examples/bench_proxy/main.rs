//! What the proxy costs: the same load straight to a server, through the gateway, and through nginx
//! where it is installed, in one run, because only the comparison means anything on a shared machine.
//!
//! `cargo run --release -p operator --example bench_proxy [seconds]`. Gateway and nginx are processes of
//! their own, and in the second half the server is one, too.

mod compare;
mod gateway;
mod large;
mod load;
mod nginx;
mod processes;
mod server;
mod tunnels;
mod way;

use std::net::SocketAddr;
use std::time::Duration;

use compare::compare;
use load::Request::{self, Get, Post};
use processes::{Pinned, Running};
use way::Way;

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

/// Load and server in one process: the way in which other routers were measured.
async fn measure(server: SocketAddr, limit: Duration) -> anyhow::Result<()> {
    let setting = Setting::start(server).await?;
    let ways = setting.ways()?;
    for request in [Get, Post] {
        for connections in [10, 50, 200] {
            requests(&ways, request, connections, limit).await?;
        }
    }
    for connections in [1, 50] {
        println!("WebSocket echo of 64 bytes, {connections} connections");
        compare(&ways, |way| load::echoes(way, connections, limit)).await?;
    }
    for way in &ways {
        let (down, up) = (large::download(way).await?, large::upload(way).await?);
        println!(
            "1 GiB  {:<8} down {down:>6.0} MB/s   up {up:>6.0} MB/s",
            way.name
        );
    }
    lone(&ways, None, limit).await
}

/// Each a process of its own, as in production: what one request alone waits longer, and tunnels, of
/// which one process may not hold all ends.
async fn measure_apart(limit: Duration) -> anyhow::Result<()> {
    let server = Running::start(&[server::ROLE])?;
    let setting = Setting::start(server.address).await?;
    let ways = setting.ways()?;
    for request in [Get, Post] {
        requests(&ways, request, 50, limit).await?;
    }
    println!("{}, 16 connections, 1 000 requests/s", Post.title());
    let paced = |way| load::paced_requests(way, Post, 16, 1_000, limit);
    compare(&ways, paced).await?;
    lone(&ways, Some(server.id()), limit).await?;
    // As many processes as nginx has workers.
    let port = server.address.port().to_string();
    let second = Running::start(&[gateway::ROLE, &port])?;
    tunnels::report(&[way_of(&setting.gateway), way_of(&second)]).await?;
    if let Some(nginx) = &setting.nginx {
        tunnels::report(&[Way::new("nginx", nginx.even, "x", nginx.workers()?)]).await?;
    }
    Ok(())
}

async fn requests(
    ways: &[Way],
    request: Request,
    connections: u32,
    limit: Duration,
) -> anyhow::Result<()> {
    println!("{}, {connections} connections", request.title());
    let measure = |way| load::requests(way, request, connections, limit);
    compare(ways, measure).await
}

/// One request at a time: as it comes, and on one core, which leaves out what waking another one costs.
async fn lone(ways: &[Way], server: Option<u32>, limit: Duration) -> anyhow::Result<()> {
    requests(ways, Post, 1, limit).await?;
    let all = ways.iter().flat_map(|way| way.processes.iter().copied());
    let all = all.chain(server).chain([std::process::id()]);
    let _pinned = Pinned::on_one_core(all.collect())?;
    println!("All on one core:");
    requests(ways, Post, 1, limit).await
}

/// What stands before a server.
struct Setting {
    server: SocketAddr,
    gateway: Running,
    nginx: Option<nginx::Running>,
}

impl Setting {
    async fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let nginx = nginx::start(server).await?;
        if nginx.is_none() {
            println!("nginx is not installed: no reference");
        }
        Ok(Self {
            server,
            gateway: Running::start(&[gateway::ROLE, &server.port().to_string()])?,
            nginx,
        })
    }

    fn ways(&self) -> anyhow::Result<Vec<Way>> {
        let direct = Way::new("direct", self.server, "x", Vec::new());
        let mut ways = vec![direct, way_of(&self.gateway)];
        if let Some(nginx) = &self.nginx {
            ways.push(Way::new("nginx", nginx.address, "x", nginx.workers()?));
        }
        Ok(ways)
    }
}

fn way_of(gateway: &Running) -> Way {
    let (address, host) = (gateway.address, &gateway.host);
    Way::new("gateway", address, host, vec![gateway.id()])
}

/// An address of this machine that is free at the moment.
fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}
