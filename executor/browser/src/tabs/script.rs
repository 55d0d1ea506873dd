//! Calls of script functions in a frame, in the world of the page or in the isolated one.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Tabs;
use super::frame::Frame;
use super::setup::ISOLATED_WORLD;
use crate::cdp::{CdpError, Session};

/// Time in which a new document gets its contexts.
const CONTEXT_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptWorld {
    /// The page's own: sees its objects, and the page sees what the script does to the document.
    Main,
    /// Sees the document only.
    Isolated,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum ScriptError {
    #[error(transparent)]
    Browser(#[from] CdpError),
    /// Text of the exception.
    #[error("{0}")]
    Exception(String),
    /// The document was replaced, or the frame removed.
    #[error("the document is gone")]
    Gone,
}

impl ScriptError {
    /// True if a repetition can succeed: the document has changed under the script.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Gone => true,
            Self::Browser(CdpError::Protocol { message, .. }) => [
                "Cannot find context",
                "Execution context was destroyed",
                "Inspected target navigated or closed",
                "Session with given id not found",
                "uniqueContextId not found",
                "No frame for given id found",
                "Could not find object with given id",
                "Cannot find default execution context",
            ]
            .iter()
            .any(|text| message.contains(text)),
            _ => false,
        }
    }
}

/// A frame, the world and the context of its present document.
#[derive(Debug, Clone)]
pub struct ScriptFrame {
    pub session: Session,
    context: i64,
}

/// An object in a page, mostly an element. Released when the document goes.
#[derive(Debug, Clone)]
pub struct Element {
    pub session: Session,
    pub object_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Returned {
    result: RemoteObject,
    exception_details: Option<ExceptionDetails>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RemoteObject {
    #[serde(default)]
    value: Value,
    object_id: Option<String>,
    description: Option<String>,
}

#[derive(Deserialize)]
struct ExceptionDetails {
    text: String,
    exception: Option<RemoteObject>,
}

impl Tabs {
    /// Context of a frame's present document in a world.
    pub async fn script_frame(
        &self,
        frame: &Frame,
        world: ScriptWorld,
    ) -> Result<ScriptFrame, ScriptError> {
        let context = self.wait(CONTEXT_TIMEOUT, |state| {
            let found = state.tabs.iter().find_map(|tab| tab.frames.get(&frame.id));
            let Some(found) = found else {
                return Some(None);
            };
            let context = match world {
                ScriptWorld::Main => found.main_context,
                ScriptWorld::Isolated => found.isolated_context,
            };
            context.map(|context| Some((context, found.session.clone())))
        });
        let (context, session) = match context.await {
            Some(found) => found.ok_or(ScriptError::Gone)?,
            // The isolated world is missing where scripts are disabled.
            None if world == ScriptWorld::Isolated => {
                (create_world(frame).await?, frame.session.clone())
            }
            None => return Err(ScriptError::Gone),
        };
        Ok(ScriptFrame { session, context })
    }
}

async fn create_world(frame: &Frame) -> Result<i64, CdpError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Created {
        execution_context_id: i64,
    }
    let params = json!({"frameId": frame.id, "worldName": ISOLATED_WORLD});
    let created: Created = frame
        .session
        .call("Page.createIsolatedWorld", params)
        .await?;
    Ok(created.execution_context_id)
}

impl ScriptFrame {
    /// Calls a function (`(a, b) => …`, or async) with JSON arguments and returns its JSON result.
    pub async fn call<R: DeserializeOwned>(
        &self,
        limit: Duration,
        function: &str,
        arguments: &[Value],
    ) -> Result<R, ScriptError> {
        let target = json!({"executionContextId": self.context});
        let arguments = by_values(arguments).collect();
        by_value(call_function(&self.session, limit, target, function, arguments, true).await?)
    }

    /// Calls a function that returns an element or null.
    pub async fn find(
        &self,
        limit: Duration,
        function: &str,
        arguments: &[Value],
    ) -> Result<Option<Element>, ScriptError> {
        let target = json!({"executionContextId": self.context});
        let arguments = by_values(arguments).collect();
        let returned =
            call_function(&self.session, limit, target, function, arguments, false).await?;
        Ok(returned.object_id.map(|object_id| Element {
            session: self.session.clone(),
            object_id,
        }))
    }
}

impl Element {
    /// Calls a function with the element as its first argument.
    pub async fn call<R: DeserializeOwned>(
        &self,
        limit: Duration,
        function: &str,
        arguments: &[Value],
    ) -> Result<R, ScriptError> {
        let target = json!({"objectId": self.object_id});
        let own = std::iter::once(json!({"objectId": self.object_id}));
        let arguments = own.chain(by_values(arguments)).collect();
        by_value(call_function(&self.session, limit, target, function, arguments, true).await?)
    }

    pub fn release(&self) {
        self.session
            .send("Runtime.releaseObject", json!({"objectId": self.object_id}));
    }
}

fn by_values(arguments: &[Value]) -> impl Iterator<Item = Value> {
    arguments.iter().map(|value| json!({"value": value}))
}

async fn call_function(
    session: &Session,
    limit: Duration,
    target: Value,
    function: &str,
    arguments: Vec<Value>,
    by_value: bool,
) -> Result<RemoteObject, ScriptError> {
    let mut params = json!({
        "functionDeclaration": function,
        "arguments": arguments,
        "returnByValue": by_value,
        "awaitPromise": true,
        "userGesture": true,
    });
    if let (Some(params), Value::Object(target)) = (params.as_object_mut(), target) {
        params.extend(target);
    }
    let returned: Returned = session
        .call_within(limit, "Runtime.callFunctionOn", params)
        .await?;
    match returned.exception_details {
        None => Ok(returned.result),
        Some(details) => {
            let described = details
                .exception
                .and_then(|exception| exception.description);
            Err(ScriptError::Exception(described.unwrap_or(details.text)))
        }
    }
}

fn by_value<R: DeserializeOwned>(returned: RemoteObject) -> Result<R, ScriptError> {
    serde_json::from_value(returned.value).map_err(|error| {
        ScriptError::Browser(CdpError::Malformed {
            method: "Runtime.callFunctionOn",
            message: error.to_string(),
        })
    })
}
