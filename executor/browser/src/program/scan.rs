//! Finds calls in any text. Each identifier is tried as the start of a call; the scan goes on
//! behind a match, or behind the identifier if there is none.

use std::collections::HashMap;

use super::call::{Call, is_action};
use super::literal;
use super::value::Value;
use crate::error::StepError;

/// Deeper values do not match, which bounds the stack.
const MAX_DEPTH: usize = 64;

/// Bytes that may be looked at per byte of the program. A program of prose needs about two;
/// strings that contain unfinished calls can need more, up to a quadratic amount.
const MAX_WORK_PER_BYTE: usize = 16;

pub(super) fn scan(text: &str) -> Result<Vec<Call>, StepError> {
    let mut scanner = Scanner {
        text,
        position: 0,
        work: 0,
    };
    let mut calls = Vec::new();
    let mut unclosed = Unclosed::default();
    loop {
        scanner.skip_blank();
        let Some(character) = scanner.peek() else {
            return Ok(calls);
        };
        if !is_identifier_start(character) {
            unclosed.pass(character);
            scanner.advance(character.len_utf8());
            continue;
        }
        let name = scanner.take_identifier();
        let behind = scanner.position;
        if let Some((positional, named)) = scanner.take_arguments()? {
            unclosed.check(name)?;
            calls.push(Call {
                name: name.to_owned(),
                positional,
                named,
            });
        } else {
            scanner.position = behind;
            scanner.skip_blank();
            if scanner.peek() == Some('(') {
                unclosed.open(name);
            }
        }
        if scanner.work > text.len().saturating_mul(MAX_WORK_PER_BYTE) {
            let message = "Too many unfinished calls in the program.";
            return Err(StepError::new("ValueError", message));
        }
    }
}

/// The first action whose call did not match and whose parentheses are still open.
#[derive(Default)]
struct Unclosed<'a> {
    name: Option<&'a str>,
    depth: usize,
}

impl<'a> Unclosed<'a> {
    fn open(&mut self, name: &'a str) {
        if self.name.is_none() && is_action(name) {
            *self = Self {
                name: Some(name),
                depth: 0,
            };
        }
    }

    fn pass(&mut self, character: char) {
        match character {
            '(' => self.depth += 1,
            ')' => self.depth = self.depth.saturating_sub(1),
            _ => return,
        }
        if self.depth == 0 {
            self.name = None;
        }
    }

    /// Refuses a call that is an argument of another one, or part of a text meant for it.
    fn check(&self, inner: &str) -> Result<(), StepError> {
        match self.name {
            Some(outer) if is_action(inner) => Err(StepError::new(
                "ValueError",
                format!(
                    "Could not parse the call of '{outer}', which contains '{inner}(…)'. \
                     Arguments must be plain literals. Nothing was executed."
                ),
            )),
            _ => Ok(()),
        }
    }
}

struct Scanner<'a> {
    text: &'a str,
    position: usize,
    work: usize,
}

