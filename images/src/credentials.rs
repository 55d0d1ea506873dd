//! Credentials of registries, from Secrets of type `kubernetes.io/dockerconfigjson` and files of
//! the same format.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::{Digest, Reference};

/// Users and passwords by registry, or by registry and path.
#[derive(Clone, Default)]
pub struct Credentials(Vec<Entry>);

#[derive(Clone)]
struct Entry {
    /// `HOST[:PORT][/PATH]`; parts of the host may be `*`.
    key: String,
    /// Absent if the entry only names a registry.
    login: Option<Login>,
}

/// User and password for HTTP Basic authentication and for tokens.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: SecretString,
}

/// The text of an error never contains a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    #[error("not a Docker configuration in JSON")]
    Json,
    #[error("entry {0:?} has no user and password in base64")]
    Entry(String),
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
}

#[derive(Deserialize)]
struct Auth {
    /// Base64 of `USER:PASSWORD`.
    #[serde(default, rename = "auth")]
    both: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
}

impl Credentials {
    /// Parses a `config.json` of Docker. Entries without a password name registries that are asked
    /// without credentials here.
    pub fn parse(json: &[u8]) -> Result<Self, CredentialsError> {
        let config: Config = serde_json::from_slice(json).map_err(|_| CredentialsError::Json)?;
        let mut entries = Vec::new();
        for (name, auth) in config.auths {
            let is_empty = auth.is_empty();
            let login = auth.login();
            if login.is_none() && !is_empty {
                return Err(CredentialsError::Entry(name));
            }
            let key = key(&name);
            entries.push(Entry { key, login });
        }
        Ok(Self(entries))
    }

    /// Adds credentials, which count after those that are there.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The credentials whose key is the longest for this image.
    pub(crate) fn find(&self, reference: &Reference) -> Option<&Login> {
        let with_login = self
            .fitting(reference)
            .filter(|entry| entry.login.is_some());
        // The first of equal length wins.
        let best = with_login.rev().max_by_key(|entry| entry.key.len());
        best.and_then(|entry| entry.login.as_ref())
    }

    /// Returns whether an entry names the image's registry, with a password or without.
    pub fn names(&self, reference: &Reference) -> bool {
        self.fitting(reference).next().is_some()
    }

    fn fitting(&self, reference: &Reference) -> impl DoubleEndedIterator<Item = &Entry> {
        let (host, path) = (canonical_host(reference.registry()), reference.repository());
        self.0.iter().filter(move |entry| entry.fits(host, path))
    }

    /// Tells different credentials apart, without giving them away.
    pub(crate) fn fingerprint(&self) -> String {
        let mut text = String::new();
        for Entry { key, login } in &self.0 {
            let Some(login) = login else {
                continue;
            };
            let password = login.password.expose_secret();
            let _ = write!(text, "{key:?}{:?}{password:?}", login.user);
        }
        Digest::of(text.as_bytes()).hex()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.iter().map(|entry| &entry.key);
        f.debug_list().entries(keys).finish()
    }
}

impl Auth {
    /// True for an entry that names a helper, or nothing.
    fn is_empty(&self) -> bool {
        let has_both = self.both.as_ref().is_some_and(|both| !both.is_empty());
        !has_both && (self.username.is_none() || self.password.is_none())
    }

    fn login(self) -> Option<Login> {
        let (user, password) = match self.both.filter(|both| !both.is_empty()) {
            Some(both) => decode(&both)?,
            None => (self.username?, self.password?),
        };
        Some(Login {
            user,
            password: password.into(),
        })
    }
}

fn decode(auth: &str) -> Option<(String, String)> {
    let decoded = STANDARD
        .decode(auth)
        .or_else(|_| STANDARD_NO_PAD.decode(auth));
    let text = String::from_utf8(decoded.ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    // Docker pads with NUL.
    Some((user.to_owned(), password.trim_end_matches('\0').to_owned()))
}

impl Entry {
    fn fits(&self, host: &str, path: &str) -> bool {
        let (own_host, own_path) = self.key.split_once('/').unwrap_or((&self.key, ""));
        let below = path.strip_prefix(own_path);
        let is_below = below
            .is_some_and(|rest| own_path.is_empty() || rest.is_empty() || rest.starts_with('/'));
        is_below && host_fits(own_host, host)
    }
}

/// Compares part by part, as the kubelet does: `*` stands for one part.
fn host_fits(pattern: &str, host: &str) -> bool {
    let (pattern, host): (Vec<_>, Vec<_>) =
        (pattern.split('.').collect(), host.split('.').collect());
    let mut pairs = pattern.iter().zip(&host);
    pattern.len() == host.len() && pairs.all(|(own, part)| *own == "*" || own == part)
}

/// Key without scheme and version, such as of `https://index.docker.io/v1/`.
fn key(name: &str) -> String {
    let name = name
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    let name = name.trim_end_matches('/');
    let name = name
        .strip_suffix("/v1")
        .or(name.strip_suffix("/v2"))
        .unwrap_or(name);
    let (host, path) = name.split_once('/').unwrap_or((name, ""));
    let host = canonical_host(host);
    if path.is_empty() {
        host.to_owned()
    } else {
        format!("{host}/{path}")
    }
}

fn canonical_host(host: &str) -> &str {
    match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(credentials: &Credentials, reference: &str) -> Option<String> {
        let login = credentials.find(&reference.parse().unwrap())?;
        Some(format!("{}:{}", login.user, login.password.expose_secret()))
    }

    #[test]
    fn longest_key_of_the_image_wins() {
        let json = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnB3"},
            "registry.example.com": {"username": "all", "password": "1"},
            "registry.example.com/team": {"username": "team", "password": "2"},
            "*.example.org:5000": {"username": "star", "password": "3"},
            "helper.example.com": {}}, "credsStore": "x"}"#;
        let credentials = Credentials::parse(json.as_bytes()).unwrap();
        for (reference, login) in [
            ("debian:12", Some("hub:pw")),
            ("registry.example.com/a/b", Some("all:1")),
            ("registry.example.com/team/b", Some("team:2")),
            ("registry.example.com/teamwork", Some("all:1")),
            ("a.example.org:5000/b", Some("star:3")),
            ("a.b.example.org:5000/b", None),
            ("helper.example.com/b", None),
            ("other/registry.example.com", Some("hub:pw")),
        ] {
            assert_eq!(
                found(&credentials, reference).as_deref(),
                login,
                "{reference}"
            );
        }
        let first = r#"{"auths": {"docker.io": {"username": "first", "password": "x"}}}"#;
        let names = |reference: &str| credentials.names(&reference.parse().unwrap());
        assert!(names("helper.example.com/b") && names("debian"));
        assert!(!names("elsewhere.example.com/debian"));
        let mut both = Credentials::parse(first.as_bytes()).unwrap();
        both.extend(credentials.clone());
        assert_eq!(found(&both, "debian").as_deref(), Some("first:x"));
        assert_ne!(both.fingerprint(), credentials.fingerprint());
    }

    #[test]
    fn secrets_are_not_shown() {
        let json = br#"{"auths": {"a.example.com": {"username": "u", "password": "hunter2"}}}"#;
        let credentials = Credentials::parse(json).unwrap();
        let login = credentials.find(&"a.example.com/b".parse().unwrap());
        assert_eq!(format!("{credentials:?}"), r#"["a.example.com"]"#);
        assert!(!format!("{login:?}").contains("hunter2"));
        for bad in [&b"hunter2"[..], br#"{"auths": {"a": {"auth": "hunter2"}}}"#] {
            let error = Credentials::parse(bad).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
