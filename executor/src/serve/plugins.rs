//! Plugins of `--plugins` (`docs/plugins.md`): optional parts beside shell, files and editor.
//!
//! They start concurrently after the port listens, so that they do not delay the first request. A
//! request that needs a plugin earlier waits. Errors are part of its health; the server keeps
//! running.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use serde::{Serialize, Serializer};

use self::agent_skills::AgentSkills;
use self::jupyter::Jupyter;
pub(super) use self::vscode::VsCode;
use super::editor::Editor;
use super::settings::VsCodeSettings;
use super::shell::LaunchContext;
use crate::cli::ServeOptions;

mod agent_skills;
pub(super) mod jupyter;
mod vscode;

const AGENT_SKILLS: &str = "agent_skills";
const JUPYTER: &str = "jupyter";
const VSCODE: &str = "vscode";

/// Health of a plugin, as `plugins` of `GET /server_info` reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Health {
    #[default]
    Starting,
    Ready,
    Failed(String),
}

impl Serialize for Health {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Starting => serializer.serialize_str("starting"),
            Self::Ready => serializer.serialize_str("ready"),
            Self::Failed(reason) => serializer.collect_str(&format_args!("failed: {reason}")),
        }
    }
}

/// Plugins that this sandbox was started with.
#[derive(Debug)]
pub(super) struct Plugins {
    agent_skills: Option<Arc<AgentSkills>>,
    pub(super) jupyter: Option<Jupyter>,
    pub(super) vscode: Option<VsCode>,
}

impl Plugins {
    pub(super) fn new(options: &ServeOptions, start: &LaunchContext, editor: &Arc<Editor>) -> Self {
        Self::with(options, start, editor, None)
    }

    /// Has skills that exist already, or new ones if they are wanted.
    fn with(
        options: &ServeOptions,
        start: &LaunchContext,
        editor: &Arc<Editor>,
        kept: Option<Arc<AgentSkills>>,
    ) -> Self {
        let names = [AGENT_SKILLS, JUPYTER, VSCODE];
        let [skills, jupyter, vscode] = names.map(|name| options.wants(name));
        let create = || Arc::new(AgentSkills::new(start.clone(), Arc::clone(editor)));
        let agent_skills = kept.or_else(|| skills.then(create));
        let limit = Duration::from_secs(options.init_plugin_timeout);
        Self {
            jupyter: jupyter.then(|| Jupyter::new(start.clone(), agent_skills.clone(), limit)),
            vscode: vscode.then(|| VsCode::new(VsCodeSettings::of(options), start.clone())),
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
    ) -> Self {
        let is_kept =
            |skills: &mut Arc<AgentSkills>| options.wants(AGENT_SKILLS) && skills.resume(start);
        let kept = self.agent_skills.take_if(is_kept);
        let mut next = Self::with(options, start, editor, kept);
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
            OptionFuture::from(self.jupyter.as_ref().map(Jupyter::start)),
            OptionFuture::from(self.vscode.as_ref().map(VsCode::start)),
        );
        tracing::info!(health = ?self.health(), "plugins started");
    }

    /// Stops the plugins: those that use others stop first.
    pub(super) async fn stop(&self) {
        OptionFuture::from(self.vscode.as_ref().map(VsCode::stop)).await;
        OptionFuture::from(self.jupyter.as_ref().map(Jupyter::stop)).await;
        OptionFuture::from(self.agent_skills.as_ref().map(|skills| skills.stop())).await;
    }

    pub(super) fn health(&self) -> BTreeMap<String, Health> {
        let health = [
            (
                AGENT_SKILLS,
                self.agent_skills.as_ref().map(|skills| skills.health()),
            ),
            (JUPYTER, self.jupyter.as_ref().map(Jupyter::health)),
            (VSCODE, self.vscode.as_ref().map(VsCode::health)),
        ];
        let wanted = health.into_iter();
        let wanted = wanted.filter_map(|(name, health)| Some((name.to_owned(), health?)));
        wanted.collect()
    }
}