type Arguments = (Vec<Value>, Vec<(String, Value)>);

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let taken = &self.rest()[..bytes];
        self.position += bytes;
        self.work += bytes;
        taken
    }

    fn take_while(&mut self, accepts: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        self.advance(
            rest.find(|character| !accepts(character))
                .unwrap_or(rest.len()),
        )
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) {
        loop {
            self.take_while(|character| matches!(character, ' ' | '\t' | '\n' | '\r'));
            if self.peek() != Some('#') {
                return;
            }
            self.take_while(|character| character != '\n');
        }
    }

    fn eat(&mut self, expected: char) -> bool {
        self.skip_blank();
        let found = self.peek() == Some(expected);
        if found {
            self.advance(expected.len_utf8());
        }
        found
    }

    fn take_identifier(&mut self) -> &'a str {
        self.take_while(is_identifier_part)
    }

    fn take_arguments(&mut self) -> Result<Option<Arguments>, StepError> {
        if !self.eat('(') {
            return Ok(None);
        }
        let mut positional = Vec::new();
        while let Some(value) = self.take_value(0)? {
            positional.push(value);
            if !self.eat(',') {
                break;
            }
        }
        let mut named = Vec::new();
        loop {
            self.skip_blank();
            if !self.peek().is_some_and(is_identifier_start) {
                break;
            }
            let name = self.take_identifier();
            if !self.eat('=') {
                return Ok(None);
            }
            let Some(value) = self.take_value(0)? else {
                return Ok(None);
            };
            named.push((name.to_owned(), value));
            if !self.eat(',') {
                break;
            }
        }
        Ok(self.eat(')').then_some((positional, named)))
    }

    fn take_value(&mut self, depth: usize) -> Result<Option<Value>, StepError> {
        self.skip_blank();
        let start = self.position;
        let Some(first) = self.peek().filter(|_| depth < MAX_DEPTH) else {
            return Ok(None);
        };
        let value = match first {
            '"' | '\'' => self.take_string()?.map(Value::Str),
            '[' => self.take_items(']', depth)?.map(Value::List),
            '(' => self.take_items(')', depth)?.map(Value::Tuple),
            '{' => self.take_entries(depth)?.map(Value::Dict),
            'T' => self.take_keyword("True").then_some(Value::Bool(true)),
            'F' => self.take_keyword("False").then_some(Value::Bool(false)),
            'N' => self.take_keyword("None").then_some(Value::None),
            _ => self.take_number(),
        };
        if value.is_none() {
            // The value may be absent altogether: the caller goes on with what follows.
            self.position = start;
        }
        Ok(value)
    }

    fn take_string(&mut self) -> Result<Option<String>, StepError> {
        let (length, body) = literal::find_string(self.rest());
        self.work += length;
        let Some(body) = body else {
            return Ok(None);
        };
        self.position += length;
        literal::decode(body).map(Some)
    }

    fn take_keyword(&mut self, word: &str) -> bool {
        let rest = self.rest().strip_prefix(word);
        let found =
            rest.is_some_and(|rest| !rest.starts_with(|c| is_identifier_part(c) || c == '$'));
        if found {
            self.advance(word.len());
        }
        found
    }

    fn take_items(&mut self, close: char, depth: usize) -> Result<Option<Vec<Value>>, StepError> {
        self.advance(1);
        let mut items = Vec::new();
        while let Some(item) = self.take_value(depth + 1)? {
            items.push(item);
            if !self.eat(',') {
                break;
            }
        }
        Ok(self.eat(close).then_some(items))
    }

    fn take_entries(&mut self, depth: usize) -> Result<Option<Vec<(String, Value)>>, StepError> {
        self.advance(1);
        let mut entries = Vec::new();
        loop {
            self.skip_blank();
            if !matches!(self.peek(), Some('"' | '\'')) {
                break;
            }
            let Some(key) = self.take_string()? else {
                return Ok(None);
            };
            if !self.eat(':') {
                return Ok(None);
            }
            let Some(value) = self.take_value(depth + 1)? else {
                return Ok(None);
            };
            entries.push((key, value));
            if !self.eat(',') {
                break;
            }
        }
        Ok(self.eat('}').then(|| merge_entries(entries)))
    }

    fn take_number(&mut self) -> Option<Value> {
        let (length, value) = literal::find_number(self.rest())?;
        self.advance(length);
        Some(value)
    }
}

/// Keeps the first position and the last value of each key.
fn merge_entries(entries: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let mut places = HashMap::new();
    let mut merged: Vec<(String, Value)> = Vec::new();
    for (key, value) in entries {
        let place = *places.entry(key.clone()).or_insert(merged.len());
        if place < merged.len() {
            merged[place].1 = value;
        } else {
            merged.push((key, value));
        }
    }
    merged
}

/// Letters of Latin-1 only: in `点击click("1")` the name is `click`.
fn is_identifier_start(character: char) -> bool {
    character == '_' || (character <= 'ÿ' && character.is_alphabetic())
}

fn is_identifier_part(character: char) -> bool {
    is_identifier_start(character) || character.is_ascii_digit() || character == '·'
}
