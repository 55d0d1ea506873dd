//! The console in a real browser: a person logs in, sees sandboxes, and works in one. Nothing that comes
//! out of a sandbox becomes part of the page.

mod first_minutes;
mod keyboard;
mod links;
mod list;
mod logs;
mod places;
mod recovery;
mod schemes;
mod terminal;
mod uploads;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tests::page::Page;
use tests::session::Session;
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;

use crate::fixture::{Fixture, fixture, start_body};

/// Runs a script if it becomes part of the page.
const HOSTILE: &str = "<img src=x onerror=\"window.hacked=1\">";
/// Text whose end is shown first, and as it is shown instead.
const TURNED: &str = "\u{202e}txt.exe";
const TURNED_SHOWN: &str = "\\u{202e}txt.exe";

async fn log_in(page: &Page, base: &str, key: &str) {
    page.goto(&format!("{base}/console/")).await;
    page.focus("#api-key").await;
    page.type_text(key).await;
    page.press("Enter", "\r").await;
    page.until("!!document.querySelector('header.top')").await;
}

/// Opens one of the pages in the header, with what it shows.
async fn open_place(page: &Page, name: &str) {
    page.click(name).await;
    let head = "document.querySelector('main h1')?.innerText";
    let loading = "document.querySelector('.skeleton')";
    page.until(&format!("{head} === {} && !{loading}", json!(name)))
        .await;
}

async fn assert_unharmed(page: &Page) {
    let harmed = "window.hacked === 1 || !!document.querySelector('img[onerror]')";
    assert_eq!(page.run(harmed).await, false);
}

/// Text of a file in the sandbox.
async fn read(session: &Session, path: &str) -> String {
    session.sandbox.read(path).await.unwrap()
}

#[tokio::test]
async fn person_logs_in_and_works_with_the_files_of_a_sandbox() {
    let Some(fixture) = fixture() else { return };
    let page = Page::open().await;
    log_out_and_wrong_key(&page, &fixture).await;

    let mut body = start_body(HOSTILE);
    body["environment"] = json!({});
    let session = Session::start(fixture.api(), fixture.key(), &body).await;
    let named = format!("/workspace/{HOSTILE}.txt");
    session
        .write(&named, &format!("{HOSTILE}\nsecond line"))
        .await;

    session.write(&format!("/workspace/{TURNED}"), "").await;

    page.until_text(HOSTILE).await;
    page.until_text("running").await;
    page.click(HOSTILE).await;
    page.until_text("Server up").await;
    page.click("Files").await;
    page.until_text(TURNED_SHOWN).await;
    page.click(HOSTILE).await;
    let editor = "document.querySelector('.code').shadowRoot.querySelector('.cm-content')";
    page.until(&format!("{editor}.textContent.includes('second line')"))
        .await;
    page.run(&format!("{editor}.focus()")).await;
    page.type_text("edited ").await;
    page.click("Save").await;
    page.until("!document.querySelector('.file-bar').innerText.includes('changed')")
        .await;
    assert_eq!(
        read(&session, &named).await,
        format!("edited {HOSTILE}\nsecond line\n")
    );

    // A change of the agent in the meantime is not lost.
    session.write(&named, "of the agent").await;
    page.run(&format!("{editor}.focus()")).await;
    page.type_text("mine ").await;
    page.click("Save").await;
    page.until_text("has changed in the sandbox").await;
    assert_eq!(read(&session, &named).await, "of the agent\n");
    page.click("Replace it").await;
    page.until("!document.body.innerText.includes('has changed in the sandbox')")
        .await;
    assert!(read(&session, &named).await.contains("mine "));

    upload_and_download(&page, &session).await;
    assert_unharmed(&page).await;

    page.click("Pause").await;
    page.click("Resume").await;
    page.until_text("running").await;
    session.ready().await;
    page.click("Stop").await;
    page.click("Stop and delete files").await;
    page.until_text("stopped").await;
    assert_eq!(session.info().await["status"], "stopped");
    assert_unharmed(&page).await;
    page.assert_clean(&[fixture.api()]).await;
}

