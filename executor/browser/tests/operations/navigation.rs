//! Navigation by address, history and input, and pages that hang or close: what needs a server of
//! its own.

use std::collections::HashSet;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse as _};
use axum::routing::get;
use browser::operations::{Operations, UploadFiles};
use browser::tabs::Tab;

use super::run_program;
use crate::fixture::{Chromium, serve_router};

const LIMIT: Duration = Duration::from_secs(10);

/// A site with a page at each address below `/page`, and with special ones.
async fn serve_site() -> String {
    let page = async || {
        Html(
            "<title>page</title><a bid=1 href=/page/next>next</a><a bid=2 href='#part'>part</a>
            <form action=/page/form><input bid=3 name=q></form><a bid=4 href=/none>none</a>
            <a bid=5 href=/download>file</a><a bid=6 href=/page/popup target=_blank>popup</a>
            <a bid=7 href='javascript:void (document.title = 7)'>script</a>
            <a bid=8 href='mailto:a@example.com'>mail</a>
            <button bid=9 onclick='window.close()'>close</button>
            <button bid=10 onclick='for (;;);'>hang</button>
            <button bid=12 onclick='window.open(location)'>open</button>
            <button bid=13 onclick='onbeforeunload = (e) => e.preventDefault()'>stay</button>
            <button bid=14 onclick='print()'>print</button>
            <iframe src=/frame name=frame></iframe>
            <a bid=11 href='/frame?in' target=frame>in</a>",
        )
    };
    let slowly = async move || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        page().await
    };
    let download = async || {
        (
            [(header::CONTENT_TYPE, "application/octet-stream")],
            "content",
        )
    };
    let hanging = Html("<title>early</title><img src=/silence>");
    let redirect = Html("<script>location = '/page/redirected'</script><img src=/silence>");
    let router = Router::new()
        .route("/page/{name}", get(page))
        .route("/frame", get(Html("frame")))
        .route("/page/next", get(slowly))
        .route("/none", get(StatusCode::NO_CONTENT))
        .route("/missing", get((StatusCode::NOT_FOUND, Html("missing"))))
        .route(
            "/download",
            get(async move || download().await.into_response()),
        )
        .route("/silence", get(std::future::pending::<()>))
        .route("/hanging", get(async move || hanging))
        .route("/redirect", get(async move || redirect));
    serve_router(router).await
}

async fn start(chromium: &Chromium) -> (Tab, Operations) {
    let tab = chromium.tabs.open("about:blank").await.unwrap();
    let operations = Operations::new(
        chromium.tabs.clone(),
        tab.id.clone(),
        UploadFiles::of_process("/"),
    );
    (tab, operations.with_navigation_timeout(LIMIT))
}

fn url_of(chromium: &Chromium, tab: &Tab) -> String {
    chromium.tabs.get(&tab.id).unwrap().url
}

#[tokio::test]
async fn goto_tells_errors_and_addresses() {
    let base = serve_site().await;
    let port = base.rsplit(':').next().unwrap();
    let chromium = Chromium::start().await;
    let error_page = "chrome-error://chromewebdata/";
    let page = format!("{base}/page/a");
    for (url, error, reached) in [
        (page.as_str(), "", page.as_str()),
        (
            &format!("127.0.0.1:{port}/page/b"),
            "",
            &format!("{base}/page/b"),
        ),
        (
            &format!("localhost:{port}/page/b"),
            "",
            &format!("http://localhost:{port}/page/b"),
        ),
        (&format!(" {page}"), "", &page),
        (&format!("{page}#part"), "", &format!("{page}#part")),
        (&format!("{base}/missing"), "", &format!("{base}/missing")),
        (
            &format!("{base}/redirect"),
            "",
            &format!("{base}/page/redirected"),
        ),
        ("data:text/html,<p>x", "", "data:text/html,<p>x"),
        ("file:///etc/hostname", "", "file:///etc/hostname"),
        (
            "file:///none",
            "net::ERR_FILE_NOT_FOUND at file:///none",
            error_page,
        ),
        ("about:blank", "", "about:blank"),
        (
            "https://127.0.0.1:1/",
            "net::ERR_UNSAFE_PORT at https://127.0.0.1:1/",
            error_page,
        ),
        ("about:blank", "", "about:blank"),
        (
            "example.com",
            "Protocol error (Page.navigate): Cannot navigate to invalid URL",
            "about:blank",
        ),
        (
            "",
            "Protocol error (Page.navigate): Cannot navigate to invalid URL",
            "about:blank",
        ),
        (
            "http://[",
            "Protocol error (Page.navigate): Cannot navigate to invalid URL",
            "about:blank",
        ),
        (
            &format!("{base}/download"),
            "Download is starting",
            "about:blank",
        ),
        (
            &format!("{base}/none"),
            &format!("net::ERR_ABORTED at {base}/none"),
            "about:blank",
        ),
        (
            "mailto:a@b",
            "net::ERR_ABORTED at mailto:a@b",
            "about:blank",
        ),
        ("ftp://a/", "net::ERR_ABORTED at ftp://a/", "about:blank"),
    ] {
        let (tab, mut operations) = start(&chromium).await;
        let result = run_program(&mut operations, &format!("goto('{url}')")).await;
        let expected = match error {
            "" => Ok(()),
            text => Err(format!(
                "Error: Page.goto: {text}\nCall log:\n  \
                 - navigating to \"{url}\", waiting until \"load\"\n"
            )),
        };
        assert_eq!(result.map_err(|error| error.to_string()), expected);
        assert_eq!(url_of(&chromium, &tab), reached, "{url}");
        chromium.tabs.close(&tab.id).await.unwrap();
    }
}

