//! `sandbox list --watch`: a line for each change, from the gateway's events, or from polls of a
//! gateway that has none.

use std::collections::BTreeMap;
use std::time::Duration;

use client::{ChangeKind, Client, Error, Event, RuntimeInfo, Status};
use jiff::Timestamp;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Format, hint, print};
use crate::progress;
use crate::text::{escape, escape_json};

const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Line of a sandbox: name, id, state and explanation.
type Shown = (String, String, String, String);

/// Prints changes, and no line twice.
#[derive(Debug)]
struct Changes {
    format: Option<Format>,
    shown: BTreeMap<String, Shown>,
    /// Ids of the list that is being received.
    listed: Vec<String>,
}

pub(super) async fn run(client: &Client, format: Option<Format>) -> Result<(), Failure> {
    if matches!(format, Some(Format::Yaml | Format::Name)) {
        return Err(Failure::Usage(
            "--watch has the formats wide and json".into(),
        ));
    }
    // Without a change there is nothing to wait for.
    progress::clear();
    let mut changes = Changes {
        format,
        shown: BTreeMap::new(),
        listed: Vec::new(),
    };
    if format.is_none() {
        print(format!(
            "{:<10} {:<24} {:<18} {:<9} DETAIL\n",
            "TIME", "NAME", "ID", "STATUS"
        ))?;
    }
    match client.events(None).await {
        Ok(mut events) => loop {
            changes.event(events.next().await?)?;
        },
        Err(Error::Unsupported(_)) => {
            hint("the gateway has no events; polling");
            loop {
                changes.list(&client.list().await?)?;
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        Err(error) => Err(error.into()),
    }
}

impl Changes {
    fn event(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Runtime(event) => {
                if event.change == ChangeKind::Listed {
                    self.listed.push(event.info.runtime_id.clone());
                }
                self.show(&event.info)
            }
            Event::Deleted(deleted) => self.gone(&deleted.runtime_id),
            Event::Synced => {
                let listed = std::mem::take(&mut self.listed);
                self.keep(&listed)
            }
            // The next list may lack those of an unfinished one.
            Event::Reopened | Event::Resumed => {
                self.listed.clear();
                Ok(())
            }
            Event::Build(_) => Ok(()),
        }
    }

    fn list(&mut self, all: &[RuntimeInfo]) -> Result<(), Failure> {
        let ids: Vec<_> = all.iter().map(|info| info.runtime_id.clone()).collect();
        all.iter().try_for_each(|info| self.show(info))?;
        self.keep(&ids)
    }

    /// Drops what was not listed.
    fn keep(&mut self, ids: &[String]) -> Result<(), Failure> {
        let gone: Vec<_> = self
            .shown
            .keys()
            .filter(|id| !ids.contains(id))
            .cloned()
            .collect();
        gone.iter().try_for_each(|id| self.gone(id))
    }

    fn show(&mut self, info: &RuntimeInfo) -> Result<(), Failure> {
        let detail = info.status_detail.clone().unwrap_or_default();
        let line = (
            info.session_id.clone(),
            info.runtime_id.clone(),
            info.status.to_string(),
            detail,
        );
        let shown = self.shown.get(&info.runtime_id);
        let is_news = shown.is_some() || info.status != Status::Stopped;
        if !is_news || shown == Some(&line) {
            return Ok(());
        }
        self.print(&line)?;
        self.shown.insert(info.runtime_id.clone(), line);
        Ok(())
    }

    fn gone(&mut self, id: &str) -> Result<(), Failure> {
        match self.shown.remove(id) {
            Some((name, id, ..)) => self.print(&(name, id, "gone".into(), String::new())),
            None => Ok(()),
        }
    }

    fn print(&self, (name, id, status, detail): &Shown) -> Result<(), Failure> {
        let now = Timestamp::now();
        if self.format == Some(Format::Json) {
            let at = now.to_string();
            let line = json!({"at": at, "session_id": name, "runtime_id": id, "status": status, "detail": detail});
            return print(escape_json(&line.to_string()) + "\n");
        }
        let time = now.strftime("%H:%M:%SZ").to_string();
        let (name, detail) = (escape(name), escape(detail));
        print(format!(
            "{time:<10} {name:<24} {id:<18} {status:<9} {detail}\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use client::RuntimeEvent;

    use super::*;

    fn listed(id: &str) -> Event {
        let event: RuntimeEvent = serde_json::from_value(json!({
            "runtime_id": id, "session_id": id, "url": "http://a", "status": "running",
            "change": "listed", "at": null,
        }))
        .unwrap();
        Event::Runtime(Box::new(event))
    }

    #[test]
    fn sandbox_of_an_unfinished_list_is_dropped_when_the_next_list_lacks_it() {
        let mut changes = Changes {
            format: Some(Format::Json),
            shown: BTreeMap::new(),
            listed: Vec::new(),
        };
        let events = [listed("a"), Event::Reopened, listed("b"), Event::Synced];
        for event in events {
            changes.event(event).unwrap();
        }
        let shown: Vec<_> = changes.shown.into_keys().collect();
        assert_eq!(shown, ["b"]);
    }
}
