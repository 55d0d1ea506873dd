//! The reference: nginx with one worker per core, upstream keepalive, and no buffering, like the
//! gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command};

use tokio::net::TcpStream;
use tokio::time::{Duration, sleep};

/// One per core of the machine of the published figures.
const WORKERS: usize = 2;

/// A running nginx.
pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    /// The same with connections spread evenly: one worker cannot open enough for all tunnels.
    pub(crate) even: SocketAddr,
    master: Child,
    folder: PathBuf,
}

impl Nginx {
    /// Process ids of the workers.
    pub(crate) fn workers(&self) -> anyhow::Result<Vec<u32>> {
        let master = self.master.id();
        let path = format!("/proc/{master}/task/{master}/children");
        let children = std::fs::read_to_string(path)?;
        let workers = children.split_whitespace().map(str::parse);
        Ok(workers.collect::<Result<_, _>>()?)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master stops its workers on SIGTERM.
        let id = self.master.id().to_string();
        let _ = Command::new("kill").arg(id).status();
        let _ = self.master.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Starts nginx in front of `server`; `None` if it is not installed.
pub(crate) async fn start(server: SocketAddr) -> anyhow::Result<Option<Nginx>> {
    let Some(program) = ["/usr/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
    else {
        return Ok(None);
    };
    let folder = std::env::temp_dir().join(format!("bench-proxy-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (address, even) = (super::free_address()?, super::free_address()?);
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config(address, even, server))?;
    let master = Command::new(program)
        .arg("-p")
        .arg(&folder)
        .arg("-c")
        .arg(&file)
        .args(["-e", "stderr"])
        .spawn()?;
    let running = Nginx {
        address,
        even,
        master,
        folder,
    };
    for _ in 0..100 {
        // It listens before its workers have started.
        let begun = running.workers()?.len() == WORKERS;
        if begun && TcpStream::connect(address).await.is_ok() {
            return Ok(Some(running));
        }
        sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("nginx does not listen")
}

fn config(address: SocketAddr, even: SocketAddr, server: SocketAddr) -> String {
    format!(
        "daemon off;
pid nginx.pid;
worker_processes {WORKERS};
error_log stderr crit;
events {{ worker_connections 32768; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path f;
  uwsgi_temp_path u;
  scgi_temp_path s;
  upstream server {{ server {server}; keepalive 256; keepalive_requests 1000000000; }}
  map $http_upgrade $upstream_connection_header {{ default upgrade; '' ''; }}
  server {{
    listen {address} backlog=4096;
    listen {even} backlog=4096 reuseport;
    client_max_body_size 0;
    location / {{
      proxy_pass http://server;
      proxy_http_version 1.1;
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $upstream_connection_header;
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 1h;
    }}
  }}
}}
"
    )
}
