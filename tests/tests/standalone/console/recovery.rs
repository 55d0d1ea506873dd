//! The list while the way to the gateway is cut, and after it: by itself it becomes what is true.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tests::page::Page;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::list::{KEY, ListFixture};
use super::log_in;

/// The way between the page and a gateway.
pub(super) struct Cable {
    pub(super) base: String,
    /// Address of the gateway; none while the cable is cut.
    end: watch::Sender<Option<SocketAddr>>,
}

impl Cable {
    pub(super) async fn to(gateway: &ListFixture) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (end, seen) = watch::channel(Some(gateway.address));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, seen.clone()));
            }
        });
        Self { base, end }
    }

    /// Breaks all connections, and those that begin from now on.
    pub(super) fn cut(&self) {
        self.end.send_replace(None);
    }

    pub(super) fn lead_to(&self, gateway: &ListFixture) {
        self.end.send_replace(Some(gateway.address));
    }
}

async fn carry(mut client: TcpStream, mut end: watch::Receiver<Option<SocketAddr>>) {
    let Some(gateway) = *end.borrow_and_update() else {
        return;
    };
    let mut server = TcpStream::connect(gateway).await.unwrap();
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = end.changed() => {}
    }
}

/// Waits until the page says that it is current and shows these sandboxes with these states.
async fn shows(page: &Page, rows: &[(&str, &str)]) {
    let shown = "JSON.stringify([...document.querySelectorAll('.list tbody tr')].map(row => \
        [row.querySelector('a.session').innerText, \
         row.querySelector('span.status').classList[1]]).sort())";
    let expected = Value::from(json!(rows).to_string());
    page.until(&format!("{shown} === {expected}")).await;
    page.until("document.querySelector('.connection').innerText === 'live'")
        .await;
    let warning = "document.body.innerText.includes('The list is not current')";
    assert_eq!(page.run(warning).await, false);
}

async fn is_cut(page: &Page) {
    page.until_text("The list is not current. The gateway cannot be reached.")
        .await;
    page.until("document.querySelector('.connection').innerText === 'not current'")
        .await;
}

#[tokio::test]
async fn list_becomes_current_when_its_connection_broke_or_the_gateway_started_anew() {
    let starting = json!({"phase": "Starting", "reason": "CreatingPod"});
    let failed = json!({"phase": "Failed", "message": "no space left"});
    let fixture = ListFixture::new().await;
    for session in ["fails", "goes", "stays"] {
        fixture.deliver(session, &starting);
    }
    let page = Page::open().await;
    let cable = Cable::to(&fixture).await;
    log_in(&page, &cable.base, KEY).await;
    let all = [("fails", "starting"), ("goes", "starting")];
    shows(&page, &[&all[..], &[("stays", "starting")]].concat()).await;

    // The gateway goes on without the page, and tells it afterwards what has changed.
    cable.cut();
    is_cut(&page).await;
    fixture.deliver("comes", &starting);
    fixture.deliver("fails", &failed);
    fixture.deliver_deletion("goes");
    cable.lead_to(&fixture);
    let all = [("comes", "starting"), ("fails", "error")];
    shows(&page, &[&all[..], &[("stays", "starting")]].concat()).await;

    // A gateway that has just started knows nothing of the events before.
    let restarted = ListFixture::new().await;
    cable.cut();
    is_cut(&page).await;
    restarted.deliver("stays", &failed);
    restarted.deliver("later", &starting);
    cable.lead_to(&restarted);
    shows(&page, &[("later", "starting"), ("stays", "error")]).await;
    // And its events follow.
    restarted.deliver("later", &failed);
    shows(&page, &[("later", "error"), ("stays", "error")]).await;
    page.assert_clean(&[&cable.base]).await;
}
