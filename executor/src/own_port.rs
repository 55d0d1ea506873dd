//! Connections to servers in the same network namespace.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpSocket, TcpStream};

/// Connects to a server that may not listen yet. The port may be one of those that the kernel gives
/// to connections: such an attempt connects to itself, and a server could not listen then.
pub(crate) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    connect_with(socket?, address).await
}

async fn connect_with(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpStream> {
    // The server can listen although the port is in use.
    socket.set_reuseaddr(true)?;
    let stream = socket.connect(address).await?;
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connection_to_itself_is_refused_and_leaves_the_port_to_a_server() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let error = connect_with(socket, address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let _server = TcpListener::bind(address).await.unwrap();
        connect(address).await.unwrap();
    }
}
