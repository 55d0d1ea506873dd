//! `run_python`: a cell in the Python kernel of a sandbox.

use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Effect, arguments, describe};
use crate::mcp::call::{Call, check_length, content, seconds};
use crate::mcp::output::{ToolResult, with_images};

const MAX_CODE_BYTES: usize = 256 << 10;
const DEFAULT_SECONDS: u64 = 120;
const MAX_SECONDS: u64 = 3600;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the sandbox, as returned by create.
    #[schemars(length(min = 1, max = 256))]
    sandbox: String,
    /// Python code. The value of the last expression is shown, and so are figures.
    #[schemars(length(max = 262_144))]
    code: String,
    /// Seconds after which the code is interrupted.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3600), extend("default" = 120))]
    timeout: Option<u64>,
}

pub(super) fn tool() -> Tool {
    describe::<Arguments>(
        "run_python",
        "Run Python code",
        "Runs Python code in a Jupyter kernel of the sandbox and returns what it prints, its value and its figures. \
         Variables and imports stay between calls. Needs ipykernel in the image; if it is missing, install it with run \
         (pip install ipykernel) and call again.",
        Effect::Changes,
    )
}

pub(super) async fn call(call: &Call, given: JsonObject) -> ToolResult {
    let given: Arguments = arguments(given)?;
    check_length("code", &given.code, MAX_CODE_BYTES)?;
    let limit = seconds(given.timeout, DEFAULT_SECONDS, MAX_SECONDS)?;
    let sandbox = call.find(&given.sandbox).await?;
    let args = json!({"code": given.code, "include_extra": false});
    let work = call.act(&sandbox, "run_ipython", &args, limit);
    let done = call.progress.during(|| "the code runs".into(), work);
    let observed = content(done.await?)?;
    let images = observed.extras.image_urls.unwrap_or_default();
    Ok(with_images(&observed.content, &images))
}
