//! Properties of action bodies for property tests and fuzzing: a body is an action or is rejected
//! for a reason that holds, unknown keys change nothing, and an action survives a round trip.

use std::mem::discriminant;

use http::HeaderValue;
use serde_json::{Map, Value, json};

use super::download_files::disposition;
use super::execute_action::envelope;
use crate::serve::action::{Action, ActionError, Edit, LineNumber};
use crate::serve::plugins::browser::BrowseKind;

/// Checks the body of a request to execute an action.
pub fn action(body: &[u8]) {
    let envelope = match envelope(body) {
        Ok(envelope) => envelope,
        Err(error) => return is_one_line(&error),
    };
    let parsed = Action::parse(&envelope);
    let noisy = Action::parse(&noisy(&envelope));
    match (&parsed, &noisy) {
        (Ok(one), Ok(other)) => assert_eq!(one, other),
        (Err(one), Err(other)) => assert_eq!(discriminant(one), discriminant(other)),
        _ => unreachable!("{parsed:?} {noisy:?}"),
    }
    match parsed {
        Ok(action) => {
            let again = Action::parse(&in_full(&action));
            assert_eq!(again.as_ref(), Ok(&action));
        }
        Err(error) => {
            is_one_line(&error.to_string());
            assert!(is_so(&envelope, &error), "{error:?}");
        }
    }
}

fn is_one_line(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?}");
}

fn noisy(envelope: &Map<String, Value>) -> Map<String, Value> {
    let mut envelope = envelope.clone();
    envelope.insert("zzz".to_owned(), json!([{}]));
    if let Some(Value::Object(arguments)) = envelope.get_mut("args") {
        arguments.insert("zzz".to_owned(), json!("\u{1}"));
    }
    envelope
}

fn in_full(action: &Action) -> Map<String, Value> {
    let (word, args) = match action {
        Action::Run(run) => (
            "run",
            json!({"command": run.command, "is_input": run.is_input, "blocking": run.blocking,
                "is_static": run.is_static, "cwd": run.cwd, "hidden": run.hidden}),
        ),
        Action::Read(read) => {
            let editor = read.through_editor.as_ref();
            let source = editor.map_or("default", |_| "oh_aci");
            let view_range = editor.and_then(|edit| edit.view_range.clone());
            (
                "read",
                json!({"path": read.path, "start": read.range.start, "end": read.range.end,
                    "impl_source": source, "view_range": view_range}),
            )
        }
        Action::Write(write) => (
            "write",
            json!({"path": write.path, "content": write.content, "start": write.range.start,
                "end": write.range.end}),
        ),
        Action::Edit(edit) => ("edit", edit_in_full(edit)),
        Action::RunCell(cell) => (
            "run_ipython",
            json!({"code": cell.code, "include_extra": cell.include_extra}),
        ),
        Action::Browse(browse) => match &browse.kind {
            BrowseKind::Url(url) => (
                "browse",
                json!({"url": url, "return_axtree": browse.return_axtree}),
            ),
            BrowseKind::Program(program) => (
                "browse_interactive",
                json!({"browser_actions": program, "return_axtree": browse.return_axtree}),
            ),
        },
    };
    let timeout = match action {
        Action::Run(run) => run.timeout,
        Action::RunCell(cell) => cell.timeout,
        _ => None,
    };
    let envelope = json!({"action": word, "args": args, "timeout": timeout, "source": "agent"});
    envelope.as_object().cloned().unwrap_or_default()
}

fn edit_in_full(edit: &Edit) -> Value {
    let line = edit.insert_line.as_ref().map(|line| match line {
        LineNumber::Number(number) => json!(number),
        LineNumber::Text(text) => json!(text),
    });
    json!({"command": edit.command, "path": edit.path, "file_text": edit.file_text,
        "old_str": edit.old_str, "new_str": edit.new_str, "insert_line": line})
}

/// Returns whether the reason of the error is in the envelope.
fn is_so(envelope: &Map<String, Value>, error: &ActionError) -> bool {
    let word = envelope.get("action");
    let argument = |name: &str| envelope.get("args").and_then(|args| args.get(name));
    let served = [
        "run",
        "read",
        "write",
        "edit",
        "run_ipython",
        "browse",
        "browse_interactive",
    ];
    match error {
        ActionError::Observation => word.is_none() && envelope.contains_key("observation"),
        ActionError::UnknownEvent(_) => word.is_none() && !envelope.contains_key("observation"),
        ActionError::UnknownName(..) => served.iter().all(|served| word != Some(&json!(served))),
        ActionError::NotExecutable(other) => {
            word == Some(&json!(other)) && !served.contains(&other.as_str())
        }
        ActionError::Source(_) => envelope.get("source").is_some_and(|source| {
            let known = ["agent", "user", "environment"];
            !source.is_null() && known.iter().all(|known| source != known)
        }),
        ActionError::Missing { names, .. } => {
            !names.is_empty() && names.iter().all(|name| argument(name).is_none())
        }
        ActionError::Type("timeout") => envelope.get("timeout").is_some_and(|t| !t.is_number()),
        ActionError::Type(name) => argument(name).is_some_and(|value| !value.is_null()),
        ActionError::LlmEdit => argument("impl_source") == Some(&json!("llm_based_edit")),
    }
}

/// Checks that the header of a download contains exactly the name.
pub(in crate::serve) fn download(path: &str) {
    let header = disposition(path);
    assert!(HeaderValue::from_str(&header).is_ok_and(|value| value.to_str().is_ok()));
    let name = format!("{}.zip", path.rsplit('/').next().unwrap_or_default());
    match header.strip_prefix("attachment; filename*=utf-8''") {
        Some(quoted) => assert_eq!(unquoted(quoted), name.as_bytes()),
        None => assert_eq!(header, format!("attachment; filename=\"{name}\"")),
    }
}

fn unquoted(text: &str) -> Vec<u8> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (byte, rest) = piece.split_at(2);
        bytes.push(u8::from_str_radix(byte, 16).expect("two digits"));
        bytes.extend(rest.bytes());
    }
    bytes
}
