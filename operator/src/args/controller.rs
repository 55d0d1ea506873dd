//! `sandbox-operator controller`.

use std::sync::Arc;

use kube::Client;

use super::{Installation, shutdown_on_signal};
use crate::clock::Clock;
use crate::controller::{self, ControllerConfig, HttpSupervisors};
use crate::index::Index;
use crate::kubernetes::leader::Candidacy;
use crate::urls::{Scheme, UrlForm, Urls};

/// Name of the controllers' lease.
const LEASE: &str = "sandbox-operator-controller";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct ControllerArgs {
    #[command(flatten)]
    installation: Installation,
    /// Namespace whose Sandboxes are served. Default: all.
    #[arg(long, env = "SANDBOX_NAMESPACE")]
    namespace: Option<String>,
    /// Image that brings the executor binary into sandboxes.
    #[arg(
        long,
        env = "EXECUTOR_IMAGE",
        default_value = "localhost/sandbox-executor:dev"
    )]
    executor_image: String,
    /// URL under which clients reach the gateway; sandboxes get URLs below it.
    #[arg(long, env = "BASE_URL", default_value = "http://localhost:5000")]
    base_url: BaseUrl,
    /// How the id stands in URLs: nested, flat, path or loopback. Must be the gateway's.
    #[arg(long, env = "URL_FORM", default_value = "nested")]
    url_form: UrlForm,
    /// Runtime class of sandboxes that name none.
    #[arg(long, env = "RUNTIME_CLASS")]
    runtime_class: Option<String>,
    /// Images that start as root and use sudo, as patterns with `*`, separated by commas.
    #[arg(long, env = "SUDO_IMAGES", value_delimiter = ',')]
    sudo_image: Vec<String>,
    /// Act without winning a lease: for a controller that is certainly alone.
    #[arg(long)]
    no_leader_election: bool,
    /// Name in the lease; unique among controllers.
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,
}

/// Scheme and host of public URLs.
#[derive(Debug, Clone)]
struct BaseUrl {
    scheme: Scheme,
    base: String,
}

impl ControllerArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = self.installation.client().await?;
        let keys = Arc::new(self.installation.keys(&client).await?);
        let index = Arc::new(Index::new(keys.clone()));
        let config = self.config(&client)?;
        controller::run(
            client,
            config,
            keys,
            index,
            Arc::new(HttpSupervisors::default()),
            Clock::start(),
            shutdown_on_signal()?,
        )
        .await?;
        Ok(())
    }

    fn config(self, client: &Client) -> anyhow::Result<ControllerConfig> {
        let urls = Urls {
            scheme: self.base_url.scheme,
            base: self.base_url.base.clone(),
            form: self.url_form,
        };
        let mut config = ControllerConfig::new(urls);
        if !self.no_leader_election {
            config.leader = Some(Candidacy {
                namespace: self.installation.namespace(client),
                name: LEASE.into(),
                identity: self.identity.map_or_else(random_identity, Ok)?,
            });
        }
        config.namespace = self.namespace;
        config.executor_image = self.executor_image;
        config.sudo_images = self.sudo_image;
        config.defaults.runtime_class_name = self.runtime_class.filter(|c| !c.is_empty());
        Ok(config)
    }
}

fn random_identity() -> anyhow::Result<String> {
    let random = ring::rand::generate::<[u8; 8]>(&ring::rand::SystemRandom::new())
        .map_err(|_| anyhow::anyhow!("no randomness"))?;
    Ok(format!("{:016x}", u64::from_be_bytes(random.expose())))
}

impl std::str::FromStr for BaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("has no scheme")?;
        let scheme = match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(format!("{scheme:?} is neither http nor https")),
        };
        let base = rest.trim_end_matches('/');
        if base.is_empty() || base.contains('/') {
            return Err("must be a scheme and a host without a path".into());
        }
        Ok(Self {
            scheme,
            base: base.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_scheme_and_host() {
        let url: BaseUrl = "https://rt.example.com:8443/".parse().unwrap();
        assert_eq!(
            (url.scheme, url.base.as_str()),
            (Scheme::Https, "rt.example.com:8443")
        );
        for text in ["rt.example.com", "ftp://a", "http://", "http://a/b"] {
            assert!(text.parse::<BaseUrl>().is_err(), "{text}");
        }
    }
}
