//! Splits a line into words by the quoting rules of the POSIX shell (XCU 2.2), without expansion,
//! operators and comments. The crate `shlex` drops the words after a `#`, which is text here.

/// Syntax error of a command line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShellWordsError {
    #[error("a quote is not closed")]
    UnclosedQuote,
    #[error("nothing follows the last backslash")]
    TrailingBackslash,
}

pub fn split(line: &str) -> Result<Vec<String>, ShellWordsError> {
    let mut rest = line.chars();
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    while let Some(c) = rest.next() {
        match (quote, c) {
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None | Some('"'), '\\') => match (quote, rest.next()) {
                (None, None) => return Err(ShellWordsError::TrailingBackslash),
                (Some(_), None) => return Err(ShellWordsError::UnclosedQuote),
                // A continued line.
                (_, Some('\n')) => {}
                (Some(_), Some(c)) if !matches!(c, '$' | '`' | '"' | '\\') => {
                    word.get_or_insert_default().extend(['\\', c]);
                }
                (_, Some(c)) => word.get_or_insert_default().push(c),
            },
            (Some(open), c) if c == open => quote = None,
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(ShellWordsError::UnclosedQuote);
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_does() {
        let cases: [(&str, &[&str]); 10] = [
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
            ("a \\\n  --b \\\n", &["a", "--b"]),
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
