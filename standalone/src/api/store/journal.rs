//! SQLite file behind the store: one row per object, read only at start. A malformed row is skipped
//! with a warning and never removed, because it is user data.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, params};
use serde_json::Value;

use super::ObjectKey;
use crate::api::object;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS objects (
        resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
            revision INTEGER NOT NULL,
        body TEXT NOT NULL, PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS revision (id INTEGER PRIMARY KEY CHECK (id = 1),
        value INTEGER NOT NULL);
    INSERT OR IGNORE INTO revision VALUES (1, 1);";

/// The database cannot be opened or written.
#[derive(Debug, thiserror::Error)]
#[error("state database: {0}")]
pub struct JournalError(#[from] rusqlite::Error);

/// Wait for a previous process that is still exiting.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Journal {
    connection: Connection,
    names: Vec<String>,
}

type Row = (ObjectKey, Value);

impl Journal {
    /// Opens the file and returns its objects and its revision.
    pub(super) fn open(
        path: &Path,
        names: &[String],
    ) -> Result<(Self, Vec<Row>, u64), JournalError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(LOCK_TIMEOUT)?;
        // One process only: a second one would assign the same revisions.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch(SCHEMA)?;
        let journal = Self {
            connection,
            names: names.to_vec(),
        };
        let (rows, revision) = journal.load()?;
        Ok((journal, rows, revision))
    }

    /// Commits one change; `None` removes the row.
    pub(super) fn write(
        &mut self,
        key: &ObjectKey,
        object: Option<&Value>,
        revision: u64,
    ) -> Result<(), JournalError> {
        const INSERT: &str = "INSERT OR REPLACE INTO objects VALUES (?1, ?2, ?3, ?4, ?5)";
        const DELETE: &str =
            "DELETE FROM objects WHERE resource = ?1 AND namespace = ?2 AND name = ?3";
        let (resource, namespace, name) = (&self.names[key.shard], &key.namespace, &key.name);
        let revision = i64::try_from(revision).unwrap_or(i64::MAX);
        let transaction = self.connection.transaction()?;
        match object.map(Value::to_string) {
            Some(body) => transaction
                .prepare_cached(INSERT)?
                .execute(params![resource, namespace, name, revision, body])?,
            None => transaction
                .prepare_cached(DELETE)?
                .execute(params![resource, namespace, name])?,
        };
        transaction
            .prepare_cached("UPDATE revision SET value = ?1")?
            .execute(params![revision])?;
        Ok(transaction.commit()?)
    }

    fn load(&self) -> Result<(Vec<Row>, u64), JournalError> {
        let select = "SELECT value FROM revision";
        let stored: i64 = self.connection.query_row(select, [], |row| row.get(0))?;
        let mut newest = u64::try_from(stored).unwrap_or(1).max(1);
        let select = "SELECT resource, namespace, name, revision, body FROM objects";
        let mut statement = self.connection.prepare(select)?;
        let mut rows = statement.query([])?;
        let mut loaded = Vec::new();
        while let Some(row) = rows.next()? {
            match self.decode(row) {
                Ok((row, revision)) => {
                    newest = newest.max(revision);
                    loaded.push(row);
                }
                Err(error) => tracing::warn!(error, "skipped a row of the state database"),
            }
        }
        Ok((loaded, newest))
    }

    /// Decodes a row. Its columns decide identity and revision, not the body.
    fn decode(&self, row: &rusqlite::Row<'_>) -> Result<(Row, u64), String> {
        let column = |index| {
            let text = row.get::<_, String>(index);
            text.map_err(|error| error.to_string())
        };
        let (resource, namespace, name, body) = (column(0)?, column(1)?, column(2)?, column(4)?);
        let what = format!("{resource} {namespace}/{name}");
        let shard = self.names.iter().position(|known| *known == resource);
        let shard = shard.ok_or(format!("{what}: unknown resource"))?;
        let mut object: Value =
            serde_json::from_str(&body).map_err(|error| format!("{what}: {error}"))?;
        if !object.is_object() {
            return Err(format!("{what}: not an object"));
        }
        let revision: i64 = row.get(3).unwrap_or(1);
        let revision = u64::try_from(revision).unwrap_or(1);
        object::set_meta(&mut object, "name", name.as_str());
        if !namespace.is_empty() {
            object::set_meta(&mut object, "namespace", namespace.as_str());
        }
        object::set_meta(&mut object, "resourceVersion", revision.to_string());
        Ok(((ObjectKey::new(shard, &namespace, &name), object), revision))
    }
}
