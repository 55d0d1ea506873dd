//! Addresses that a person opens: VS Code, applications, the view of the browser and other plugins.

use http::Method;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::api::Repeat;
use crate::http_client;
use crate::{Error, Sandbox};

/// An address with its name, such as `vscode` or `work-1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Address {
    pub name: String,
    pub url: String,
    /// True if the URL has a key in it.
    pub is_secret: bool,
}

#[derive(Debug, Deserialize)]
struct Token {
    token: Option<String>,
}

impl Sandbox {
    /// URL of VS Code with its token. `None` without the plugin `vscode`.
    pub async fn vscode(&self) -> Result<Option<Address>, Error> {
        let request = || self.request(Method::GET, &["vscode", "connection_token"], &[]);
        let token: Token = http_client::json(self.send(Repeat::Temporary, request).await?).await?;
        let Some(token) = token.token else {
            return Ok(None);
        };
        let mut url = self.port_url("vscode")?;
        url.query_pairs_mut().append_pair("tkn", &token);
        Ok(Some(Address {
            name: "vscode".into(),
            url: url.into(),
            is_secret: true,
        }))
    }

    /// URL of a page of a plugin, with the session key, which becomes a cookie there.
    pub fn plugin_page(&self, plugin: &str) -> Result<Address, Error> {
        let mut url = self.port_url(plugin)?;
        url.query_pairs_mut()
            .append_pair("session_api_key", &self.info().session_api_key);
        Ok(Address {
            name: plugin.into(),
            url: url.into(),
            is_secret: true,
        })
    }

    /// URL of a named port or plugin: the public forms differ in the last part alone
    /// (`docs/specs/runtime-api.md`, section 4.2).
    pub fn port_url(&self, name: &str) -> Result<Url, Error> {
        let unclear = || self.misunderstood("work_hosts has no work-1");
        let hosts = &self.info().work_hosts;
        let work = hosts
            .keys()
            .find(|url| url.contains("work-1"))
            .ok_or_else(unclear)?;
        let url = match work.strip_suffix("/work-1") {
            Some(base) => format!("{base}/{name}/"),
            None => work.replacen("work-1", name, 1),
        };
        Url::parse(&url).map_err(|_| unclear())
    }

    /// URLs of `work_hosts` by port, with the slash that relative links of an application need.
    pub fn work_addresses(&self) -> Vec<Address> {
        let hosts = self.info().work_hosts.iter();
        hosts
            .map(|(url, port)| Address {
                name: format!("port {port}"),
                url: format!("{}/", url.trim_end_matches('/')),
                is_secret: false,
            })
            .collect()
    }
}
