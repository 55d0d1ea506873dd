//! Actions on single files. They do not wait for running commands.

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
        let result = self
            .run_as_user(move || files::read(&path, read.range))
            .await?;
        let error = match result {
            Ok(content) => return Ok(Observation::read(shown, content, "default")),
            Err(error @ FileError::NotFound(_)) => format!(
                "{error}. Your current working directory is {}.",
                working_dir.display()
            ),
            Err(error @ FileError::NotText(_)) => format!("{error}."),
            Err(error @ FileError::Directory(_)) => format!("{error}. You can only read files"),
            Err(error) => error.to_string(),
        };
        Ok(Observation::error(error))
    }

    pub(super) async fn write(&self, write: Write) -> Result<Observation, ExecuteError> {
        let path = files::resolve(&write.path, &self.working_dir.lock().clone());
        let shown = path.display().to_string();
        let _turn = self.editor.write_lock().await;
        let result = self
            .run_as_user(move || files::write(&path, &write.content, write.range))
            .await?;
        let error = match result {
            Ok(()) => return Ok(Observation::write(shown)),
            Err(error @ FileError::Directory(_)) => format!("{error}. You can only write to files"),
            Err(error) => error.to_string(),
        };
        Ok(Observation::error(error))
    }

    pub(super) async fn edit(&self, edit: Edit) -> Result<Observation, ExecuteError> {
        let strings = (edit.old_str.clone(), edit.new_str.clone());
        let path = edit.path.clone();
        let _turn = self.editor.write_lock().await;
        let edited = self.run_editor(edit).await?.unwrap_or_else(|error| Edited {
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

    /// Views a file through the editor. Errors are content, except for binary files.
    async fn view(&self, view: Edit) -> Result<Observation, ExecuteError> {
        let path = view.path.clone();
        let resolved = files::resolve(&path, &self.launch_context.working_dir);
        if path.starts_with('/')
            && self
                .run_as_user(move || files::is_binary(&resolved))
                .await?
        {
            return Ok(Observation::error(FileError::Binary.to_string()));
        }
        let content = match self.run_editor(view).await? {
            Ok(viewed) => viewed.content,
            Err(error) => format!("ERROR:\n{error}"),
        };
        Ok(Observation::read(path, content, "oh_aci"))
    }

    async fn run_editor(&self, edit: Edit) -> Result<Result<Edited, EditError>, ExecuteError> {
        let editor = Arc::clone(&self.editor);
        let working_dir = self.launch_context.working_dir.clone();
        self.run_as_user(move || editor.run(&edit, &working_dir))
            .await
    }
}
