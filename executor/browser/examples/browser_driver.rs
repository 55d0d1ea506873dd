//! Runs programs in Chromium, for `hack/browsergym/compare` and `bench`: JSON lines in and out, in
//! the protocol of `hack/browsergym/original.py`.

use std::env;
use std::io::{self, BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use browser::cdp::attach_pipe;
use browser::chromium::{self, LaunchOptions};
use browser::operations::UploadFiles;
use browser::render::content::TreeBlock;
use browser::step::{self, Step, StepContext};
use browser::tabs::Tabs;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;

#[derive(Deserialize)]
#[serde(untagged)]
enum Request {
    Run {
        program: String,
        #[serde(default)]
        return_axtree: bool,
    },
    Reset {
        #[serde(rename = "reset")]
        _reset: bool,
    },
}

/// Ends with its drop.
struct Running {
    tabs: Tabs,
    _process: Child,
    _directory: TempDir,
}

#[tokio::main]
async fn main() -> Result<()> {
    let program = chromium::find(|name| env::var_os(name)).context("Chromium is missing")?;
    let mut running = start(&program).await?;
    answer(&json!({"ready": true}))?;
    for line in io::stdin().lock().lines() {
        match serde_json::from_str(&line?)? {
            Request::Reset { .. } => {
                running = start(&program).await?;
                answer(&json!({"ready": true}))?;
            }
            Request::Run {
                program,
                return_axtree,
            } => {
                let context = StepContext {
                    files: UploadFiles::of_process(env::current_dir()?),
                    raw_tree: return_axtree,
                    max_tree_chars: None,
                };
                match step::run(&running.tabs, &program, &context).await {
                    Ok(step) => answer(&observation(step))?,
                    Err(error) => answer(&json!({"raised": error.to_string()}))?,
                }
            }
        }
    }
    Ok(())
}

async fn start(program: &Path) -> Result<Running> {
    let directory = tempfile::tempdir()?;
    let options = LaunchOptions {
        program: PathBuf::from(program),
        profile: directory.path().join("profile"),
        isolates_sites: false,
    };
    let mut command = options.command();
    let pipe = attach_pipe(&mut command)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let process = command.spawn()?;
    drop(command);
    let tabs = Tabs::connect(pipe, &directory.path().join("downloads")).await?;
    // BrowserGym begins with an observation, too.
    let context = StepContext {
        files: UploadFiles::of_process(PathBuf::new()),
        raw_tree: false,
        max_tree_chars: None,
    };
    step::run(&tabs, "noop(0)", &context).await?;
    Ok(Running {
        tabs,
        _process: process,
        _directory: directory,
    })
}

fn observation(step: Step) -> Value {
    let page = step.page;
    let error = step
        .error
        .map_or_else(String::new, |error| error.to_string());
    let (tree, tree_error) = match page.tree {
        TreeBlock::Complete(text) | TreeBlock::Visible(text) => (Some(text), None),
        TreeBlock::Failed(error) => (None, Some(error.to_string())),
    };
    let properties = page
        .raw_tree
        .as_ref()
        .map_or(json!({}), |_| json!(page.elements));
    json!({
        "url": page.url,
        "screenshot": data_url(&page.screenshot),
        "set_of_marks": data_url(&page.marked_screenshot),
        "open_pages_urls": step.open_pages_urls,
        "active_page_index": step.active_page_index,
        "axtree_object": page.raw_tree.unwrap_or(json!({})),
        "extra_element_properties": properties,
        "last_browser_action": step.program,
        "last_browser_action_error": error,
        "focused_element_bid": page.focused_bid,
        "error": !error.is_empty(),
        "tree": tree,
        "tree_error": tree_error,
        "markdown": page.markdown,
    })
}

fn data_url(png: &[u8]) -> String {
    format!("data:image/png;base64,{}", BASE64_STANDARD.encode(png))
}

fn answer(value: &Value) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{value}")?;
    output.flush()
}
