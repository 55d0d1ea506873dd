//! The command `view`: a file with line numbers, part of one, or a directory.

use browser::python_repr::repr;
use serde_json::Value;

use super::EditError;
use super::directory_view;
use super::edit_commands::lines;
use super::edit_target::EditTarget;
use super::line_numbers::number;

/// Shows a file or directory. `converted` is the text of a document, which the caller has read.
pub(super) fn view(
    target: &EditTarget,
    range: Option<&Value>,
    converted: Option<&str>,
) -> Result<String, EditError> {
    let range = range.filter(|range| is_given(range));
    if target.is_directory() {
        if let Some(range) = range {
            let hint =
                "The `view_range` parameter is not allowed when `path` points to a directory.";
            return Err(refuse(range, hint.to_owned()));
        }
        return directory_view::show(target);
    }
    if target.is_convertible() {
        target.check_size()?;
        let text = converted.ok_or_else(|| EditError::Conversion {
            path: target.shown(),
            reason: "no converter is installed",
        })?;
        return show(target, text, range);
    }
    let (_, document) = target.load()?;
    show(target, document.text(), range)
}

fn show(target: &EditTarget, text: &str, range: Option<&Value>) -> Result<String, EditError> {
    match range {
        None => Ok(number(text, &target.shown(), 1)),
        Some(range) => part(target, text, range),
    }
}

fn part(target: &EditTarget, text: &str, range: &Value) -> Result<String, EditError> {
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

/// Truth value of Python.
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
