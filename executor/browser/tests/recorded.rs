//! Sessions on saved pages, with the answers that the Python browser gave (`original/cases.json`): each step
//! has the same error, address, focus, tabs and new rows of the tree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use browser::operations::UploadFiles;
use browser::render::content::TreeBlock;
use browser::step::{self, Step, StepContext};
use serde::Deserialize;

use crate::fixture::{Chromium, serve_router};

mod site;

/// Tries of a session: an operation has half a second, which a busy machine may use up.
const MAX_TRIES: usize = 3;
/// Port of the recorded addresses.
const PORT: &str = ":8000";

#[derive(Deserialize)]
struct Recording {
    sessions: Vec<Session>,
}

#[derive(Deserialize)]
struct Session {
    name: String,
    steps: Vec<RecordedStep>,
}

/// Answer as `hack/browsergym/compare.py` keeps it: without empty parts.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct RecordedStep {
    program: String,
    /// First line of the error.
    error: String,
    /// Line of the call log that tells the reason.
    reason: String,
    url: String,
    focused: Option<String>,
    /// Addresses of the tabs, if there are several.
    pages: Vec<String>,
    active: usize,
    /// Rows of the tree that the step before did not have.
    rows: Vec<String>,
    /// Exception that ended the Python browser.
    raised: Option<String>,
}

/// Entry of `differences.json`.
#[derive(Deserialize)]
struct KnownDifference {
    session: String,
    #[serde(default)]
    steps: Option<Vec<usize>>,
}

struct Site {
    base: String,
    port: String,
    pages: PathBuf,
}

impl Site {
    /// Program with the addresses of this run.
    fn fill(&self, program: &str) -> String {
        program
            .replace("{site}", &self.base)
            .replace("{other}", &self.base.replace("127.0.0.1", "localhost"))
            .replace("{port}", self.port.trim_start_matches(':'))
            .replace("{files}", self.pages.join("files").to_str().unwrap())
    }

    fn normalized(&self, text: &str) -> String {
        text.replace(&self.port, PORT)
    }
}

/// Number of times that a row is in the tree.
type Rows = BTreeMap<String, usize>;

fn rows(site: &Site, step: &Step) -> Rows {
    let mut rows = Rows::new();
    if let TreeBlock::Complete(text) = &step.page.tree {
        for row in site.normalized(text).lines() {
            *rows.entry(row.trim().to_owned()).or_default() += 1;
        }
    }
    rows
}

fn new_rows(rows: &Rows, before: &Rows) -> Vec<String> {
    let new = rows.iter().flat_map(|(row, count)| {
        let more = count.saturating_sub(before.get(row).copied().unwrap_or(0));
        std::iter::repeat_n(row.clone(), more)
    });
    new.collect()
}

/// Differences between a recorded answer and a step.
fn differences(site: &Site, recorded: &RecordedStep, step: &Step, new: &[String]) -> Vec<String> {
    let error = step.error.as_ref().map(ToString::to_string);
    let error = site.normalized(&error.unwrap_or_default());
    let mut lines = error
        .lines()
        .map(|line| line.trim().trim_start_matches("- "));
    let pages: Vec<_> = step
        .open_pages_urls
        .iter()
        .map(|url| site.normalized(url))
        .collect();
    let mut expected_rows = recorded.rows.clone();
    expected_rows.sort_unstable();
    let mut found = Vec::new();
    let mut compare =
        |field: &str, expected: &dyn std::fmt::Debug, actual: &dyn std::fmt::Debug| {
            let [expected, actual] = [expected, actual].map(|value| format!("{value:?}"));
            if expected != actual {
                found.push(format!("{field}: {expected}, but {actual}"));
            }
        };
    compare("error", &recorded.error, &lines.next().unwrap_or_default());
    if !recorded.reason.is_empty() && !lines.any(|line| line == recorded.reason) {
        compare("reason", &recorded.reason, &error);
    }
    compare("url", &recorded.url, &site.normalized(&step.page.url));
    compare("focused", &recorded.focused, &step.page.focused_bid);
    compare("active", &recorded.active, &step.active_page_index);
    if pages.len() > 1 || !recorded.pages.is_empty() {
        compare("pages", &recorded.pages, &pages);
    }
    if !expected_rows.is_empty() {
        compare("rows", &expected_rows, &new);
    }
    found
}

/// Runs a session; what differs, and how many steps were compared.
async fn run(site: &Site, session: &Session, known: &[KnownDifference]) -> (Vec<String>, usize) {
    let chromium = Chromium::start_as_in_sandboxes().await;
    let context = StepContext {
        files: UploadFiles::of_process(site.pages.clone()),
        raw_tree: false,
        max_tree_chars: None,
    };
    // The Python browser begins with an observation.
    step::run(&chromium.tabs, "noop(0)", &context)
        .await
        .unwrap();
    let (mut before, mut found, mut compared) = (Rows::new(), Vec::new(), 0);
    for (number, recorded) in session.steps.iter().enumerate() {
        let step = step::run(&chromium.tabs, &site.fill(&recorded.program), &context)
            .await
            .unwrap();
        let rows = rows(site, &step);
        let is_known = known.iter().any(|entry| {
            let steps = entry.steps.as_ref();
            entry.session == session.name && steps.is_none_or(|steps| steps.contains(&number))
        });
        if !is_known && recorded.raised.is_none() {
            let new = new_rows(&rows, &before);
            let place = format!("{}, step {number}, {}", session.name, recorded.program);
            let differences = differences(site, recorded, &step, &new);
            found.extend(
                differences
                    .into_iter()
                    .map(|line| format!("{place}: {line}")),
            );
            compared += 1;
        }
        before = rows;
    }
    (found, compared)
}

#[tokio::test]
async fn pages_from_a_to_l_have_the_answers_of_the_python_browser() {
    run_all(|name| !name.starts_with("odd-") && name < "m").await;
}

#[tokio::test]
async fn pages_from_m_to_z_have_the_answers_of_the_python_browser() {
    run_all(|name| !name.starts_with("odd-") && name >= "m").await;
}

#[tokio::test]
async fn odd_sessions_from_a_to_m_have_the_answers_of_the_python_browser() {
    run_all(|name| name.starts_with("odd-") && name < "odd-n").await;
}

#[tokio::test]
async fn odd_sessions_from_n_to_z_have_the_answers_of_the_python_browser() {
    run_all(|name| name.starts_with("odd-") && name >= "odd-n").await;
}

/// Runs the sessions with these names, one after the other.
async fn run_all(is_included: fn(&str) -> bool) {
    let recording: Recording = serde_json::from_str(include_str!("original/cases.json")).unwrap();
    let known = include_str!("../../../hack/browsergym/differences.json");
    let known: Vec<KnownDifference> = serde_json::from_str(known).unwrap();
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages");
    let base = serve_router(site::router(pages.clone())).await;
    let port = format!(":{}", base.rsplit(':').next().unwrap());
    let site = Site { base, port, pages };
    let (mut found, mut compared) = (Vec::new(), 0);
    let sessions = recording.sessions.iter();
    for session in sessions.filter(|session| is_included(&session.name)) {
        let mut result = run(&site, session, &known).await;
        for _ in 1..MAX_TRIES {
            if result.0.is_empty() {
                break;
            }
            result = run(&site, session, &known).await;
        }
        found.extend(result.0);
        compared += result.1;
    }
    eprintln!("{compared} steps");
    assert!(compared > 100 && found.is_empty(), "{}", found.join("\n"));
}
