//! What the proxy costs: the same load straight to a server, through the gateway, and through nginx
//! where it is installed, in one run, because only the comparison means anything on a shared machine.
//!
//! `cargo run --release -p operator --example bench_proxy [seconds]`. Gateway and nginx are processes
//! of their own; the load and the server share this one.

mod gateway;
mod load;
mod nginx;
mod server;
mod tunnels;

use std::net::SocketAddr;
use std::time::Duration;

use load::Way;

const CONNECTIONS: [usize; 4] = [1, 10, 50, 200];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let first = std::env::args().nth(1);
    if first.as_deref() == Some(gateway::ROLE) {
        return gateway::run().await;
    }
    let seconds = first.map_or(Ok(5), |text| text.parse())?;
    tunnels::raise_limit()?;
    let server = server::serve().await?;
    let gateway = gateway::start(server)?;
    let nginx = nginx::start(server).await?;
    let mut ways = vec![
        Way::new("direct", server, "x", Vec::new()),
        Way::new(
            "gateway",
            gateway.address,
            &gateway.host,
            vec![gateway.child.id()],
        ),
    ];
    match &nginx {
        Some(nginx) => ways.push(Way::new("nginx", nginx.address, "x", nginx.workers()?)),
        None => println!("nginx is not installed: no reference"),
    }
    measure(&ways, Duration::from_secs(seconds)).await
}

async fn measure(ways: &[Way], limit: Duration) -> anyhow::Result<()> {
    for connections in CONNECTIONS {
        println!("POST of 4 KiB, answer of 1 KiB, {connections} connections");
        load::compare(ways, |way| load::posts(way, connections, limit)).await?;
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
    for way in ways {
        tunnels::report(way).await?;
    }
    Ok(())
}

/// An address of this machine that is free at the moment.
fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}
