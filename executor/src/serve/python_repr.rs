//! Formats JSON values as Python prints them: error texts of the Python server contain them, and
//! clients show and match those texts.

use std::fmt::{self, Debug, Formatter, Write as _};

use serde_json::Value;

pub(super) fn repr(value: &Value) -> String {
    format!("{:?}", Repr(value))
}

struct Repr<'a>(&'a Value);

impl Debug for Repr<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Number(number) => write!(f, "{number}"),
            Value::String(string) => Quoted(string).fmt(f),
            Value::Array(items) => f.debug_list().entries(items.iter().map(Repr)).finish(),
            Value::Object(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| (Quoted(key), Repr(value)));
                f.debug_map().entries(entries).finish()
            }
        }
    }
}

/// In single quotes, unless the string contains those and no double ones.
struct Quoted<'a>(&'a str);

impl Debug for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let double = self.0.contains('\'') && !self.0.contains('"');
        let quote = if double { '"' } else { '\'' };
        f.write_char(quote)?;
        for character in self.0.chars() {
            match character {
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\\' => f.write_str("\\\\")?,
                _ if character == quote => write!(f, "\\{quote}")?,
                _ if character.is_control() => write!(f, "\\x{:02x}", u32::from(character))?,
                _ => f.write_char(character)?,
            }
        }
        f.write_char(quote)
    }
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
