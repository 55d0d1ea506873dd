//! The actions on single files. They wait for no command: files are beside the shell.

use std::sync::Arc;

use super::{ExecuteError, Executor};
use crate::serve::action::{Edit, Read, Write};
use crate::serve::editor::{EditError, Edited};
use crate::serve::files::{self, FileError};
use crate::serve::observation::Observation;

impl Executor {
    pub(super) async fn read(&self, read: Read) -> Result<Observation, ExecuteError> {
        if let Some(view) = read.through_editor {
            return self.view(view).await;
        }
        let working_dir = self.working_dir.lock().clone();
        let path = files::resolve(&read.path, &working_dir);
        let shown = path.display().to_string();
        let found = self.as_user(move || files::read(&path, read.range)).await?;
        let error = match found {
            Ok(content) => return Ok(Observation::read(shown, content, "default")),
            Err(error @ FileError::NotFound(_)) => format!(
                "{error}. Your current working directory is {}.",
                working_dir.display()
            ),
            Err(error @ FileError::NotText(_)) => format!("{error}."),
            Err(error @ FileError::Directory(_)) => format!("{error}. You can only read files"),
            Err(error @ FileError::System { .. }) => return Err(ExecuteError::File(error)),
            Err(error) => error.to_string(),
        };
        Ok(Observation::error(error))
    }

    pub(super) async fn write(&self, write: Write) -> Result<Observation, ExecuteError> {
        let path = files::resolve(&write.path, &self.working_dir.lock().clone());
        let shown = path.display().to_string();
        let _turn = self.editor.turn().await;
        let written = self
            .as_user(move || files::write(&path, &write.content, write.range))
            .await?;
        let error = match written {
            Ok(()) => return Ok(Observation::write(shown)),
            Err(error @ FileError::Directory(_)) => format!("{error}. You can only write to files"),
            Err(error @ FileError::System { .. }) => return Err(ExecuteError::File(error)),
            Err(error) => error.to_string(),
        };
        Ok(Observation::error(error))
    }

    pub(super) async fn edit(&self, edit: Edit) -> Result<Observation, ExecuteError> {
        let strings = (edit.old_str.clone(), edit.new_str.clone());
        let path = edit.path.clone();
        let _turn = self.editor.turn().await;
        let edited = self.consult(edit).await?.unwrap_or_else(|error| Edited {
            content: format!("ERROR:\n{error}"),
            ..Edited::default()
        });
        Ok(Observation::edit(
            path,
            strings,
            edited.content,
            edited.diff,
        ))
    }

    /// Failures are contents here, save for binaries, which the plain reader refuses as well.
    async fn view(&self, view: Edit) -> Result<Observation, ExecuteError> {
        let path = view.path.clone();
        let looked_at = files::resolve(&path, &self.start.working_dir);
        if path.starts_with('/') && self.as_user(move || files::is_binary(&looked_at)).await? {
            return Ok(Observation::error(FileError::Binary.to_string()));
        }
        let content = match self.consult(view).await? {
            Ok(viewed) => viewed.content,
            Err(error) => format!("ERROR:\n{error}"),
        };
        Ok(Observation::read(path, content, "oh_aci"))
    }

    async fn consult(&self, edit: Edit) -> Result<Result<Edited, EditError>, ExecuteError> {
        let editor = Arc::clone(&self.editor);
        let working_dir = self.start.working_dir.clone();
        self.as_user(move || editor.run(&edit, &working_dir)).await
    }
}
