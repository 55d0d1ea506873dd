//! Runs the cases of the text files, each file in one browser. Except for what is better by
//! intention, the results are those of the Python browser, which has run the same files.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::extract::Path as UrlPath;
use axum::response::Html;
use axum::routing::get;
use browser::operations::{Operations, UploadFiles};
use browser::tabs::{ScriptWorld, Tab, Tabs};

use super::case_file::{Case, parse};
use super::run_program;
use crate::fixture::{Chromium, serve_router};

const LOG_SCRIPT: &str = include_str!("log.js");
/// Tries of a case: an operation has half a second, which a busy machine may use up.
const MAX_TRIES: usize = 3;
/// Time in which messages from frames must arrive.
const LOG_TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn click_hover_and_scroll_behave_as_the_cases_say() {
    run(include_str!("cases/click.txt")).await;
}

#[tokio::test]
async fn operations_in_frames_behave_as_the_cases_say() {
    run(include_str!("cases/frames.txt")).await;
}

#[tokio::test]
async fn fill_and_clear_behave_as_the_cases_say() {
    run(include_str!("cases/text.txt")).await;
}

#[tokio::test]
async fn select_option_behaves_as_the_cases_say() {
    run(include_str!("cases/select.txt")).await;
}

#[tokio::test]
async fn press_and_focus_behave_as_the_cases_say() {
    run(include_str!("cases/keys.txt")).await;
}

#[tokio::test]
async fn drag_and_drop_behaves_as_the_cases_say() {
    run(include_str!("cases/drag.txt")).await;
}

#[tokio::test]
async fn upload_file_behaves_as_the_cases_say() {
    run(include_str!("cases/upload.txt")).await;
}

enum Failure {
    /// Another error than expected, perhaps because the machine is busy.
    Error(String),
    /// Something else than expected has happened on the page.
    Log(String),
}

async fn run(text: &'static str) {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in [("a.txt", "A"), ("b.txt", "B")] {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let directory = directory.path().canonicalize().unwrap();
    let cases: &'static [Case] = parse(text).leak();
    let base = serve_router(router(cases)).await;
    let chromium = Chromium::start().await;
    let tabs = &chromium.tabs;
    let mut failures = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let url = format!("{base}/{number}/");
        for tries_left in (0..MAX_TRIES).rev() {
            let tab = tabs.open("about:blank").await.unwrap();
            let result = check(tabs, &tab, case, &url, &directory).await;
            tabs.close(&tab.id).await.unwrap();
            match result {
                Ok(()) => break,
                Err(Failure::Error(_)) if tries_left > 0 => {}
                Err(Failure::Error(text) | Failure::Log(text)) => {
                    failures.push(format!("{}: {text}", case.name));
                    break;
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn router(cases: &'static [Case]) -> Router {
    let page = async move |UrlPath(path): UrlPath<String>, headers: axum::http::HeaderMap| {
        let (number, name) = path.split_once('/').unwrap_or((&path, ""));
        let host = headers["host"].to_str().unwrap();
        let port = host.rsplit(':').next().unwrap();
        let case = number
            .parse()
            .ok()
            .and_then(|number: usize| cases.get(number));
        let pages = case.map_or(&[][..], |case| &case.pages);
        let page = pages.iter().find(|page| page.0 == name);
        let text = page.map_or("", |page| &page.1);
        let text = text
            .replace("{other}", &format!("http://localhost:{port}/{number}"))
            .replace("{same}", &format!("http://127.0.0.1:{port}/{number}"));
        Html(format!(
            "<!doctype html><meta charset=utf-8><script src=/log.js></script>{text}"
        ))
    };
    Router::new()
        .route("/log.js", get(async || LOG_SCRIPT))
        .route("/{*path}", get(page))
}

async fn check(
    tabs: &Tabs,
    tab: &Tab,
    case: &Case,
    url: &str,
    directory: &Path,
) -> Result<(), Failure> {
    let mut operations = Operations::new(
        tabs.clone(),
        tab.id.clone(),
        UploadFiles::of_process(directory),
    );
    let directory = directory.to_str().unwrap();
    run_program(&mut operations, &format!("goto('{url}')"))
        .await
        .map_err(|error| Failure::Error(error.to_string()))?;
    let calls: Vec<_> = case
        .calls
        .iter()
        .map(|call| call.replace("{cwd}", directory))
        .collect();
    let result = run_program(&mut operations, &calls.join("\n")).await;
    let text = result.err().map(|error| error.to_string());
    check_error(text.as_deref().unwrap_or_default(), case, directory)?;
    let log = log_of(tabs, tab, case.log).await;
    if log == case.log {
        Ok(())
    } else {
        Err(Failure::Log(format!(
            "log {log:?} instead of {:?}",
            case.log
        )))
    }
}

fn check_error(text: &str, case: &Case, directory: &str) -> Result<(), Failure> {
    let mut expected = case
        .error
        .iter()
        .map(|line| line.replace("{cwd}", directory));
    let (first, others) = text.split_once('\n').unwrap_or((text, ""));
    let is_expected = first == expected.next().unwrap_or_default()
        && expected.all(|part| others.lines().any(|line| line.contains(&part)));
    if is_expected {
        Ok(())
    } else {
        let failure = format!("error {text} instead of {:?}", case.error);
        Err(Failure::Error(failure))
    }
}

/// The log of the page, once it is the expected one or the time is up.
async fn log_of(tabs: &Tabs, tab: &Tab, expected: &str) -> String {
    let frames = tabs.frames(&tab.id);
    let main = frames.iter().find(|frame| frame.parent.is_none()).unwrap();
    let script = tabs.script_frame(main, ScriptWorld::Main).await.unwrap();
    let function = "(expected) => new Promise((done) => {
        const look = () => {
          const log = entries.join('; ');
          if (log === expected || performance.now() > end) done(log);
          else setTimeout(look, 10);
        };
        const end = performance.now() + 1000;
        setTimeout(look, 0);
    })";
    let arguments = [expected.into()];
    script
        .call(LOG_TIMEOUT, function, &arguments)
        .await
        .unwrap()
}
