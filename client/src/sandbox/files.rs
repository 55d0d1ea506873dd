//! Lists, uploads and downloads of files and trees as zip archives.

use std::path::Path;

use futures::StreamExt as _;
use http::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::archive;
use crate::api::{Repeat, encode};
use crate::http_client::{self, broken};
use crate::{Error, Sandbox};

impl Sandbox {
    /// Names in a directory: directories first, with a slash at the end.
    pub async fn list_files(&self, path: &str) -> Result<Vec<String>, Error> {
        let body = encode(&json!({"path": path}))?;
        let request = || {
            Ok(self
                .request(Method::POST, &["list_files"], &[])?
                .body(body.clone()))
        };
        http_client::json(self.send(Repeat::Temporary, request).await?).await
    }

    /// Copies a local file or tree into a directory of the sandbox, which is created, under the name
    /// `name`. `report` gets the number of bytes sent.
    pub async fn upload(
        &self,
        local: &Path,
        directory: &str,
        name: &str,
        report: impl Fn(u64) + Clone + Send + 'static,
    ) -> Result<(), Error> {
        // Sent again as a whole: files are replaced one by one.
        let file = archive::pack(local, name).await?;
        let length = file.as_file().metadata().map_err(Error::file(local))?.len();
        let boundary = format!("part-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let query = [("destination", directory)];
        let path = file.path().to_owned();
        let request = || {
            let form = archive::form(&path, length, &boundary, report.clone())?;
            let kind = format!("multipart/form-data; boundary={boundary}");
            let request = self.request(Method::POST, &["upload_file"], &query)?;
            let request = request.header(http::header::CONTENT_LENGTH, form.length);
            Ok(request
                .header(http::header::CONTENT_TYPE, kind)
                .body(form.body))
        };
        self.send(Repeat::Temporary, request).await?;
        Ok(())
    }

    /// Copies a file, or the content of a directory, of the sandbox into the local directory `local`, which
    /// is created. Nothing is written outside of it. `report` gets the number of bytes received.
    pub async fn download(
        &self,
        path: &str,
        local: &Path,
        report: &(impl Fn(u64) + Send + Sync),
    ) -> Result<(), Error> {
        let archive = self.download_zip(path, report).await?;
        archive::unpack(archive, local).await
    }

    /// Downloads a file or directory as a zip archive.
    pub async fn download_zip(
        &self,
        path: &str,
        report: &(impl Fn(u64) + Send + Sync),
    ) -> Result<tempfile::NamedTempFile, Error> {
        let query = [("path", path)];
        let request = || self.request(Method::GET, &["download_files"], &query);
        let response = self.send(Repeat::Temporary, request).await?;
        let file = tempfile::NamedTempFile::new().map_err(Error::file(&std::env::temp_dir()))?;
        let failed = || Error::file(file.path());
        let mut out = tokio::fs::File::from_std(file.reopen().map_err(failed())?);
        let mut parts = response.bytes_stream();
        let mut received = 0;
        while let Some(part) = parts.next().await {
            let part = part.map_err(|error| broken(&self.info().url, &error))?;
            out.write_all(&part).await.map_err(failed())?;
            received += part.len() as u64;
            report(received);
        }
        out.flush().await.map_err(failed())?;
        Ok(file)
    }
}
