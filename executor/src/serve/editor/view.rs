//! The command `view`: a file with line numbers, part of one, or a directory.

use serde_json::Value;

use super::change::lines;
use super::error::EditError;
use super::number::number;
use super::path::Target;
use super::{load, tree};
use crate::serve::python::repr;

pub(super) fn view(target: &Target, range: Option<&Value>) -> Result<String, EditError> {
    let range = range.filter(|range| is_given(range));
    if target.is_directory() {
        if let Some(range) = range {
            let hint =
                "The `view_range` parameter is not allowed when `path` points to a directory.";
            return Err(refuse(range, hint.to_owned()));
        }
        return tree::show(target);
    }
    if target.is_convertible() {
        target.check_size()?;
        return Err(EditError::Conversion {
            path: target.shown(),
            reason: "no converter is installed",
        });
    }
    let (_, document) = load(target)?;
    match range {
        None => Ok(number(document.text(), &target.shown(), 1)),
        Some(range) => part(target, document.text(), range),
    }
}

fn part(target: &Target, text: &str, range: &Value) -> Result<String, EditError> {
    let count = text.split_inclusive('\n').count();
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let (start, end) = pair(range)
        .ok_or_else(|| refuse(range, "It should be a list of two integers.".to_owned()))?;
    if start < 1 || start > count {
        return Err(refuse(
            range,
            format!(
                "Its first element `{start}` should be within the range of lines of the file: \
                 [1, {count}]."
            ),
        ));
    }
    let note = if end > count {
        format!(
            "NOTE: We only show up to {count} since there're only {count} lines in this file.\n"
        )
    } else {
        String::new()
    };
    let end = if end == -1 { count } else { end.min(count) };
    if end < start {
        return Err(refuse(
            range,
            format!(
                "Its second element `{end}` should be greater than or equal to the first element \
                 `{start}`."
            ),
        ));
    }
    let first = usize::try_from(start).unwrap_or(1);
    let shown = lines(text, first, usize::try_from(end).unwrap_or(first));
    let shown = shown.strip_suffix('\n').unwrap_or(shown);
    Ok(format!("{note}{}", number(shown, &target.shown(), first)))
}

/// What Python takes for true.
fn is_given(range: &Value) -> bool {
    match range {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Bool(true) => true,
    }
}

fn pair(range: &Value) -> Option<(i64, i64)> {
    let [start, end] = range.as_array()?.as_slice() else {
        return None;
    };
    Some((start.as_i64()?, end.as_i64()?))
}

fn refuse(range: &Value, hint: String) -> EditError {
    EditError::Invalid {
        parameter: "view_range",
        value: range.as_str().map_or_else(|| repr(range), str::to_owned),
        hint,
    }
}
