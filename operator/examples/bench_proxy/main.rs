//! What the proxy costs: the same load straight to a server, through the gateway, and through nginx
//! where it is installed, in one run, because only the comparison means anything on a shared machine.
//!
//! `cargo run --release -p operator --example bench_proxy [seconds]`. The load, the server, gateway and
//! nginx are processes of their own.

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

const CONNECTIONS: [usize; 4] = [1, 10, 50, 200];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let first = std::env::args().nth(1);
    match first.as_deref() {
        Some(gateway::ROLE) => return gateway::run().await,
        Some(server::ROLE) => return server::run().await,
        _ => {}
    }
    let seconds = first.map_or(Ok(5), |text| text.parse())?;
    tunnels::raise_limit()?;
    let server = Running::start(&[server::ROLE])?;
    let port = server.address.port().to_string();
    let gateway = Running::start(&[gateway::ROLE, &port])?;
    let nginx = nginx::start(server.address).await?;
    let mut ways = vec![
        Way::new("direct", server.address, &server.host, Vec::new()),
        Way::new(
            "gateway",
            gateway.address,
            &gateway.host,
            vec![gateway.id()],
        ),
    ];
    match &nginx {
        Some(nginx) => ways.push(Way::new("nginx", nginx.address, "x", nginx.workers()?)),
        None => println!("nginx is not installed: no reference"),
    }
    measure(&ways, server.id(), Duration::from_secs(seconds)).await?;
    // Beside nginx with its two workers there are two replicas: a process may not open enough for both
    // ends of all tunnels.
    let second = Running::start(&[gateway::ROLE, &port])?;
    let second = Way::new("gateway", second.address, &second.host, vec![second.id()]);
    tunnels::report(&[ways.remove(1), second]).await?;
    if let Some(nginx) = &nginx {
        tunnels::report(&[Way::new("nginx", nginx.even, "x", nginx.workers()?)]).await?;
    }
    Ok(())
}

async fn measure(ways: &[Way], server: u32, limit: Duration) -> anyhow::Result<()> {
    for connections in CONNECTIONS {
        println!("POST of 4 KiB, answer of 1 KiB, {connections} connections");
        load::compare(ways, |way| load::posts(way, connections, limit)).await?;
    }
    println!("POST of 4 KiB, answer of 1 KiB, 16 connections, 1 000 requests/s");
    load::compare(ways, |way| load::paced_posts(way, 16, 1_000, limit)).await?;
    {
        // What passing a request on costs, without what waking another core costs.
        let all = ways.iter().flat_map(|way| way.processes.iter().copied());
        let _pinned = Pinned::on_one_core(all.chain([server, std::process::id()]).collect())?;
        println!("POST of 4 KiB, answer of 1 KiB, 1 connection, all on one core");
        load::compare(ways, |way| load::posts(way, 1, limit)).await?;
    }
    for connections in [1, 50] {
        println!("WebSocket echo of 64 bytes, {connections} connections");
        load::compare(ways, |way| load::echoes(way, connections, limit)).await?;
    }
    for way in ways {
        let (down, up) = (load::download(way).await?, load::upload(way).await?);
        println!(
            "1 GiB  {:<8} down {down:>6.0} MB/s   up {up:>6.0} MB/s",
            way.name
        );
    }
    Ok(())
}

/// An address of this machine that is free at the moment.
fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}
