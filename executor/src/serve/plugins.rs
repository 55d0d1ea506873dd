//! Plugins of `--plugins` (`docs/plugins.md`): optional parts beside shell, files and editor.
//!
//! They start concurrently after the port listens, so that they do not delay the first request. A
//! request that needs a plugin earlier waits. Errors are part of its health; the server keeps
//! running.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{OptionFuture, join_all};
use serde::{Serialize, Serializer};

use self::agent_skills::AgentSkills;
use self::browser::{Browser, BrowserSettings};
use self::jupyter::Jupyter;
pub(super) use self::own::Own;
pub(super) use self::vscode::VsCode;
use super::editor::Editor;
use super::mcp::Config;
use super::own_plugin::OwnPlugin;
use super::settings::VsCodeSettings;
use super::shell::LaunchContext;
use crate::cli::ServeOptions;

mod agent_skills;
pub(super) mod browser;
pub(super) mod jupyter;
mod own;
mod process;
mod readiness;
mod vscode;

const AGENT_SKILLS: &str = "agent_skills";
const BROWSER: &str = "browser";
const JUPYTER: &str = "jupyter";
const VSCODE: &str = "vscode";

/// Health of a plugin, as `plugins` of `GET /server_info` reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Health {
    #[default]
    Starting,
    Ready,
    /// Its program has done its work and is not started again.
    Ended,
    Failed(String),
    /// The last line of its output may be a secret, and health is public.
    Crashed {
        how: String,
        last_line: String,
    },
}

/// For the log of the sandbox, which may show output.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Ready => f.write_str("ready"),
            Self::Ended => f.write_str("ended"),
            Self::Failed(how) => f.write_str(how),
            Self::Crashed { how, last_line } => write!(f, "{how}, last output: {last_line}"),
        }
    }
}

impl Serialize for Health {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Starting => serializer.serialize_str("starting"),
            Self::Ready => serializer.serialize_str("ready"),
            Self::Ended => serializer.serialize_str("ended"),
            Self::Failed(how) | Self::Crashed { how, .. } => {
                serializer.collect_str(&format_args!("failed: {how}"))
            }
        }
    }
}

/// Plugins that this sandbox was started with.
#[derive(Debug)]
pub(super) struct Plugins {
    agent_skills: Option<Arc<AgentSkills>>,
    /// Present unless it is disabled: V0 clients do not ask for it.
    pub(super) browser: Option<Browser>,
    pub(super) jupyter: Option<Jupyter>,
    pub(super) vscode: Option<VsCode>,
    own: Vec<Own>,
}

impl Plugins {
    pub(super) fn new(
        options: &ServeOptions,
        start: &LaunchContext,
        editor: &Arc<Editor>,
        own: Vec<OwnPlugin>,
    ) -> Self {
        Self::with(options, start, editor, own, None)
    }

    /// Has skills that exist already, or new ones if they are wanted.
    fn with(
        options: &ServeOptions,
        start: &LaunchContext,
        editor: &Arc<Editor>,
        own: Vec<OwnPlugin>,
        kept: Option<Arc<AgentSkills>>,
    ) -> Self {
        let names = [AGENT_SKILLS, JUPYTER, VSCODE];
        let [skills, jupyter, vscode] = names.map(|name| options.wants(name));
        let create = || Arc::new(AgentSkills::new(start.clone(), Arc::clone(editor)));
        let agent_skills = kept.or_else(|| skills.then(create));
        let limit = Duration::from_secs(options.init_plugin_timeout);
        let browser = BrowserSettings::of(options);
        let own = own.into_iter();
        Self {
            browser: browser.map(|settings| Browser::new(settings, start.clone())),
            jupyter: jupyter.then(|| Jupyter::new(start.clone(), agent_skills.clone(), limit)),
            vscode: vscode.then(|| VsCode::new(VsCodeSettings::of(options), start.clone())),
            own: own.map(|own| Own::new(own, start.clone())).collect(),
            agent_skills,
        }
    }

    /// Continues with other settings: keeps skills and kernel if they are wanted and their user is
    /// the same, and stops the others. `start` starts those that are new.
    pub(super) async fn resume(
        mut self,
        options: &ServeOptions,
        start: &LaunchContext,
        editor: &Arc<Editor>,
        own: Vec<OwnPlugin>,
    ) -> Self {
        let is_kept =
            |skills: &mut Arc<AgentSkills>| options.wants(AGENT_SKILLS) && skills.resume(start);
        let kept = self.agent_skills.take_if(is_kept);
        let mut next = Self::with(options, start, editor, own, kept);
        if let Some(before) = self.jupyter.take_if(|_| next.jupyter.is_some()) {
            let resuming = next.jupyter.take().map(|next| before.resume(next));
            next.jupyter = OptionFuture::from(resuming).await;
        }
        self.stop().await;
        next
    }

    /// Starts all plugins concurrently and returns when each is ready or has failed.
    pub(super) async fn start(&self) {
        tokio::join!(
            OptionFuture::from(self.agent_skills.as_ref().map(|skills| skills.prepare())),
            OptionFuture::from(self.browser.as_ref().map(Browser::start)),
            OptionFuture::from(self.jupyter.as_ref().map(Jupyter::start)),
            OptionFuture::from(self.vscode.as_ref().map(VsCode::start)),
            join_all(self.own.iter().map(Own::start)),
        );
        tracing::info!(health = ?self.health(), "plugins started");
    }

    /// Stops the plugins: those that use others stop first.
    pub(super) async fn stop(&self) {
        tokio::join!(
            OptionFuture::from(self.browser.as_ref().map(Browser::stop)),
            OptionFuture::from(self.vscode.as_ref().map(VsCode::stop)),
            join_all(self.own.iter().map(Own::stop)),
        );
        OptionFuture::from(self.jupyter.as_ref().map(Jupyter::stop)).await;
        OptionFuture::from(self.agent_skills.as_ref().map(|skills| skills.stop())).await;
    }

    pub(super) fn health(&self) -> BTreeMap<String, Health> {
        let health = [
            (
                AGENT_SKILLS,
                self.agent_skills.as_ref().map(|skills| skills.health()),
            ),
            (BROWSER, self.browser.as_ref().and_then(Browser::health)),
            (JUPYTER, self.jupyter.as_ref().map(Jupyter::health)),
            (VSCODE, self.vscode.as_ref().map(VsCode::health)),
        ];
        let wanted = health.into_iter();
        let wanted = wanted.filter_map(|(name, health)| Some((name.to_owned(), health?)));
        let own = self.own.iter();
        let own = own.map(|own| (own.name().to_owned(), own.health()));
        wanted.chain(own).collect()
    }

    /// Plugin of the user.
    pub(super) fn own(&self, name: &str) -> Option<&Own> {
        self.own.iter().find(|own| own.name() == name)
    }

    /// True for a plugin that serves requests without a key.
    pub(super) fn is_public(&self, name: &str) -> bool {
        self.own(name).is_some_and(Own::is_public)
    }

    /// Tool servers of plugins.
    pub(super) fn tool_servers(&self) -> Vec<Config> {
        self.own.iter().filter_map(Own::tool_server).collect()
    }
}
