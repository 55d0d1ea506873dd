//! The newest app server: strict models, warm configurations, quotas, batches, and keys that are
//! compared by their hash (`docs/specs/runtime-api.md`, section 3.8).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{SandboxStatus, V1App, by_status};
use crate::clients::exception::index;
use crate::clients::{ClientException, POLL};

/// The strict fields: each is a string or null.
const STRICT: [&str; 6] = [
    "session_id",
    "session_api_key",
    "url",
    "runtime_id",
    "status",
    "status_detail",
];

const WEB_HOOKS: &str = "https://app.example.com/api/v1/webhooks";

/// The service. Uses the calls of [`V1App`].
#[derive(Debug)]
pub struct Enterprise {
    pub app: V1App,
    pub quota: usize,
    /// Session keys that web hooks are accepted with; the original stores hashes.
    keys: BTreeMap<String, String>,
}

impl Enterprise {
    pub fn new(api_url: &str, api_key: &str, image: &str) -> Self {
        Self {
            app: V1App::new(api_url, api_key, image),
            quota: 10,
            keys: BTreeMap::new(),
        }
    }

    /// Starts a sandbox from a spec, after making room for it.
    pub async fn start(&mut self, id: &str, spec: &Value) -> Result<Value, ClientException> {
        self.make_room().await?;
        let mut body = json!({
            "image": index(spec, "image")?, "command": index(spec, "command")?,
            "working_dir": index(spec, "working_dir")?,
            "environment": index(spec, "environment")?, "session_id": id, "resource_factor": 1,
            "run_as_user": 10001, "run_as_group": 10001, "fs_group": 10001,
        });
        for (name, value) in [
            ("WORKER_1", "12000"),
            ("WORKER_2", "12001"),
            ("LMNR_PROJECT_API_KEY", ""),
            ("OH_WEBHOOKS_0_BASE_URL", WEB_HOOKS),
        ] {
            body["environment"][name] = json!(value);
        }
        let runtime = self.app.api.post("start", &body).await?.success()?;
        let runtime = strict(&runtime)?;
        self.app.stored.push(id.to_owned());
        self.claim(id, &runtime)?;
        Ok(runtime)
    }

    /// Every entry of `/list` counts; the oldest of the own ones are paused.
    async fn make_room(&mut self) -> Result<(), ClientException> {
        let mut surplus = (self.list().await?.len() + 1).saturating_sub(self.quota);
        for id in self.app.stored.clone() {
            if surplus > 0 && self.status(&id).await == SandboxStatus::Running {
                surplus -= 1;
                self.pause(&id).await?;
            }
        }
        Ok(())
    }

    /// `GET /list`, strictly: one malformed entry fails the whole call.
    pub async fn list(&self) -> Result<Vec<Value>, ClientException> {
        let list = self.app.api.get("list").await?.success()?;
        let entries = index(&list, "runtimes")?.as_array().cloned();
        let entries = entries.ok_or_else(|| ClientException::Value("runtimes".into()))?;
        if *index(&list, "total")? != entries.len() {
            return Err(ClientException::Value("total".into()));
        }
        entries.iter().map(strict).collect()
    }

    /// `status` alone; what is malformed or of another session is unknown, not missing.
    pub async fn status(&self, id: &str) -> SandboxStatus {
        match self.app.session(id).await {
            Ok(runtime) => of_entry(id, &runtime),
            Err(ClientException::Http { status: 404, .. }) => SandboxStatus::Missing,
            Err(_) => SandboxStatus::Unknown,
        }
    }

    /// `/sessions/batch`: nulls are believed only if length and order are right.
    pub async fn batch(&self, ids: &[String]) -> Result<Vec<SandboxStatus>, ClientException> {
        let query: Vec<_> = ids.iter().map(|id| format!("ids={id}")).collect();
        let path = format!("sessions/batch?{}", query.join("&"));
        let answer = self.app.api.get(&path).await?.success()?;
        let entries = answer.as_array().cloned();
        let entries = entries.ok_or_else(|| ClientException::Value("no array".into()))?;
        if entries.len() != ids.len() {
            return Err(ClientException::Value(format!("{} entries", entries.len())));
        }
        let status = |(id, entry): (&String, &Value)| match entry {
            Value::Null => SandboxStatus::Missing,
            entry => of_entry(id, entry),
        };
        Ok(ids.iter().zip(&entries).map(status).collect())
    }

