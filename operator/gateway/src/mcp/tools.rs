//! The tools, one file each or a few that belong together. Names and descriptions are written for
//! language models.

mod browser;
mod create;
mod files;
mod list;
mod run;
mod run_python;
mod schema;
mod states;
mod url;

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::backend::ToolError;
use super::call::Call;
use super::output::ToolResult;

/// Effect of a tool, which clients may show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Adds,
    Changes,
}

/// Returns all tools, in the order in which a session needs them.
pub(super) fn all() -> Vec<Tool> {
    let mut all = vec![
        create::tool(),
        list::tool(),
        run::tool(),
        run_python::tool(),
    ];
    all.extend(files::tools());
    all.extend(browser::tools());
    all.push(url::tool());
    all.extend(states::tools());
    all
}

/// Calls a tool; `None` if there is none of this name.
pub(super) async fn call(call: &Call, name: &str, arguments: JsonObject) -> Option<ToolResult> {
    Some(match name {
        "create" => create::call(call, arguments).await,
        "list" => list::call(call, arguments).await,
        "run" => run::call(call, arguments).await,
        "run_python" => run_python::call(call, arguments).await,
        "read" => files::read(call, arguments).await,
        "write" => files::write(call, arguments).await,
        "edit" => files::edit(call, arguments).await,
        "list_files" => files::list(call, arguments).await,
        "browse" => browser::browse(call, arguments).await,
        "screenshot" => browser::screenshot(call, arguments).await,
        "url" => url::call(call, arguments).await,
        "pause" => states::pause(call, arguments).await,
        "resume" => states::resume(call, arguments).await,
        "stop" => states::stop(call, arguments).await,
        _ => return None,
    })
}

/// Describes a tool whose arguments are `T`.
fn describe<T: JsonSchema>(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    effect: Effect,
) -> Tool {
    let schema = schema::of::<T>();
    let annotations = ToolAnnotations::with_title(title)
        .read_only(effect == Effect::Reads)
        .destructive(effect == Effect::Changes);
    Tool::new(name, description, Arc::new(schema))
        .with_title(title)
        .with_annotations(annotations)
}

/// Reads the arguments of a call. A fault names the argument, so that a model can correct it.
fn arguments<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, ToolError> {
    let read = serde_path_to_error::deserialize(Value::Object(arguments));
    read.map_err(|error| ToolError(format!("invalid arguments: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_match_snapshot() {
        insta::assert_json_snapshot!(all());
    }
}
