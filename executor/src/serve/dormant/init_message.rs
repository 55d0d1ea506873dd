//! Init message on standard input: one line of JSON, which holds secrets. Errors do not quote it.

use crds::contract::control::Init;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

/// Limit of a control call, and of the message.
const MAX_BYTES: u64 = 3 << 20;

#[derive(Debug, thiserror::Error)]
pub(super) enum InitMessageError {
    #[error("cannot read the init message")]
    Read(#[source] std::io::Error),
    #[error("standard input has ended without an init message")]
    Missing,
    #[error("the init message exceeds {MAX_BYTES} bytes")]
    TooLong,
    #[error("the init message is malformed at column {0}")]
    Malformed(usize),
    #[error("a variable of the init message has a zero byte or an invalid name")]
    Variable,
}

/// Reads the message up to the end of its line.
pub(super) async fn read(input: impl AsyncRead + Unpin) -> Result<Init, InitMessageError> {
    let mut line = Vec::new();
    let mut input = BufReader::new(input.take(MAX_BYTES + 1));
    let read = input.read_until(b'\n', &mut line).await;
    read.map_err(InitMessageError::Read)?;
    if line.len() as u64 > MAX_BYTES {
        return Err(InitMessageError::TooLong);
    }
    let line = line.strip_suffix(b"\n").ok_or(InitMessageError::Missing)?;
    let parsed = serde_json::from_slice(line);
    let init: Init = parsed.map_err(|error| InitMessageError::Malformed(error.column()))?;
    let is_valid = |(name, value): (&String, &String)| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    };
    if init.environment.iter().all(is_valid) {
        Ok(init)
    } else {
        Err(InitMessageError::Variable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn error_of(text: &str) -> String {
        read(text.as_bytes()).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn errors_do_not_quote_the_message() {
        let init = r#"{"command":[],"workingDir":"/","probe":{},"environment":{"A":"secret"}}"#;
        assert!(read(format!("{init}\n").as_bytes()).await.is_ok());
        for (text, expected) in [
            (String::new(), "has ended"),
            (init.to_owned(), "has ended"),
            (
                "{\"command\":\"secret\"}\n".to_owned(),
                "malformed at column 19",
            ),
            (init.replace("secret", "secret\\u0000") + "\n", "zero byte"),
            (init.replace("\"A\"", "\"A=\"") + "\n", "invalid name"),
            ("x".repeat(4 << 20), "exceeds 3145728 bytes"),
        ] {
            let error = error_of(&text).await;
            assert!(
                error.contains(expected) && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