#[tokio::test]
async fn goto_stops_loading_when_the_time_is_up() {
    let base = serve_site().await;
    let chromium = Chromium::start().await;
    let (tab, operations) = start(&chromium).await;
    let mut operations = operations.with_navigation_timeout(Duration::from_millis(400));
    for (path, reached) in [
        ("silence", "about:blank"),
        ("hanging", &format!("{base}/hanging")),
    ] {
        let result = run_program(&mut operations, &format!("goto('{base}/{path}')")).await;
        let error = result.unwrap_err().to_string();
        let expected =
            "TimeoutError: Page.goto: Timeout 400ms exceeded.\nCall log:\n  - navigating to ";
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(url_of(&chromium, &tab), reached);
        let none = HashSet::new();
        let ended = chromium.tabs.new_navigations_ended(&tab.id, &none, LIMIT);
        ended.await;
        assert!(chromium.tabs.navigating_frames(&tab.id).is_empty());
    }
}

#[tokio::test]
async fn history_is_walked_in_both_directions() {
    let base = serve_site().await;
    let chromium = Chromium::start().await;
    let (tab, mut operations) = start(&chromium).await;
    let (a, b) = (format!("{base}/page/a"), format!("{base}/page/b"));
    for (program, reached) in [
        (
            format!("goto('{a}') goto('{b}') click('2')"),
            format!("{b}#part"),
        ),
        ("go_back()".into(), b.clone()),
        ("go_back()".into(), a.clone()),
        ("go_forward() go_forward()".into(), format!("{b}#part")),
        ("go_forward()".into(), format!("{b}#part")),
        ("click('11') go_back()".into(), format!("{b}#part")),
        ("go_back() go_back() go_back()".into(), "about:blank".into()),
        ("go_back()".into(), "about:blank".into()),
    ] {
        run_program(&mut operations, &program).await.unwrap();
        assert_eq!(url_of(&chromium, &tab), reached, "{program}");
    }
}

#[tokio::test]
async fn navigations_by_input_are_awaited() {
    let base = serve_site().await;
    let chromium = Chromium::start().await;
    let a = format!("{base}/page/a");
    for (program, reached) in [
        ("click('1')", format!("{base}/page/next")),
        (
            "fill('3', 'x') press('3', 'Enter')",
            format!("{base}/page/form?q=x"),
        ),
        ("click('13') click('1')", format!("{base}/page/next")),
        ("click('14') click('2')", format!("{a}#part")),
        ("click('1') click('2')", format!("{base}/page/next#part")),
        ("click('4') click('2')", format!("{a}#part")),
        ("click('5') click('2')", format!("{a}#part")),
        ("click('6') click('2')", format!("{a}#part")),
        ("click('7') click('2')", format!("{a}#part")),
        ("click('8') click('2')", format!("{a}#part")),
    ] {
        let (tab, mut operations) = start(&chromium).await;
        let program = format!("goto('{a}') {program}");
        run_program(&mut operations, &program).await.unwrap();
        assert_eq!(url_of(&chromium, &tab), reached, "{program}");
        chromium.tabs.close(&tab.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_page_that_closes_its_tab_ends_later_calls() {
    let base = serve_site().await;
    let chromium = Chromium::start().await;
    let (_, mut operations) = start(&chromium).await;
    // Only a tab that a page has opened may close itself.
    let program = format!("goto('{base}/page/a') click('12')");
    run_program(&mut operations, &program).await.unwrap();
    while chromium.tabs.list().len() < 2 {
        tokio::task::yield_now().await;
    }
    let program = format!("tab_focus(-1) goto('{base}/page/a') click('9')");
    run_program(&mut operations, &program).await.unwrap();
    chromium.tabs.gone(operations.current()).await;
    for (program, method) in [
        ("click('9')", "Locator.count"),
        ("goto('about:blank')", "Page.goto"),
        ("go_back()", "Page.go_back"),
        ("go_forward()", "Page.go_forward"),
        ("scroll(0, 1)", "Mouse.wheel"),
    ] {
        let error = run_program(&mut operations, program).await.unwrap_err();
        let expected =
            format!("TargetClosedError: {method}: Target page, context or browser has been closed");
        assert_eq!(error.to_string(), expected);
    }
    run_program(&mut operations, "tab_close() goto('about:blank')")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_page_that_hangs_fails_operations_in_their_time() {
    let base = serve_site().await;
    let chromium = Chromium::start().await;
    let (_, mut operations) = start(&chromium).await;
    let program = format!("goto('{base}/page/a') click('10')");
    let error = run_program(&mut operations, &program).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("TimeoutError: Locator.click: Timeout 500ms exceeded.\n")
    );
    for (program, method) in [
        ("click('2')", "Locator.click"),
        ("fill('3', 'x')", "Locator.fill"),
        ("press('3', 'x')", "Locator.press"),
    ] {
        let error = run_program(&mut operations, program)
            .await
            .unwrap_err()
            .to_string();
        let expected = format!("TimeoutError: {method}: Timeout 500ms exceeded.\n");
        assert!(error.starts_with(&expected), "{error}");
    }
    run_program(&mut operations, "scroll(0, 1)").await.unwrap();
    let program = format!("goto('{base}/page/b') click('2')");
    run_program(&mut operations, &program).await.unwrap();
}
