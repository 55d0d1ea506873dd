//! Formats JSON values as Python prints them: error texts of the Python server contain them, and
//! clients show and match those texts.

use std::fmt::Write as _;

use serde_json::Value;

pub(super) fn repr(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("None"),
        Value::Bool(true) => text.push_str("True"),
        Value::Bool(false) => text.push_str("False"),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::String(string) => write_string(text, string),
        Value::Array(items) => {
            text.push('[');
            separated(text, items, write_value);
            text.push(']');
        }
        Value::Object(entries) => {
            text.push('{');
            separated(text, entries, |text, (key, value)| {
                write_string(text, key);
                text.push_str(": ");
                write_value(text, value);
            });
            text.push('}');
        }
    }
}

fn separated<T>(
    text: &mut String,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut String, T),
) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        write(text, item);
    }
}

/// Uses single quotes, unless the string contains those and no double ones.
fn write_string(text: &mut String, string: &str) {
    let quote = if string.contains('\'') && !string.contains('"') {
        '"'
    } else {
        '\''
    };
    text.push(quote);
    for character in string.chars() {
        match character {
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\\' => text.push_str("\\\\"),
            _ if character == quote => {
                text.push('\\');
                text.push(quote);
            }
            _ if character.is_control() => {
                let _ = write!(text, "\\x{:02x}", u32::from(character));
            }
            _ => text.push(character),
        }
    }
    text.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_formatted_as_by_python() {
        let value = json!({"a": [1, 2.5, null, true], "b": "it's\n"});
        assert_eq!(
            repr(&value),
            r#"{'a': [1, 2.5, None, True], 'b': "it's\n"}"#
        );
        assert_eq!(repr(&json!("'\"\u{1}")), r#"'\'"\x01'"#);
        assert_eq!(repr(&json!({})), "{}");
    }
}
