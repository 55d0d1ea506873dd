//! Literals of Python: strings without prefix, with all escapes, and decimal numbers.

use super::value::Value;
use crate::error::StepError;

/// Returns the number of bytes looked at, and the body unless the literal has no end.
pub(super) fn find_string(text: &str) -> (usize, Option<&str>) {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let mut looked_at = 0;
    if text.starts_with(&triple) {
        let end = find_end(text, &triple, |escaped| escaped != b'\n');
        if let Ok(end) = end {
            return (end + 3, Some(&text[3..end]));
        }
        looked_at = end.unwrap_or_else(|stop| stop);
    }
    match find_end(text, quote, |_| true) {
        Ok(end) => (end + 1, Some(&text[1..end])),
        Err(stop) => (looked_at + stop, None),
    }
}

/// Returns the position of the closing quotes; otherwise that of the byte that excludes a match.
fn find_end(text: &str, quotes: &str, accepts_escape: fn(u8) -> bool) -> Result<usize, usize> {
    let bytes = text.as_bytes();
    let mut position = quotes.len();
    loop {
        let rest = &bytes[position..];
        if rest.starts_with(quotes.as_bytes()) {
            return Ok(position);
        }
        match rest {
            [b'\n' | b'\r', ..] if quotes.len() == 1 => return Err(position),
            [b'\\', b'x', digit, ..] if quotes.len() == 1 && !digit.is_ascii_hexdigit() => {
                return Err(position);
            }
            [b'\\', escaped, ..] if accepts_escape(*escaped) => position += 2,
            [] | [b'\\', ..] => return Err(position),
            _ => position += 1,
        }
    }
}

/// Replaces the escapes in the body of a literal.
pub(super) fn decode(body: &str) -> Result<String, StepError> {
    if body.contains('\0') {
        let message = "source code string cannot contain null bytes";
        return Err(StepError::new("SyntaxError", message));
    }
    let body = body.replace("\r\n", "\n").replace('\r', "\n");
    let mut decoder = Decoder {
        rest: &body,
        decoded: String::with_capacity(body.len()),
        offset: 0,
    };
    while let Some(plain) = decoder.rest.find('\\') {
        let (plain, escape) = decoder.rest.split_at(plain);
        decoder.decoded.push_str(plain);
        decoder.offset += ascii_length(plain);
        decoder.rest = &escape[1..];
        decoder.decode_escape()?;
    }
    decoder.decoded.push_str(decoder.rest);
    Ok(decoder.decoded)
}

/// Length of the text in the form in which Python counts: other characters as `\UXXXXXXXX`.
fn ascii_length(text: &str) -> usize {
    text.chars()
        .map(|character| if character.is_ascii() { 1 } else { 10 })
        .sum()
}

struct Decoder<'a> {
    /// The part behind the backslash.
    rest: &'a str,
    decoded: String,
    /// Position of the backslash, for error texts.
    offset: usize,
}

impl Decoder<'_> {
    fn decode_escape(&mut self) -> Result<(), StepError> {
        let Some(first) = self.rest.chars().next() else {
            return Ok(());
        };
        let plain = match first {
            'x' => return self.decode_hexadecimal(2, r"truncated \xXX escape"),
            'u' => return self.decode_hexadecimal(4, r"truncated \uXXXX escape"),
            'U' => return self.decode_hexadecimal(8, r"truncated \UXXXXXXXX escape"),
            'N' => return self.decode_name(),
            '0'..='7' => {
                let digits = self.rest.bytes().take(3);
                let length = digits
                    .take_while(|digit| (b'0'..=b'7').contains(digit))
                    .count();
                let code = u32::from_str_radix(&self.rest[..length], 8).unwrap_or_default();
                self.replace(length, char::from_u32(code).unwrap_or_default());
                return Ok(());
            }
            '\n' => {
                self.consume(1);
                return Ok(());
            }
            '\\' | '\'' | '"' => first,
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            _ => {
                self.replace(0, '\\');
                return Ok(());
            }
        };
        self.replace(1, plain);
        Ok(())
    }

    fn replace(&mut self, length: usize, character: char) {
        self.decoded.push(character);
        self.consume(length);
    }

    /// Passes the backslash and `length` bytes of ASCII.
    fn consume(&mut self, length: usize) {
        self.rest = &self.rest[length..];
        self.offset += length + 1;
    }

    fn decode_hexadecimal(&mut self, length: usize, problem: &str) -> Result<(), StepError> {
        let digits = self.rest[1..].bytes().take(length);
        let found = digits.take_while(u8::is_ascii_hexdigit).count();
        if found < length {
            return Err(self.error(found + 1, problem));
        }
        let code = u32::from_str_radix(&self.rest[1..=length], 16).unwrap_or(u32::MAX);
        if let Some(character) = char::from_u32(code) {
            self.replace(length + 1, character);
        } else if !(0xd800..0xe000).contains(&code) {
            return Err(self.error(length + 1, "illegal Unicode character"));
        } else if let Some(character) = self.rest.get(length + 1..).and_then(|low| join(code, low))
        {
            self.replace(length + 7, character);
        } else {
            // Rust has no lone surrogates, and pages replace them just so.
            self.replace(length + 1, char::REPLACEMENT_CHARACTER);
        }
        Ok(())
    }

    fn decode_name(&mut self) -> Result<(), StepError> {
        let Some(behind) = self.rest.strip_prefix("N{") else {
            return Err(self.error(1, r"malformed \N character escape"));
        };
        let (name, end) = match behind.split_once('}') {
            Some((name, _)) if !name.is_empty() => (name, name.len()),
            Some(_) => return Err(self.error(2, r"malformed \N character escape")),
            None => {
                let length = ascii_length(behind) + 2;
                return Err(self.error(length, r"malformed \N character escape"));
            }
        };
        match unicode_names2::character(name) {
            Some(character) => {
                self.replace(end + 3, character);
                Ok(())
            }
            None => Err(self.error(ascii_length(name) + 3, "unknown Unicode character name")),
        }
    }

    /// Error of the escape that is `length` bytes long without its backslash.
    fn error(&self, length: usize, problem: &str) -> StepError {
        let (first, last) = (self.offset, self.offset + length);
        let message = format!(
            "(unicode error) 'unicodeescape' codec can't decode bytes \
             in position {first}-{last}: {problem} (<unknown>, line 1)"
        );
        StepError::new("SyntaxError", message)
    }
}

/// Joins the halves of a surrogate pair, as the JSON on the way to the browser does.
fn join(high: u32, low: &str) -> Option<char> {
    let digits = low.strip_prefix("\\u")?.get(..4)?;
    let low = u16::from_str_radix(digits, 16).ok()?;
    let pair = [u16::try_from(high).ok()?, low];
    char::decode_utf16(pair).next()?.ok()
}

/// Returns the length and the value of the number at the start of the text.
pub(super) fn find_number(text: &str) -> Option<(usize, Value)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let whole = digits(sign);
    let mut end = sign + whole;
    let mut is_float = false;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        is_float = whole + fraction > 0;
        end += usize::from(is_float) + fraction;
    }
    if !is_float && whole == 0 {
        return None;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            is_float = true;
            end += 1 + sign + exponent;
        }
    }
    let number = &text[..end];
    let integer = number.parse().ok().filter(|_| !is_float);
    let value = match integer {
        Some(integer) => Value::Int(integer),
        None => Value::Float(number.parse().ok()?),
    };
    Some((end, value))
}
