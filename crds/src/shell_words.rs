//! Splits a line into words by the quoting rules of the POSIX shell (XCU 2.2), without expansion,
//! operators and comments. The crate `shlex` drops the words after a `#`, which is text here.

use std::iter::Peekable;
use std::str::Chars;

/// Syntax error of a command line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShellWordsError {
    #[error("a quote is not closed")]
    UnclosedQuote,
    #[error("nothing follows the last backslash")]
    TrailingBackslash,
}

/// Splits a line into words.
pub fn split(line: &str) -> Result<Vec<String>, ShellWordsError> {
    let mut rest = line.chars().peekable();
    let mut words = Vec::new();
    while let Some(word) = next(&mut rest)? {
        words.push(word);
    }
    Ok(words)
}

fn next(rest: &mut Peekable<Chars<'_>>) -> Result<Option<String>, ShellWordsError> {
    while rest.next_if(|c| is_blank(*c)).is_some() {}
    if rest.peek().is_none() {
        return Ok(None);
    }
    let mut word = String::new();
    while let Some(c) = rest.next_if(|c| !is_blank(*c)) {
        match c {
            '\'' => single_quoted(rest, &mut word)?,
            '"' => double_quoted(rest, &mut word)?,
            '\\' => match rest.next().ok_or(ShellWordsError::TrailingBackslash)? {
                '\n' => {}
                c => word.push(c),
            },
            c => word.push(c),
        }
    }
    Ok(Some(word))
}

fn single_quoted(rest: &mut Peekable<Chars<'_>>, word: &mut String) -> Result<(), ShellWordsError> {
    loop {
        match rest.next().ok_or(ShellWordsError::UnclosedQuote)? {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
}

fn double_quoted(rest: &mut Peekable<Chars<'_>>, word: &mut String) -> Result<(), ShellWordsError> {
    loop {
        match rest.next().ok_or(ShellWordsError::UnclosedQuote)? {
            '"' => return Ok(()),
            '\\' => match rest.next().ok_or(ShellWordsError::UnclosedQuote)? {
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
        assert_eq!(split("a 'b"), Err(ShellWordsError::UnclosedQuote));
        assert_eq!(split("a \"b"), Err(ShellWordsError::UnclosedQuote));
        assert_eq!(split("a \"b\\"), Err(ShellWordsError::UnclosedQuote));
        assert_eq!(split("a \\"), Err(ShellWordsError::TrailingBackslash));
    }
}