    /// Waits until it runs.
    pub async fn wait(&self, id: &str, limit: Duration) -> Result<Value, ClientException> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            match self.status(id).await {
                SandboxStatus::Running => return self.app.session(id).await,
                SandboxStatus::Starting => sleep(POLL).await,
                other => return Err(ClientException::Value(format!("{other:?}"))),
            }
        }
        Err(ClientException::Timeout)
    }

    /// `/resume` answers with the key that is valid from then on.
    pub async fn resume(&mut self, id: &str) -> Result<bool, ClientException> {
        let Some(runtime_id) = self.runtime_id(id).await? else {
            return Ok(false);
        };
        let reply = self.app.api.change("resume", &runtime_id).await?;
        if !reply.is_success() {
            return Ok(false);
        }
        let runtime = strict(&reply.json()?)?;
        self.claim(id, &runtime)?;
        Ok(true)
    }

    /// Pausing forgets the key.
    pub async fn pause(&mut self, id: &str) -> Result<bool, ClientException> {
        self.keys.remove(id);
        self.app.change("pause", id).await
    }

    /// `Ok(false)`: the runtime was gone already, and the local row is dropped.
    pub async fn delete(&mut self, id: &str) -> Result<bool, ClientException> {
        let Some(runtime_id) = self.runtime_id(id).await? else {
            return Ok(false);
        };
        let reply = self.app.api.change("stop", &runtime_id).await?;
        reply.success().map(|_| true)
    }

    async fn runtime_id(&self, id: &str) -> Result<Option<Value>, ClientException> {
        match self.app.session(id).await {
            Err(ClientException::Http { status: 404, .. }) => Ok(None),
            other => {
                let id = strict(&other?)?["runtime_id"].clone();
                Ok(Some(id).filter(Value::is_string))
            }
        }
    }

    fn claim(&mut self, id: &str, runtime: &Value) -> Result<(), ClientException> {
        let key = runtime["session_api_key"].as_str();
        let key = key.ok_or_else(|| ClientException::Value("no session_api_key".into()))?;
        self.keys.insert(id.into(), key.into());
        Ok(())
    }

    /// Returns whether a web hook with this key is accepted.
    pub fn lets_in(&self, id: &str, key: &str) -> bool {
        self.keys.get(id).is_some_and(|known| known == key)
    }

    /// The specs of the app: `GET /api/warm-runtime-configs`.
    pub async fn specs(&self) -> Result<Vec<Value>, ClientException> {
        let api = self.app.api.within(Duration::from_secs(10));
        let answer = api.get("api/warm-runtime-configs").await?.success()?;
        let configs = index(&answer, "configs")?.as_array().cloned();
        let configs = configs.ok_or_else(|| ClientException::Value("configs".into()))?;
        for config in &configs {
            for field in ["name", "image", "command", "environment", "working_dir"] {
                index(config, field)?;
            }
        }
        Ok(configs)
    }
}

/// The status of a session in an answer.
fn of_entry(id: &str, runtime: &Value) -> SandboxStatus {
    let Ok(runtime) = strict(runtime) else {
        return SandboxStatus::Unknown;
    };
    if runtime["session_id"] != id {
        return SandboxStatus::Unknown;
    }
    let complete = ["url", "runtime_id", "session_api_key"];
    match runtime["status"].as_str() {
        Some("stopped") | None => SandboxStatus::Missing,
        Some("running") if complete.iter().any(|f| runtime[f].is_null()) => SandboxStatus::Unknown,
        Some(status @ ("running" | "starting" | "paused" | "error")) => by_status(status),
        Some(_) => SandboxStatus::Unknown,
    }
}

/// The model that the client validates with.
fn strict(runtime: &Value) -> Result<Value, ClientException> {
    for field in STRICT {
        let value = &runtime[field];
        if !value.is_null() && !value.is_string() {
            return Err(ClientException::Value(format!("{field} is {value}")));
        }
    }
    Ok(runtime.clone())
}
