//! `browse` and `screenshot`: the browser of a sandbox (`docs/browser.md`).

use std::time::Duration;

use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Effect, arguments, describe};
use crate::mcp::backend::ToolError;
use crate::mcp::call::{Call, Observation, check_length, content};
use crate::mcp::output::{ToolResult, text, with_images};

const MAX_URL_BYTES: usize = 8192;
/// Time for a step of the browser, which itself ends after 115 s.
const STEP_TIMEOUT: Duration = Duration::from_mins(2);
/// Program that changes nothing.
const LOOK: &str = "noop(100)";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Browse {
    /// Name of the sandbox, as returned by create.
    #[schemars(length(min = 1, max = 256))]
    sandbox: String,
    /// URL as seen from the sandbox: `http://localhost:8000` is a server in the sandbox.
    #[schemars(length(min = 1, max = 8192))]
    url: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Screenshot {
    /// Name of the sandbox, as returned by create.
    #[schemars(length(min = 1, max = 256))]
    sandbox: String,
    /// Page to open first, as for browse. Default: the page that is open.
    #[serde(default)]
    #[schemars(length(min = 1, max = 8192))]
    url: Option<String>,
}

pub(super) fn tools() -> [Tool; 2] {
    [
        describe::<Browse>(
            "browse",
            "Open a page",
            "Opens a page in the browser of a sandbox and returns its text as an accessibility tree. Needs Chromium in \
             the image.",
            Effect::Changes,
        ),
        describe::<Screenshot>(
            "screenshot",
            "Take a screenshot",
            "Returns a picture of the page that is open in the browser of a sandbox. Needs Chromium in the image.",
            Effect::Changes,
        ),
    ]
}

pub(super) async fn browse(call: &Call, given: JsonObject) -> ToolResult {
    let Browse { sandbox, url } = arguments(given)?;
    let page = step(call, &sandbox, &goto(&url)?).await?;
    Ok(text(&page.content))
}

pub(super) async fn screenshot(call: &Call, given: JsonObject) -> ToolResult {
    let Screenshot { sandbox, url } = arguments(given)?;
    let program = url.map_or_else(|| Ok(LOOK.to_owned()), |url| goto(&url));
    let page = step(call, &sandbox, &program?).await?;
    let picture = page.extras.screenshot.filter(|picture| !picture.is_empty());
    let picture = picture.ok_or_else(|| ToolError("the browser made no picture".into()))?;
    Ok(with_images("the open page", &[picture]))
}

/// Program that opens a page. A text of JSON is one of Python as well.
fn goto(url: &str) -> Result<String, ToolError> {
    check_length("url", url, MAX_URL_BYTES)?;
    Ok(format!("goto({})", Value::from(url)))
}

async fn step(call: &Call, sandbox: &str, program: &str) -> Result<Observation, ToolError> {
    let sandbox = call.find(sandbox).await?;
    let args = json!({"browser_actions": program});
    let work = call.act(&sandbox, "browse_interactive", &args, STEP_TIMEOUT);
    let page = call.progress.during(|| "the page loads".into(), work);
    let page = content(page.await?)?;
    match page.extras.last_browser_action_error.as_deref() {
        None | Some("") => Ok(page),
        Some(error) => Err(ToolError(error.to_owned())),
    }
}
