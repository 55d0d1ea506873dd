//! Configuration of tool servers, local or remote, as clients post it (`docs/specs/executor.md`,
//! section 8.2). It is untrusted.

use std::collections::BTreeMap;

use crds::shell_words;
use http::{HeaderName, HeaderValue, Uri};
use serde_json::{Map, Value};

/// Limit of tool servers.
const MAX_SERVERS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::serve) struct Config {
    pub(super) name: String,
    pub(super) transport: Transport,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Transport {
    Stdio {
        command: String,
        arguments: Vec<String>,
        environment: BTreeMap<String, String>,
    },
    Http {
        url: Uri,
        headers: BTreeMap<String, String>,
        /// The older transport, whose responses come over an event stream.
        is_sse: bool,
    },
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in crate::serve) enum ConfigError {
    #[error("a server must be an object")]
    NoObject,
    #[error("more than {MAX_SERVERS} servers")]
    TooMany,
    #[error("`{0}` is missing or not a string")]
    Missing(&'static str),
    #[error("the name of a server must consist of letters, digits, `_` and `-`")]
    Name,
    #[error("`{0}` is invalid")]
    Invalid(&'static str),
}

/// Parses a list of servers. Of several with one name the last one is used.
pub(in crate::serve) fn parse(list: &[Value]) -> Result<Vec<Config>, ConfigError> {
    if list.len() > MAX_SERVERS {
        return Err(ConfigError::TooMany);
    }
    let objects = list
        .iter()
        .map(|server| server.as_object().ok_or(ConfigError::NoObject));
    let configs = objects.map(|object| Config::read(object?));
    let configs: Result<Vec<_>, _> = configs.collect();
    let by_name = configs?
        .into_iter()
        .map(|config| (config.name.clone(), config));
    Ok(by_name.collect::<BTreeMap<_, _>>().into_values().collect())
}

impl Config {
    fn read(object: &Map<String, Value>) -> Result<Self, ConfigError> {
        let name = text(object, "name")?.trim().to_owned();
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if name.is_empty() || !name.bytes().all(valid) {
            return Err(ConfigError::Name);
        }
        let transport = if object.contains_key("url") {
            remote(object)?
        } else {
            local(object)?
        };
        Ok(Self { name, transport })
    }
}

fn local(object: &Map<String, Value>) -> Result<Transport, ConfigError> {
    let command = text(object, "command")?.trim().to_owned();
    if command.is_empty() || command.contains([' ', '\0']) {
        return Err(ConfigError::Invalid("command"));
    }
    let arguments = match object.get("args") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(line)) => {
            shell_words::split(line).map_err(|_| ConfigError::Invalid("args"))?
        }
        Some(Value::Array(words)) => texts(words).ok_or(ConfigError::Invalid("args"))?,
        Some(_) => return Err(ConfigError::Invalid("args")),
    };
    let environment = match object.get("env") {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(Value::String(line)) => pairs(line).ok_or(ConfigError::Invalid("env"))?,
        Some(Value::Object(entries)) => entries_of(entries).ok_or(ConfigError::Invalid("env"))?,
        Some(_) => return Err(ConfigError::Invalid("env")),
    };
    let can_be_set = |(name, value): (&String, &String)| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    };
    if !environment.iter().all(can_be_set) || arguments.iter().any(|word| word.contains('\0')) {
        return Err(ConfigError::Invalid("env"));
    }
    Ok(Transport::Stdio {
        command,
        arguments,
        environment,
    })
}

fn remote(object: &Map<String, Value>) -> Result<Transport, ConfigError> {
    let url: Uri = text(object, "url")?
        .trim()
        .parse()
        .map_err(|_| ConfigError::Invalid("url"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.authority().is_none() {
        return Err(ConfigError::Invalid("url"));
    }
    let mut headers = match object.get("headers") {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(Value::Object(entries)) => {
            entries_of(entries).ok_or(ConfigError::Invalid("headers"))?
        }
        Some(_) => return Err(ConfigError::Invalid("headers")),
    };
    if let Some(Value::String(key)) = object.get("api_key") {
        headers.insert("authorization".to_owned(), format!("Bearer {key}"));
    }
    let valid = |(name, value): (&String, &String)| {
        HeaderName::try_from(name).is_ok() && HeaderValue::try_from(value).is_ok()
    };
    if !headers.iter().all(valid) {
        return Err(ConfigError::Invalid("headers"));
    }
    let is_sse = match object.get("transport").and_then(Value::as_str) {
        Some(word) => word == "sse",
        None => url.path().trim_end_matches('/').ends_with("/sse"),
    };
    Ok(Transport::Http {
        url,
        headers,
        is_sse,
    })
}

fn text<'a>(object: &'a Map<String, Value>, name: &'static str) -> Result<&'a str, ConfigError> {
    let value = object.get(name).and_then(Value::as_str);
    value.ok_or(ConfigError::Missing(name))
}

fn texts(words: &[Value]) -> Option<Vec<String>> {
    words
        .iter()
        .map(|word| Some(word.as_str()?.to_owned()))
        .collect()
}

fn entries_of(entries: &Map<String, Value>) -> Option<BTreeMap<String, String>> {
    let entries = entries.iter();
    entries
        .map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Parses `K=V,K2=V2`.
fn pairs(line: &str) -> Option<BTreeMap<String, String>> {
    let parts = line
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    parts.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(config: Value) -> Result<Config, ConfigError> {
        parse(&[config]).map(|mut configs| configs.remove(0))
    }

    #[test]
    fn parse_accepts_lists_and_strings() {
        let full = json!({"name": " a ", "command": " uvx ", "args": ["x", "y z"], "env": {"K": "V", "L": ""}});
        let short = json!({"name": "a", "command": "uvx", "args": "x 'y z'", "env": "K=V, L="});
        assert_eq!(one(full).unwrap(), one(short).unwrap());
        let least = one(json!({"name": "a", "command": "x"})).unwrap();
        assert!(
            matches!(least.transport, Transport::Stdio { arguments, environment, .. }
            if arguments.is_empty() && environment.is_empty())
        );
    }

    #[test]
    fn parse_rejects_invalid_servers() {
        for config in [
            json!(1),
            json!({"command": "x"}),
            json!({"name": "a b", "command": "x"}),
            json!({"name": "", "command": "x"}),
            json!({"name": "a"}),
            json!({"name": "a", "command": "x y"}),
            json!({"name": "a", "command": ""}),
            json!({"name": "a", "command": "x", "args": [1]}),
            json!({"name": "a", "command": "x", "args": "'"}),
            json!({"name": "a", "command": "x", "env": "novalue"}),
            json!({"name": "a", "command": "x", "env": {"A=B": "c"}}),
            json!({"name": "a", "url": "ftp://x"}),
            json!({"name": "a", "url": "/path"}),
            json!({"name": "a", "url": "http://x", "headers": {"a b": "c"}}),
        ] {
            assert!(one(config.clone()).is_err(), "{config}");
        }
        assert_eq!(parse(&vec![json!(null); 65]), Err(ConfigError::TooMany));
    }

    #[test]
    fn parse_detects_the_transport_of_a_url() {
        let config = one(json!({"name": "a", "url": "http://h:1/sse", "api_key": "k"})).unwrap();
        let Transport::Http {
            headers, is_sse, ..
        } = config.transport
        else {
            panic!("not remote");
        };
        assert!(is_sse && headers["authorization"] == "Bearer k");
        let config =
            one(json!({"name": "a", "url": "http://h/sse", "transport": "streamable-http"}));
        assert!(matches!(
            config.unwrap().transport,
            Transport::Http { is_sse: false, .. }
        ));
    }
}
