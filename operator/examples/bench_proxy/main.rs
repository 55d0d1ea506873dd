//! What the proxy costs: the same load straight to a server, through the gateway, and through nginx
//! where it is installed, in one run, because only the comparison means anything on a shared machine.
//!
//! `cargo run --release -p operator --example bench_proxy [seconds]`. Gateway and nginx are processes of
//! their own.

mod gateway;
mod load;
mod nginx;
mod processes;
mod server;
mod tunnels;

use std::net::SocketAddr;
use std::time::Duration;

use load::Way;
use processes::{Pinned, Running};

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
    for connections in [10, 50, 200] {
        posts(&ways, connections, limit).await?;
    }
    for connections in [1, 50] {
        println!("WebSocket echo of 64 bytes, {connections} connections");
        load::compare(&ways, |way| load::echoes(way, connections, limit)).await?;
    }
    for way in &ways {
        let (down, up) = (load::download(way).await?, load::upload(way).await?);
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
    posts(&ways, 50, limit).await?;
    println!("POST of 4 KiB, answer of 1 KiB, 16 connections, 1 000 requests/s");
    load::compare(&ways, |way| load::paced_posts(way, 16, 1_000, limit)).await?;
    lone(&ways, Some(server.id()), limit).await?;
    // As many processes as nginx has workers.
    let second = Running::start(&[gateway::ROLE, &server.address.port().to_string()])?;
    let second = Way::new("gateway", second.address, &second.host, vec![second.id()]);
    tunnels::report(&[ways[1].clone(), second]).await?;
    if let Some(nginx) = &setting.nginx {
        tunnels::report(&[Way::new("nginx", nginx.even, "x", nginx.workers()?)]).await?;
    }
    Ok(())
}

async fn posts(ways: &[Way], connections: usize, limit: Duration) -> anyhow::Result<()> {
    println!("POST of 4 KiB, answer of 1 KiB, {connections} connections");
    load::compare(ways, |way| load::posts(way, connections, limit)).await
}

/// One request at a time: as it comes, and on one core, which leaves out what waking another one costs.
async fn lone(ways: &[Way], server: Option<u32>, limit: Duration) -> anyhow::Result<()> {
    posts(ways, 1, limit).await?;
    let all = ways.iter().flat_map(|way| way.processes.iter().copied());
    let all = all.chain(server).chain([std::process::id()]);
    let _pinned = Pinned::on_one_core(all.collect())?;
    println!("POST of 4 KiB, answer of 1 KiB, 1 connection, all on one core");
    load::compare(ways, |way| load::posts(way, 1, limit)).await
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
        let gateway = &self.gateway;
        let (address, host) = (gateway.address, &gateway.host);
        let mut ways = vec![
            Way::new("direct", self.server, "x", Vec::new()),
            Way::new("gateway", address, host, vec![gateway.id()]),
        ];
        if let Some(nginx) = &self.nginx {
            ways.push(Way::new("nginx", nginx.address, "x", nginx.workers()?));
        }
        Ok(ways)
    }
}

/// An address of this machine that is free at the moment.
fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}
