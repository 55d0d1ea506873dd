//! Applies the events of the browser to the state, in the order in which they happened.

use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;

use super::Shared;
use super::download::Download;
use super::event_types as event;
use super::frame::{FrameId, FrameState};
use super::navigation::NAVIGATION_STEPS;
use super::setup;
use super::state::{FileChooser, MAX_FRAMES, MAX_TABS, Tab, TabState, TabsState, TargetId};
use crate::cdp::{Event, EventSink, Session, SessionId};

impl EventSink for Shared {
    fn event(&self, event: &Event<'_>) {
        if self.relays.forward(event) {
            return;
        }
        let (session, method, params) = (&event.session, event.method, event.params);
        if method == "Page.screencastFrame" {
            self.screencast.received(session, params);
            return;
        }
        let applied = self.state.lock().apply(session, method, params);
        match applied {
            Ok(true) => self.changes.send_modify(|changes| *changes += 1),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, method, "unexpected event of the browser"),
        }
    }

    fn raw_answer(&self, id: u64, message: &[u8]) {
        self.relays.answer(id, message);
    }
}

fn read<T: DeserializeOwned>(params: &RawValue) -> serde_json::Result<T> {
    serde_json::from_str(params.get())
}

impl TabsState {
    /// Returns whether something may have changed.
    fn apply(
        &mut self,
        session: &SessionId,
        method: &str,
        params: &RawValue,
    ) -> serde_json::Result<bool> {
        match method {
            "Target.attachedToTarget" => self.attached(session, read(params)?),
            "Target.targetInfoChanged" => self.target_changed(read(params)?),
            "Target.detachedFromTarget" => self.detached(&read(params)?),
            "Target.targetDestroyed" | "Target.targetCrashed" => {
                let event::Destroyed { target_id } = read(params)?;
                let id = TargetId(target_id.into());
                let has_crashed = method == "Target.targetCrashed" && self.find(&id).is_some();
                self.crashes += usize::from(has_crashed);
                self.remove(&id);
            }
            "Inspector.targetCrashed" => self.crashed(session),
            "Browser.downloadWillBegin" => self.download_begins(read(params)?),
            "Browser.downloadProgress" => self.download_progress(&read(params)?),
            "Page.frameAttached" => self.frame_attached(session, read(params)?),
            "Page.frameDetached" => self.frame_detached(session, read(params)?),
            "Page.frameNavigated" => self.frame_navigated(session, read(params)?),
            "Page.navigatedWithinDocument" => self.navigated_within(session, read(params)?),
            "Page.lifecycleEvent" => self.lifecycle(session, &read(params)?),
            step if NAVIGATION_STEPS.contains(&step) => {
                self.navigation_step(session, step, read(params)?);
            }
            "Page.javascriptDialogOpening" => self.dialog(session, &read(params)?),
            "Page.fileChooserOpened" => self.file_chooser(session, &read(params)?),
            "Input.dragIntercepted" => {
                let event::Dragged { data } = read(params)?;
                if let Some(state) = self.of_session(session) {
                    state.drag = Some(data);
                }
            }
            "Runtime.executionContextCreated" => self.context_created(session, read(params)?),
            "Runtime.executionContextDestroyed" => {
                let event::ContextDestroyed {
                    execution_context_id: id,
                } = read(params)?;
                self.forget_contexts(session, |context| context == id);
            }
            "Runtime.executionContextsCleared" => self.forget_contexts(session, |_| true),
            "Runtime.bindingCalled" => {
                let event::BindingCalled { name } = read(params)?;
                if name == setup::USE_BINDING
                    && let Some(tab) = self.sessions.get(session).cloned()
                    && self.find(&tab).is_some()
                {
                    self.activate(&tab);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn attached(&mut self, parent: &SessionId, event: event::Attached) {
        let Some(connection) = self.connection.clone() else {
            return;
        };
        let id = SessionId::from(event.session_id.as_str());
        let session = connection.session(id.clone());
        let info = event.target_info;
        let target = TargetId(info.target_id.as_str().into());
        match info.r#type.as_str() {
            "page" if self.find(&target).is_some() => {}
            "page" if self.tabs.len() >= MAX_TABS => {
                let root = connection.root();
                root.send("Target.closeTarget", json!({"targetId": target}));
            }
            "page" => {
                self.sessions.insert(id, target.clone());
                let tab = Tab {
                    id: target.clone(),
                    session: session.clone(),
                    url: info.url,
                    title: info.title,
                };
                let main = FrameState::new(tab.main_frame(), None, session.clone(), 0);
                self.tabs.push(TabState {
                    frames: [(tab.main_frame(), main)].into(),
                    tab,
                    frame_count: 1,
                    navigation_count: 0,
                    is_used: false,
                    is_opened: false,
                    mouse: (0.0, 0.0),
                    file_chooser: None,
                    drag: None,
                });
                // The new tab becomes the active one once it shows a sign of use.
                self.used.insert(0, target);
                setup::page(&session);
            }
            "iframe" => {
                if let Some(tab) = self.sessions.get(parent).cloned() {
                    self.sessions.insert(id, tab.clone());
                    self.add_remote_frame(&tab, &info.target_id, &session);
                }
                setup::frame(&session);
            }
            _ => setup::resume(&session),
        }
    }

    fn add_remote_frame(&mut self, tab: &TargetId, frame: &str, session: &Session) {
        let id = FrameId(frame.into());
        let Some(state) = self.find_mut(tab) else {
            return;
        };
        let number = state.frame_count;
        let main = state.tab.main_frame();
        let frame = state.frames.entry(id.clone()).or_insert_with(|| {
            state.frame_count += 1;
            FrameState::new(id, Some(main), session.clone(), number)
        });
        frame.session = session.clone();
        frame.is_remote = true;
        (frame.main_context, frame.isolated_context) = (None, None);
    }

    fn detached(&mut self, event: &event::Detached) {
        let id = SessionId::from(event.session_id.as_str());
        let Some(tab) = self.sessions.remove(&id) else {
            return;
        };
        let Some(state) = self.find_mut(&tab) else {
            return;
        };
        if *state.tab.session.id() == id {
            self.remove(&tab);
        } else {
            state.frames.retain(|_, frame| *frame.session.id() != id);
        }
    }

    fn target_changed(&mut self, event: event::TargetChanged) {
        let info = event.target_info;
        let id = TargetId(info.target_id.into());
        if let Some(state) = self.find_mut(&id) {
            state.tab.title = info.title;
            // Later addresses are those of documents, which differ for errors.
            if state.tab.url.is_empty() {
                state.tab.url = info.url;
            }
        }
    }

    fn crashed(&mut self, session: &SessionId) {
        let Some(state) = self.of_session(session) else {
            return;
        };
        if state.tab.session.id() == session {
            let id = state.tab.id.clone();
            // Closes the tab: a crashed one answers nothing.
            let close = json!({"targetId": id});
            self.crashes += 1;
            self.remove(&id);
            if let Some(connection) = &self.connection {
                connection.root().send("Target.closeTarget", close);
            }
        } else {
            state
                .frames
                .retain(|_, frame| frame.session.id() != session);
        }
    }

    fn download_begins(&mut self, event: event::DownloadBegins) {
        self.downloads.begin(Download {
            guid: event.guid,
            url: event.url,
            suggested_name: event.suggested_filename,
            is_completed: false,
        });
        if let Some(frame) = event.frame_id {
            let id = FrameId(frame.into());
            for state in &mut self.tabs {
                if let Some(frame) = state.frames.get_mut(&id) {
                    frame.end_navigation();
                }
            }
        }
    }

    fn download_progress(&mut self, event: &event::DownloadProgress) {
        match event.state.as_str() {
            "completed" => self.downloads.end(&event.guid, true),
            "canceled" => self.downloads.end(&event.guid, false),
            _ => {}
        }
    }

    fn frame_attached(&mut self, session: &SessionId, event: event::FrameAttached) {
        let Some(connection) = self.connection.clone() else {
            return;
        };
        let Some(state) = self.of_session(session) else {
            return;
        };
        if state.frames.len() >= MAX_FRAMES {
            return;
        }
        let id = FrameId(event.frame_id.into());
        let parent = Some(FrameId(event.parent_frame_id.into()));
        let number = state.frame_count;
        state.frame_count += 1;
        let session = connection.session(session.clone());
        let frame = FrameState::new(id.clone(), parent.clone(), session, number);
        // A frame of another site may be known by its target already.
        state.frames.entry(id).or_insert(frame).parent = parent;
    }

    fn frame_detached(&mut self, session: &SessionId, event: event::FrameDetached) {
        let Some(state) = self.of_session(session) else {
            return;
        };
        let id = FrameId(event.frame_id.into());
        match state.frames.get(&id) {
            // Moved to another process, whose session owns it now.
            Some(frame) if event.reason == "swap" || frame.session.id() != session => {}
            _ => remove_frame(state, &id),
        }
    }

    fn frame_navigated(&mut self, session: &SessionId, event: event::FrameNavigated) {
        let Some(state) = self.of_session(session) else {
            return;
        };
        let event = event.frame;
        let id = FrameId(event.id.into());
        let is_main = id == state.tab.main_frame();
        let children = state
            .frames
            .values()
            .filter(|frame| frame.parent.as_ref() == Some(&id));
        let children: Vec<_> = children.map(|frame| frame.id.clone()).collect();
        let Some(frame) = state.frames.get_mut(&id) else {
            return;
        };
        state.navigation_count += u64::from(frame.begin_document(&event.loader_id));
        frame.end_navigation();
        let url = event.url + event.url_fragment.as_deref().unwrap_or_default();
        frame.url.clone_from(&url);
        if is_main {
            state.tab.url = url;
        }
        for child in children {
            remove_frame(state, &child);
        }
    }

    fn lifecycle(&mut self, session: &SessionId, event: &event::Lifecycle) {
        let id = FrameId(event.frame_id.as_str().into());
        let Some(state) = self.of_session(session) else {
            return;
        };
        let Some(frame) = state.frames.get_mut(&id) else {
            return;
        };
        match event.name.as_str() {
            "init" | "commit" => {
                state.navigation_count += u64::from(frame.begin_document(&event.loader_id));
            }
            "DOMContentLoaded" if frame.loader == event.loader_id => frame.is_ready = true,
            "load" if frame.loader == event.loader_id => {
                (frame.is_ready, frame.is_loaded) = (true, true);
            }
            _ => {}
        }
    }

    /// Dismisses a dialog at once; a page may be left (section 2.3).
    fn dialog(&mut self, session: &SessionId, event: &event::Dialog) {
        if let Some(connection) = &self.connection {
            let accept = event.r#type == "beforeunload";
            let session = connection.session(session.clone());
            session.send("Page.handleJavaScriptDialog", json!({"accept": accept}));
        }
    }

    fn file_chooser(&mut self, session: &SessionId, event: &event::ChooserOpened) {
        let Some(connection) = self.connection.clone() else {
            return;
        };
        if let Some(state) = self.of_session(session)
            && let Some(backend_node_id) = event.backend_node_id
        {
            state.file_chooser = Some(FileChooser {
                session: connection.session(session.clone()),
                backend_node_id,
                is_multiple: event.mode == "selectMultiple",
            });
        }
    }

    fn context_created(&mut self, session: &SessionId, event: event::ContextCreated) {
        let context = event.context;
        let Some(data) = context.aux_data else {
            return;
        };
        let Some(frame) = data.frame_id else {
            return;
        };
        let is_isolated = context.name == setup::ISOLATED_WORLD;
        let id = FrameId(frame.into());
        if let Some(state) = self.of_session(session)
            && let Some(frame) = state.frames.get_mut(&id)
            && frame.session.id() == session
        {
            if is_isolated {
                frame.isolated_context = Some(context.id);
            } else if data.is_default == Some(true) {
                frame.main_context = Some(context.id);
            }
        }
    }

    fn forget_contexts(&mut self, session: &SessionId, is_gone: impl Fn(i64) -> bool) {
        let Some(state) = self.of_session(session) else {
            return;
        };
        for frame in state.frames.values_mut() {
            if frame.session.id() == session {
                frame.main_context.take_if(|context| is_gone(*context));
                frame.isolated_context.take_if(|context| is_gone(*context));
            }
        }
    }
}

/// Removes a frame and all frames in it.
fn remove_frame(state: &mut TabState, id: &FrameId) {
    let mut gone = vec![id.clone()];
    while let Some(id) = gone.pop() {
        state.frames.remove(&id);
        let children = state
            .frames
            .values()
            .filter(|frame| frame.parent.as_ref() == Some(&id));
        gone.extend(children.map(|frame| frame.id.clone()));
    }
}
