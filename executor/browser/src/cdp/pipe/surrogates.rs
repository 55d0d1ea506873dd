//! Halves of surrogate pairs in texts of pages. JavaScript allows them alone and Chromium writes them as
//! `\ud800`, which is no JSON that a UTF-8 text can have: one of them would make a whole tree unreadable.

use std::ops::RangeInclusive;

const ESCAPE_BYTES: usize = 6;
const REPLACEMENT: &[u8; 4] = b"fffd";
const HIGH: RangeInclusive<u16> = 0xd800..=0xdbff;
const LOW: RangeInclusive<u16> = 0xdc00..=0xdfff;

/// Puts U+FFFD in the place of each lone surrogate of a JSON text.
pub(super) fn replace_lone(text: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = text[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        let pair = (escaped(text, at), escaped(text, at + ESCAPE_BYTES));
        at += match pair {
            (Some(high), Some(low)) if HIGH.contains(&high) && LOW.contains(&low) => {
                2 * ESCAPE_BYTES
            }
            (Some(lone), _) if HIGH.contains(&lone) || LOW.contains(&lone) => {
                text[at + 2..at + ESCAPE_BYTES].copy_from_slice(REPLACEMENT);
                ESCAPE_BYTES
            }
            (Some(_), _) => ESCAPE_BYTES,
            // A backslash and the byte that it escapes.
            (None, _) => 2.min(text.len() - at),
        };
    }
}

/// Code unit of the escape at a place, if there is one.
fn escaped(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + ESCAPE_BYTES)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_stay() {
        for (given, expected) in [
            (r#""a\ud800b""#, r#""a\ufffdb""#),
            (r#""\udc00\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\uD83D""#, r#""\ufffd""#),
            (r#""\\ud800 \u00e9\n""#, r#""\\ud800 \u00e9\n""#),
            (r#""\ud800\ud800\udc00""#, r#""\ufffd\ud800\udc00""#),
        ] {
            let mut text = given.as_bytes().to_vec();
            replace_lone(&mut text);
            assert_eq!(String::from_utf8(text).unwrap(), expected);
            serde_json::from_str::<String>(expected).unwrap();
        }
        replace_lone(&mut b"\\".to_vec());
        replace_lone(&mut b"\\u12".to_vec());
    }
}
