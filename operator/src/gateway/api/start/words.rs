//! Splits a line into words by the quoting rules of the POSIX shell (XCU 2.2), and nothing else of
//! it: no expansion, no operators, no comments.

use std::iter::Peekable;
use std::str::Chars;

/// Why a line has no words.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum WordsError {
    #[error("a quote is not closed")]
    OpenQuote,
    #[error("nothing follows the last backslash")]
    OpenEscape,
}

/// The words of a line.
pub(super) fn split(line: &str) -> Result<Vec<String>, WordsError> {
    let mut rest = line.chars().peekable();
    let mut words = Vec::new();
    while let Some(word) = next(&mut rest)? {
        words.push(word);
    }
    Ok(words)
}

fn next(rest: &mut Peekable<Chars<'_>>) -> Result<Option<String>, WordsError> {
    while rest.next_if(|c| is_blank(*c)).is_some() {}
    if rest.peek().is_none() {
        return Ok(None);
    }
    let mut word = String::new();
    while let Some(c) = rest.next_if(|c| !is_blank(*c)) {
        match c {
            '\'' => single_quoted(rest, &mut word)?,
            '"' => double_quoted(rest, &mut word)?,
            '\\' => match rest.next().ok_or(WordsError::OpenEscape)? {
                '\n' => {}
                c => word.push(c),
            },
            c => word.push(c),
        }
    }
    Ok(Some(word))
}

fn single_quoted(rest: &mut Peekable<Chars<'_>>, word: &mut String) -> Result<(), WordsError> {
    loop {
        match rest.next().ok_or(WordsError::OpenQuote)? {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
}

fn double_quoted(rest: &mut Peekable<Chars<'_>>, word: &mut String) -> Result<(), WordsError> {
    loop {
        match rest.next().ok_or(WordsError::OpenQuote)? {
            '"' => return Ok(()),
            '\\' => match rest.next().ok_or(WordsError::OpenQuote)? {
                '\n' => {}
                c @ ('$' | '`' | '"' | '\\') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_does() {
        let cases: [(&str, &[&str]); 9] = [
            ("", &[]),
            (" \t\n", &[]),
            (
                "/bin/agent --port 60000",
                &["/bin/agent", "--port", "60000"],
            ),
            ("a 'b  c' d", &["a", "b  c", "d"]),
            (r#"a "b \" \n \\ $x" ''"#, &["a", r#"b " \n \ $x"#, ""]),
            (r"a\ b c\'d", &["a b", "c'd"]),
            ("a\\\nb", &["ab"]),
            ("x=1'2'\"3\"4", &["x=1234"]),
            (
                "a#b # c; d | e > f",
                &["a#b", "#", "c;", "d", "|", "e", ">", "f"],
            ),
        ];
        for (line, words) in cases {
            assert_eq!(split(line).unwrap(), words, "{line:?}");
        }
    }

    #[test]
    fn open_ends_are_refused() {
        assert_eq!(split("a 'b"), Err(WordsError::OpenQuote));
        assert_eq!(split("a \"b"), Err(WordsError::OpenQuote));
        assert_eq!(split("a \"b\\"), Err(WordsError::OpenQuote));
        assert_eq!(split("a \\"), Err(WordsError::OpenEscape));
    }
}
