//! The list of hundreds of sandboxes, which follows the events of a gateway whose index the test fills.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crds::Sandbox;
use operator::gateway::{self, ApiSettings, Gateway, GatewayConfig, Tenants};
use operator::index::{Index, Key};
use operator::keys::Keys;
use serde_json::{Value, json};
use testing::FakeApi;
use tests::page::Page;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{HOSTILE, assert_unharmed, log_in};

const SANDBOXES: usize = 500;
const NAMESPACE: &str = "default";
pub(super) const KEY: &str = "key-of-default";
const ROWS: &str = "document.querySelectorAll('.list tbody tr').length";

/// A gateway on a loopback address.
pub(super) struct ListFixture {
    api: FakeApi,
    index: Arc<Index>,
    keys: Arc<Keys>,
    pub(super) address: SocketAddr,
    base: String,
    _served: DropGuard,
}

impl ListFixture {
    pub(super) async fn new() -> Self {
        let api = FakeApi::default();
        let keys = Arc::new(Keys::derive(&[7; 32]).unwrap());
        let index = Arc::new(Index::new(keys.clone()));
        index.retain(&HashSet::new());
        let config = GatewayConfig {
            settings: ApiSettings {
                console: Some(true),
                ..ApiSettings::default()
            },
            drain_delay: Duration::ZERO,
            drain_limit: Duration::ZERO,
            ..GatewayConfig::default()
        };
        let (of, known) = (keys.clone(), index.clone());
        let tenants = Tenants::fixed([("default", KEY)]);
        let gateway = Gateway::new(&api.client(), config, of, known, tenants);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(any).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        tokio::spawn(gateway::run(gateway, listener, shutdown.clone()));
        Self {
            api,
            index,
            keys,
            address,
            base: format!("http://{address}"),
            _served: shutdown.drop_guard(),
        }
    }

    fn name(&self, session: &str) -> String {
        self.keys
            .session_runtime_id(NAMESPACE, "default", session, 0)
    }

    /// Stores a sandbox with this status, and delivers it as the watch does.
    pub(super) fn deliver(&self, session: &str, status: &Value) {
        let name = self.name(session);
        let object = json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
            "metadata": {"namespace": NAMESPACE, "name": name},
            "spec": {"image": "debian:12", "session": {"tenant": "default", "id": session}},
            "status": status,
        });
        let path = format!("/apis/openhands.dev/v1alpha1/namespaces/{NAMESPACE}/sandboxes/{name}");
        let stored: Sandbox = serde_json::from_value(self.api.put(&path, object)).unwrap();
        self.index.deliver(&stored);
    }

    pub(super) fn deliver_deletion(&self, session: &str) {
        let key = Key {
            namespace: NAMESPACE.into(),
            name: self.name(session),
        };
        let uid = self.index.get(&key).unwrap().uid.clone();
        self.index.deliver_deletion(&key, &uid, None);
    }
}

#[tokio::test]
async fn list_of_hundreds_follows_changes_and_keys_move_in_it() {
    let fixture = ListFixture::new().await;
    let pulling = json!({"phase": "Starting", "reason": "CreatingPod", "message": HOSTILE});
    for number in 0..SANDBOXES {
        fixture.deliver(&format!("run-{number:03}"), &pulling);
    }
    let page = Page::open().await;
    log_in(&page, &fixture.base, KEY).await;
    page.until(&format!("{ROWS} === {SANDBOXES}")).await;
    page.until_text("live").await;
    page.until_text(HOSTILE).await;

    // A change replaces the text of one row and keeps the elements of all.
    page.run("document.querySelectorAll('.list tbody tr').forEach(row => { row.kept = true; })")
        .await;
    fixture.deliver(
        "run-007",
        &json!({"phase": "Failed", "message": "no space left"}),
    );
    page.until_text("no space left").await;
    let kept = "[...document.querySelectorAll('.list tbody tr')].every(row => row.kept)";
    assert_eq!(page.run(kept).await, true);
    fixture.deliver("another", &pulling);
    page.until(&format!("{ROWS} === {}", SANDBOXES + 1)).await;
    fixture.deliver_deletion("run-008");
    page.until(&format!("{ROWS} === {SANDBOXES}")).await;

    // One that runs has an idle time and a cost, and is the first by cost. A wide window shows both.
    page.resize(1280, 800).await;
    let begin = "new Date(Date.now() - 1000 * 3600e3).toISOString()";
    let begin = page.run(begin).await;
    let running = json!({
        "phase": "Running", "podIP": "10.0.0.9", "startedAt": begin, "readyAt": begin,
    });
    fixture.deliver("run-009", &running);
    page.until_text("500 GiB h").await;
    page.click("Cost").await;
    let row = "document.querySelector('.list tbody tr').innerText";
    page.until(&format!("{row}.startsWith('run-009')")).await;
    let cells =
        "['idle', 'cost'].map(name => document.querySelector(`.list td.${name}`).innerText)";
    let cells = page.run(cells).await;
    assert_ne!(cells[0], "–");
    assert_eq!(cells[1], "250 core h\n500 GiB h");

    page.press("/", "/").await;
    page.until("document.activeElement.type === 'search'").await;
    page.type_text("run-123").await;
    page.until(&format!("{ROWS} === 1")).await;
    page.press("Enter", "\r").await;
    page.until("document.querySelector('.head h1')?.innerText === 'run-123'")
        .await;
    page.press("Escape", "").await;
    page.until(&format!("{ROWS} === 1")).await;

    earlier_changes(&page, &fixture).await;

    // Nothing is wider than a phone.
    page.resize(390, 844).await;
    for hash in ["#/sandboxes", "#/snapshots", "#/pools"] {
        page.run(&format!("location.hash = {}", json!(hash))).await;
        page.until("document.documentElement.scrollWidth <= 390")
            .await;
    }
    assert_unharmed(&page).await;
    page.assert_clean(&[&fixture.base]).await;
}

/// The page of a sandbox that was paused before the console was opened.
async fn earlier_changes(page: &Page, fixture: &ListFixture) {
    let paused = json!({
        "phase": "Paused", "pauseReason": "Idle", "pausedAt": "2026-01-01T00:03:00Z",
        "persisted": {"level": "Root", "at": "2026-01-01T00:03:00Z", "reason": "no CRIU"},
        "restored": {"level": "Workspace", "at": "2026-01-01T00:02:00Z"},
    });
    fixture.deliver("rested", &paused);
    let route = format!("#/sandboxes/{}", fixture.name("rested"));
    page.run(&format!("location.hash = {}", json!(route))).await;
    page.until_text("Changes").await;
    let changes = "[...document.querySelectorAll('.timeline li:has(.status)')].map(\
        row => [...row.children].map(one => one.dateTime ?? one.innerText))";
    let earlier = json!([
        ["2026-01-01T00:03:00Z", "◌ paused", "kept Root (no CRIU)"],
        ["2026-01-01T00:02:00Z", "● running", "restored Workspace"],
    ]);
    let earlier = Value::from(earlier.to_string());
    page.until(&format!("JSON.stringify({changes}) === {earlier}"))
        .await;

    // They stay when another change follows.
    fixture.deliver(
        "rested",
        &json!({"phase": "Failed", "message": "no space left"}),
    );
    page.until(&format!("{changes}[0]?.includes('no space left')"))
        .await;
    let rest = format!("JSON.stringify({changes}.slice(1))");
    assert_eq!(page.run(&rest).await, earlier);
}
