//! Public URLs of sandboxes, in every form that clients understand (`docs/specs/runtime-api.md`,
//! section 4.2).
//!
//! A URL is a pure function of the id, so it survives pause, resume and replacement.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crds::contract::port;
use ring::digest::{SHA256, digest};
use serde::de::value::{self, StrDeserializer};
use serde::{Deserialize, Serialize};

/// Form of a sandbox URL, by name in flags and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UrlForm {
    /// `{id}.{base}`, `vscode-{id}.{base}`.
    Nested,
    /// `{id}-{base}`, `vscode-{id}-{base}`.
    Flat,
    /// `{base}/{id}/runtime`, `{base}/{id}/vscode`.
    Path,
    /// One loopback address per sandbox, `127.x.y.z` with the port of `base`: for one machine
    /// without wildcard names. Other ports than the runtime's take the path form.
    Loopback,
}

/// Builder of the URLs of one installation.
#[derive(Debug, Clone)]
pub struct Urls {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host with optional port, as clients reach the gateway.
    pub base: String,
    pub form: UrlForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    Http,
    Https,
}

/// Name of the port behind the plain URL of a sandbox.
pub const RUNTIME: &str = "runtime";

pub const VSCODE: &str = "vscode";

/// Ports of a sandbox whose spec names none (`docs/specs/runtime-api.md`, section 4.1).
pub const DEFAULT_PORTS: [(&str, u16); 4] = [
    (RUNTIME, port::RUNTIME),
    (VSCODE, port::VSCODE),
    ("work-1", port::WORK_1),
    ("work-2", port::WORK_2),
];

impl Urls {
    /// URL of the sandbox server, without a trailing slash.
    pub fn runtime(&self, id: &str) -> String {
        let Self { scheme, base, .. } = self;
        match self.form {
            UrlForm::Nested => format!("{scheme}://{id}.{base}"),
            UrlForm::Flat => format!("{scheme}://{id}-{base}"),
            UrlForm::Path => self.path(id, RUNTIME),
            UrlForm::Loopback => match base.rsplit_once(':') {
                Some((_, port)) => format!("{scheme}://{}:{port}", loopback_address(id)),
                None => format!("{scheme}://{}", loopback_address(id)),
            },
        }
    }

    /// URL of another named port of the sandbox, without a trailing slash.
    pub fn port(&self, id: &str, name: &str) -> String {
        let Self { scheme, base, .. } = self;
        match self.form {
            _ if name == RUNTIME => self.runtime(id),
            UrlForm::Nested => format!("{scheme}://{name}-{id}.{base}"),
            UrlForm::Flat => format!("{scheme}://{name}-{id}-{base}"),
            UrlForm::Path | UrlForm::Loopback => self.path(id, name),
        }
    }

    fn path(&self, id: &str, name: &str) -> String {
        format!("{}://{}/{id}/{name}", self.scheme, self.base)
    }
}

/// The loopback address of a sandbox: 23 bits of a hash in 127.128.0.0/9, never ending in 0 or 255.
pub fn loopback_address(id: &str) -> Ipv4Addr {
    let hash = digest(&SHA256, id.as_bytes());
    let [a, b, c, ..] = *hash.as_ref() else {
        return Ipv4Addr::LOCALHOST;
    };
    Ipv4Addr::new(127, a | 128, b, c % 254 + 1)
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for UrlForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for UrlForm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::deserialize(StrDeserializer::<value::Error>::new(text));
        known.map_err(|_| format!("{text:?} is not one of nested, flat, path, loopback"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "kqzvbnwmxatyploe";

    fn urls(form: UrlForm) -> Urls {
        Urls {
            scheme: Scheme::Https,
            base: "rt.example.com:8443".into(),
            form,
        }
    }

    #[test]
    fn url_forms_are_as_clients_expect() {
        for (form, runtime, port) in [
            (
                UrlForm::Nested,
                "https://kqzvbnwmxatyploe.rt.example.com:8443",
                "https://vscode-kqzvbnwmxatyploe.rt.example.com:8443",
            ),
            (
                UrlForm::Flat,
                "https://kqzvbnwmxatyploe-rt.example.com:8443",
                "https://vscode-kqzvbnwmxatyploe-rt.example.com:8443",
            ),
            (
                UrlForm::Path,
                "https://rt.example.com:8443/kqzvbnwmxatyploe/runtime",
                "https://rt.example.com:8443/kqzvbnwmxatyploe/vscode",
            ),
        ] {
            let urls = urls(form);
            assert_eq!(urls.runtime(ID), runtime);
            assert_eq!(urls.port(ID, "vscode"), port);
        }
    }

    #[test]
    fn loopback_url_has_no_path_and_the_port_of_the_gateway() {
        let url = urls(UrlForm::Loopback).runtime(ID);
        let rest = url.strip_prefix("https://127.").unwrap();
        assert!(rest.ends_with(":8443"));
        assert!(loopback_address(ID).is_loopback());
        assert!(loopback_address(ID).octets()[1] >= 128);
    }
}