/// The key is kept while the tab is loaded again, and nowhere else.
async fn log_out_and_wrong_key(page: &Page, fixture: &Fixture) {
    let origin = fixture.api();
    page.goto(&format!("{origin}/console")).await;
    page.focus("#api-key").await;
    page.type_text("no-such-key").await;
    page.press("Enter", "\r").await;
    page.until_text("The gateway does not know this API key.")
        .await;

    log_in(page, origin, fixture.key()).await;
    page.until_text("No sandboxes yet").await;
    page.reload().await;
    page.until("!!document.querySelector('header.top')").await;
    let key = json!(fixture.key());
    for place in [
        "JSON.stringify(localStorage)",
        "JSON.stringify(sessionStorage)",
        "document.cookie",
        "location.href",
    ] {
        assert_eq!(page.run(&format!("{place}.includes({key})")).await, false);
    }
    // Another page of the origin in the same tab does not find it.
    page.goto(&format!("{origin}/docs")).await;
    assert_eq!(page.run("history.state").await, Value::Null);
    log_in(page, origin, fixture.key()).await;
    page.click("Log out").await;
    page.until("!!document.querySelector('#api-key')").await;
    assert_eq!(page.run("sessionStorage.length").await, 0);
    log_in(page, origin, fixture.key()).await;
}

async fn upload_and_download(page: &Page, session: &Session) {
    page.run(
        "(() => { const list = new DataTransfer(); \
         list.items.add(new File(['0123456789abcde\\n'.repeat(196608)], 'big.txt')); \
         const input = document.querySelector('input[type=file]'); input.files = list.files; \
         input.dispatchEvent(new Event('change', {bubbles: true})); })()",
    )
    .await;
    page.until_text("big.txt: done").await;
    let size = session.run("wc -c < /workspace/big.txt").await;
    assert_eq!(size, "3145728");
    // Sizes of what the browser gets to save.
    page.run(
        "(() => { window.saved = []; const make = URL.createObjectURL; \
         URL.createObjectURL = blob => { saved.push(blob.size); return make(blob); }; })()",
    )
    .await;
    page.click("big.txt").await;
    let name = "document.querySelector('.file-name')?.innerText === 'big.txt'";
    page.until(name).await;
    page.run("document.querySelector('.file-bar button:last-child').click()")
        .await;
    page.until("saved.includes(3145728)").await;
}

type Upstream = (Client<HttpConnector, Body>, String);

/// Forwards `/tools/agents/…` without this prefix, as an Ingress may, and upgraded connections.
async fn forward((client, base): Upstream, mut request: Request) -> Response {
    let target = request
        .uri()
        .path_and_query()
        .map_or("", |path| path.as_str());
    let Some(path) = target.strip_prefix("/tools/agents") else {
        return StatusCode::NOT_FOUND.into_response();
    };
    *request.uri_mut() = format!("{base}{path}").parse::<Uri>().unwrap();
    let downstream = hyper::upgrade::on(&mut request);
    let mut answer = client.request(request).await.unwrap();
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let upstream = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            let (downstream, upstream) = tokio::try_join!(downstream, upstream).unwrap();
            let mut ends = [downstream, upstream].map(TokioIo::new);
            let [downstream, upstream] = &mut ends;
            // Either end sees the end of the other.
            let _ = copy_bidirectional(downstream, upstream).await;
        });
    }
    answer.map(Body::new).into_response()
}

#[tokio::test]
async fn console_works_below_a_path_prefix() {
    let Some(fixture) = fixture() else { return };
    let client = Client::builder(TokioExecutor::new()).build_http();
    let upstream: Upstream = (client, fixture.api().to_owned());
    let handler =
        async |State(upstream): State<Upstream>, request: Request| forward(upstream, request).await;
    let ingress = Router::new().fallback(handler).with_state(upstream);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/tools/agents", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, ingress).await });

    let session = fixture.run("below-a-prefix").await;
    session.write("/workspace/found.txt", "x").await;
    let script = "echo of-the-program; exec sleep 1000";
    let start = json!({"session_id": "talks", "image": "host", "command": ["sh", "-c", script]});
    assert_eq!(fixture.post("start", &start).await.0, 201);
    let page = Page::open().await;
    page.goto(&format!("{base}/console")).await;
    page.until(&format!("location.href.startsWith('{base}/console/')"))
        .await;
    log_in(&page, &base, fixture.key()).await;
    page.click("below-a-prefix").await;
    page.click("Files").await;
    page.until_text("found.txt").await;
    page.click("Terminal").await;
    terminal::wait_for_prompt(&page).await;
    terminal::enter(&page, "echo $((40 + 2))-typed").await;
    page.until(&terminal::shows("42-typed")).await;
    page.until("document.querySelector('.connection').innerText === 'live'")
        .await;
    page.click("Sandboxes").await;
    page.click("talks").await;
    page.click("Logs").await;
    page.until("document.querySelector('.log-lines')?.innerText.includes('of-the-program')")
        .await;
    page.assert_clean(&[&base, &base.replacen("http", "ws", 1)])
        .await;
}
