//! Formats values as Python prints them: error texts of the Python server contain them, and
//! clients show and match those texts.

use std::fmt::{self, Debug, Formatter, Write as _};

use serde_json::Value;
use unicode_general_category::{GeneralCategory, get_general_category};

pub fn repr(value: &Value) -> String {
    format!("{:?}", Repr(value))
}

/// The `repr` of a `str`.
pub fn quoted(text: &str) -> String {
    format!("{:?}", Quoted(text))
}

/// The `repr` of a `float`: the shortest digits, with an exponent below 1e-4 and from 1e16.
pub fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    match scientific.split_once('e') {
        // "NaN" has no exponent; nor has "inf".
        None => scientific.to_lowercase(),
        Some((mantissa, exponent)) => match exponent.parse::<i32>() {
            Ok(exponent) if !(-4..16).contains(&exponent) => {
                format!("{mantissa}e{exponent:+03}")
            }
            _ => {
                let positional = number.to_string();
                let fraction = if positional.contains('.') { "" } else { ".0" };
                positional + fraction
            }
        },
    }
}

struct Repr<'a>(&'a Value);

impl Debug for Repr<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Number(number) => match number.as_f64() {
                Some(value) if number.is_f64() => f.write_str(&float(value)),
                _ => write!(f, "{number}"),
            },
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
                _ if is_printable(character) => f.write_char(character)?,
                _ => match u32::from(character) {
                    code @ ..=0xff => write!(f, "\\x{code:02x}")?,
                    code @ ..=0xffff => write!(f, "\\u{code:04x}")?,
                    code => write!(f, "\\U{code:08x}")?,
                },
            }
        }
        f.write_char(quote)
    }
}

/// The test of `str.isprintable`.
fn is_printable(character: char) -> bool {
    use GeneralCategory::{
        Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, SpaceSeparator, Surrogate,
        Unassigned,
    };
    character == ' '
        || !matches!(
            get_general_category(character),
            Control
                | Format
                | Surrogate
                | PrivateUse
                | Unassigned
                | LineSeparator
                | ParagraphSeparator
                | SpaceSeparator
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_formatted_as_by_python() {
        let value = json!({"a": [1, 2.5, null, true, 2.0], "b": "it's\n"});
        assert_eq!(
            repr(&value),
            r#"{'a': [1, 2.5, None, True, 2.0], 'b': "it's\n"}"#
        );
        assert_eq!(repr(&json!({})), "{}");
    }

    #[test]
    fn unprintable_characters_are_escaped() {
        assert_eq!(quoted("'\"\u{1}"), r#"'\'"\x01'"#);
        assert_eq!(quoted("é\u{a0}\u{ad}"), r"'é\xa0\xad'");
        assert_eq!(
            quoted("\u{2028}\u{200b}\u{e000}\u{378}"),
            r"'\u2028\u200b\ue000\u0378'"
        );
        assert_eq!(quoted("😀\u{e0001}"), r"'😀\U000e0001'");
    }

    #[test]
    fn floats_are_formatted_as_by_python() {
        for (number, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (-f64::INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(float(number), text);
        }
    }
}
