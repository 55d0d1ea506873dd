//! Configuration of tool servers, local or remote, as clients post it (`docs/specs/executor.md`,
//! section 8.2). It is untrusted.

use std::collections::BTreeMap;

use crds::shell_words;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde_json::{Map, Value};

const MAX_SERVERS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(super) name: String,
    pub(super) transport: Transport,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Transport {
    Stdio(LocalServer),
    Http(RemoteServer),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalServer {
    pub(super) command: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemoteServer {
    pub(super) url: Uri,
    pub(super) headers: HeaderMap,
    /// The older transport, whose responses come over an event stream.
    pub(super) is_sse: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ConfigError {
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
pub(crate) fn parse(list: &[Value]) -> Result<Vec<Config>, ConfigError> {
    if list.len() > MAX_SERVERS {
        return Err(ConfigError::TooMany);
    }
    let mut by_name = BTreeMap::new();
    for server in list {
        let config = Config::read(server.as_object().ok_or(ConfigError::NoObject)?)?;
        by_name.insert(config.name.clone(), config);
    }
    Ok(by_name.into_values().collect())
}

impl Config {
    /// A server without headers at a URL.
    pub(crate) fn of_plugin(name: &str, url: Uri) -> Self {
        let is_sse = is_sse(&url);
        let headers = HeaderMap::new();
        Self {
            name: name.to_owned(),
            transport: Transport::Http(RemoteServer {
                url,
                headers,
                is_sse,
            }),
        }
    }

    fn read(object: &Map<String, Value>) -> Result<Self, ConfigError> {
        let name = text(object, "name")?.trim().to_owned();
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if name.is_empty() || !name.bytes().all(valid) {
            return Err(ConfigError::Name);
        }
        let transport = if object.contains_key("url") {
            Transport::Http(remote(object)?)
        } else {
            Transport::Stdio(local(object)?)
        };
        Ok(Self { name, transport })
    }
}

fn local(object: &Map<String, Value>) -> Result<LocalServer, ConfigError> {
    let command = text(object, "command")?.trim().to_owned();
    if command.is_empty() || command.contains([' ', '\0']) {
        return Err(ConfigError::Invalid("command"));
    }
    let arguments = match object.get("args") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::String(line)) => shell_words::split(line).ok(),
        Some(Value::Array(words)) => texts(words),
        Some(_) => None,
    };
    let arguments = arguments.ok_or(ConfigError::Invalid("args"))?;
    let environment = match object.get("env") {
        Some(Value::String(line)) => pairs(line),
        _ => entries(object, "env"),
    };
    let environment = environment.ok_or(ConfigError::Invalid("env"))?;
    let can_be_set = |(name, value): (&String, &String)| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    };
    if !environment.iter().all(can_be_set) || arguments.iter().any(|word| word.contains('\0')) {
        return Err(ConfigError::Invalid("env"));
    }
    Ok(LocalServer {
        command,
        arguments,
        environment,
    })
}

fn remote(object: &Map<String, Value>) -> Result<RemoteServer, ConfigError> {
    let url = text(object, "url")?.trim().parse();
    let url: Uri = url.map_err(|_| ConfigError::Invalid("url"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.authority().is_none() {
        return Err(ConfigError::Invalid("url"));
    }
    let mut headers = entries(object, "headers").ok_or(ConfigError::Invalid("headers"))?;
    if let Some(Value::String(key)) = object.get("api_key") {
        headers.insert("authorization".to_owned(), format!("Bearer {key}"));
    }
    let is_sse = match object.get("transport").and_then(Value::as_str) {
        Some(word) => word == "sse",
        None => is_sse(&url),
    };
    let header = |(name, value): (&String, &String)| {
        let name = HeaderName::try_from(name).ok()?;
        Some((name, HeaderValue::try_from(value).ok()?))
    };
    let headers: Option<HeaderMap> = headers.iter().map(header).collect();
    Ok(RemoteServer {
        url,
        headers: headers.ok_or(ConfigError::Invalid("headers"))?,
        is_sse,
    })
}

fn is_sse(url: &Uri) -> bool {
    url.path().trim_end_matches('/').ends_with("/sse")
}

fn text<'a>(object: &'a Map<String, Value>, name: &'static str) -> Result<&'a str, ConfigError> {
    let value = object.get(name).and_then(Value::as_str);
    value.ok_or(ConfigError::Missing(name))
}

fn texts(words: &[Value]) -> Option<Vec<String>> {
    let text = |word: &Value| Some(word.as_str()?.to_owned());
    words.iter().map(text).collect()
}

/// Reads an optional object of texts.
fn entries(object: &Map<String, Value>, name: &str) -> Option<BTreeMap<String, String>> {
    match object.get(name) {
        None | Some(Value::Null) => Some(BTreeMap::new()),
        Some(Value::Object(entries)) => {
            let text =
                |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
            entries.iter().map(text).collect()
        }
        Some(_) => None,
    }
}

/// Parses `K=V,K2=V2`.
fn pairs(line: &str) -> Option<BTreeMap<String, String>> {
    let parts = line.split(',').map(str::trim);
    let pair = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    parts.filter(|part| !part.is_empty()).map(pair).collect()
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
        assert!(matches!(least.transport, Transport::Stdio(local)
            if local.arguments.is_empty() && local.environment.is_empty()));
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
        let remote = |config| match one(config).unwrap().transport {
            Transport::Http(remote) => remote,
            Transport::Stdio(local) => panic!("not remote: {local:?}"),
        };
        let found = remote(json!({"name": "a", "url": "http://h:1/sse", "api_key": "k"}));
        assert!(found.is_sse && found.headers["authorization"] == "Bearer k");
        let found =
            remote(json!({"name": "a", "url": "http://h/sse", "transport": "streamable-http"}));
        assert!(!found.is_sse);
    }
}
