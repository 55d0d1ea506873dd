//! Commands of `sandbox-operator` and of `sandbox` that create, list and revoke API keys. A key is
//! printed once, when it is created; the Secret holds only its hash. Gateways and controllers watch
//! the Secret.

use std::fmt::Write as _;

use clap::{Subcommand, ValueEnum};
use jiff::Timestamp;
use kube::Client;

use super::key_document::{KeyDocument, KeyDocumentError, ListedKey, NewKey};
use super::key_secret::{KeySecretError, load_document, secrets, update_secret};
use super::record::RawRecord;
use crate::image_builds::ImageBuilds;
use crate::kubernetes::client::with_timeout;
use crate::kubernetes::root_key;
use crate::quantity;
use crate::urls::UrlForm;

#[derive(Debug, Clone, Subcommand)]
pub enum KeyCommand {
    /// Create a key and print it
    Create(Box<CreateArgs>),
    /// List ids, names and limits of the keys
    List {
        /// Form of the output
        #[arg(long, short = 'o', value_name = "FORMAT")]
        output: Option<ListFormat>,
    },
    /// Revoke a key by its id, or all keys of a name
    Revoke {
        /// Id as `list` shows it, or name
        key: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ListFormat {
    Json,
}

#[derive(Debug, Clone, clap::Args)]
pub struct CreateArgs {
    /// Tenant name. Keys of one name share their sandboxes
    pub name: String,
    /// Maximum number of running sandboxes
    #[arg(long)]
    max_sandboxes: Option<u32>,
    /// Maximum sum of their CPU limits, for example 16 or 500m
    #[arg(long, value_parser = amount)]
    max_cpu: Option<String>,
    /// Maximum sum of their memory limits, for example 32Gi
    #[arg(long, value_parser = amount)]
    max_memory: Option<String>,
    /// Maximum number of starts that wait for quota [default: 100]
    #[arg(long)]
    max_waiting: Option<u32>,
    /// Maximum number of sandboxes in all states, paused ones included [default: 10000]
    #[arg(long)]
    max_total_sandboxes: Option<u32>,
    /// URL form: nested, flat, path or loopback. Default: that of the installation
    #[arg(long)]
    url_form: Option<UrlForm>,
    /// Calls per second; faster ones are delayed; 0 means no limit [default: 100]
    #[arg(long)]
    calls_per_second: Option<u32>,
    /// Image repository for clients that name no image; they append /runtime. Default: that of the
    /// installation
    #[arg(long)]
    registry_prefix: Option<String>,
    /// Image builds: off, alias, append or full. Default: those of the installation, which are the
    /// most that a key gets
    #[arg(long)]
    image_builds: Option<ImageBuilds>,
    /// Time until the key expires, for example 720h. Default: never
    #[arg(long, value_parser = expiry)]
    expires_in: Option<jiff::SignedDuration>,
}

/// Output of a command: the result, and notes for the person who reads along.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub result: String,
    pub notes: Vec<String>,
}

impl KeyCommand {
    /// Carries out the command on the keys of the operator in `namespace`.
    pub async fn run(&self, client: &Client, namespace: &str) -> Result<Output, KeySecretError> {
        match self {
            Self::Create(create) => create.run(client, namespace).await,
            Self::List { output } => {
                let document = load_document(client, namespace).await?;
                let keys = document.as_ref().map(KeyDocument::list).unwrap_or_default();
                let result = match output {
                    Some(ListFormat::Json) => json(keys)?,
                    None => table(&keys),
                };
                let notes = match document {
                    Some(_) => Vec::new(),
                    None => vec![
                        format!("No API keys are stored in namespace {namespace}."),
                        "Those of an operator are in its namespace, those of standalone in default \
                         (--operator-namespace)."
                            .into(),
                    ],
                };
                Ok(Output { result, notes })
            }
            Self::Revoke { key } => {
                let revoke = |document: &mut KeyDocument| document.revoke(key);
                let revoked = update_secret(client, namespace, revoke).await?;
                Ok(Output {
                    result: format!("{revoked} revoked\n"),
                    notes: Vec::new(),
                })
            }
        }
    }
}

impl CreateArgs {
    async fn run(&self, client: &Client, namespace: &str) -> Result<Output, KeySecretError> {
        // Nothing may fail or wait between the creation of a key and its output.
        let is_installed = is_installed(client, namespace).await;
        let create = |document: &mut KeyDocument| {
            document.validate_name(&self.name)?;
            document.create(self.record(), Timestamp::now())
        };
        let NewKey { id, key } = update_secret(client, namespace, create).await?;
        let name = &self.name;
        let mut notes = vec![
            format!("Created key {id} of {name:?} for the operator in namespace {namespace}."),
            "It is printed only once:".into(),
        ];
        if !is_installed {
            notes.push(format!(
                "No operator has run in namespace {namespace} yet: the key works where one does \
                 (--operator-namespace)."
            ));
        }
        Ok(Output {
            result: format!("{key}\n"),
            notes,
        })
    }

    pub fn record(&self) -> RawRecord {
        RawRecord {
            name: self.name.clone(),
            max_sandboxes: self.max_sandboxes,
            max_cpu: self.max_cpu.clone(),
            max_memory: self.max_memory.clone(),
            max_waiting: self.max_waiting,
            max_total_sandboxes: self.max_total_sandboxes,
            url_form: self.url_form.map(|form| form.to_string()),
            calls_per_second: self.calls_per_second,
            registry_prefix: self.registry_prefix.clone(),
            image_builds: self.image_builds.map(|builds| builds.to_string()),
            expires_at: self
                .expires_in
                .map(|after| (Timestamp::now() + after).strftime("%FT%TZ").to_string()),
            ..RawRecord::default()
        }
    }
}

/// Reads a duration of at most 100 years, so that the time of expiry exists.
pub fn expiry(text: &str) -> Result<jiff::SignedDuration, String> {
    const CENTURY: jiff::SignedDuration = jiff::SignedDuration::from_hours(100 * 365 * 24);
    let parsed = text.parse::<jiff::SignedDuration>();
    let duration = parsed.map_err(|_| "not a duration (examples: 720h, 30m)")?;
    if duration.is_positive() && duration <= CENTURY {
        return Ok(duration);
    }
    Err("must be positive and at most 100 years".into())
}

fn amount(text: &str) -> Result<String, String> {
    match quantity::whole(text, 1000.0) {
        Some(_) => Ok(text.to_owned()),
        None => Err("not a quantity (examples: 16, 500m, 32Gi)".into()),
    }
}

/// Returns whether the namespace has a root key, which a controller creates at its first start. True
/// also without the permission to read it.
async fn is_installed(client: &Client, namespace: &str) -> bool {
    let found =
        with_timeout(secrets(client, namespace).get_metadata_opt(root_key::SECRET_NAME)).await;
    !matches!(found, Ok(None))
}

fn json(keys: Vec<ListedKey>) -> Result<String, KeyDocumentError> {
    let shown = |ListedKey { id, record, fault }: ListedKey| {
        let mut shown = serde_json::to_value(record)?;
        // A key that was not generated may be guessed by it.
        shown.as_object_mut().map(|fields| fields.remove("sha256"));
        shown["id"] = id.into();
        shown["fault"] = fault.into();
        Ok(shown)
    };
    let keys: Result<Vec<_>, serde_json::Error> = keys.into_iter().map(shown).collect();
    Ok(serde_json::to_string_pretty(&keys?)? + "\n")
}

fn table(keys: &[ListedKey]) -> String {
    let mut text = "ID        NAME                  CREATED               LIMITS\n".to_owned();
    for ListedKey { id, record, fault } in keys {
        let created = record.created_at.as_deref().unwrap_or("-");
        let limits = fault.map_or_else(|| limits(record), |fault| format!("no effect: {fault}"));
        let line = format!("{id:8}  {:20}  {created:20}  {limits}", record.name);
        let _ = writeln!(text, "{}", line.escape_debug());
    }
    text
}

fn limits(record: &RawRecord) -> String {
    let number = |n: Option<u32>| n.map(|n| n.to_string());
    let all = [
        ("sandboxes", number(record.max_sandboxes)),
        ("cpu", record.max_cpu.clone()),
        ("memory", record.max_memory.clone()),
        ("waiting", number(record.max_waiting)),
        ("total", number(record.max_total_sandboxes)),
        ("calls/s", number(record.calls_per_second)),
        ("urls", record.url_form.clone()),
        ("expires", record.expires_at.clone()),
    ];
    let set = all.into_iter();
    let set: Vec<_> = set
        .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
        .collect();
    if set.is_empty() {
        "-".into()
    } else {
        set.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::Value;
    use testing::FakeApi;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct TestArgs {
        #[command(subcommand)]
        command: KeyCommand,
    }

    fn parse(args: &[&str]) -> Result<KeyCommand, String> {
        let line = [&["x"], args].concat();
        let parsed = TestArgs::try_parse_from(line);
        parsed
            .map(|args| args.command)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn quantities_and_durations_are_validated() {
        let create = |args: &[&str]| parse(&[&["create", "a"], args].concat());
        assert!(create(&["--max-cpu", "500m", "--max-memory", "32Gi"]).is_ok());
        let Ok(KeyCommand::Create(args)) = create(&["--expires-in", "24h"]) else {
            panic!("a valid command");
        };
        let expiry: Timestamp = args.record().expires_at.unwrap().parse().unwrap();
        assert!(expiry > Timestamp::now());
        for wrong in ["-1h", "0s", "soon", "99999999h"] {
            assert!(
                create(&[&format!("--expires-in={wrong}")]).is_err(),
                "{wrong}"
            );
        }
        let said = create(&["--max-cpu", "much"]).unwrap_err();
        assert!(
            said.contains("--max-cpu") && said.contains("examples: 16"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn created_key_is_listed_until_it_is_revoked() {
        let api = FakeApi::default();
        let client = api.client();
        let run = async |args: &[&str]| {
            let command = parse(args).unwrap();
            command.run(&client, "ns").await
        };
        let none = run(&["list"]).await.unwrap();
        assert_eq!((none.result.lines().count(), none.notes.len()), (1, 2));
        let made = run(&[
            "create",
            "a",
            "--max-sandboxes=2",
            "--max-total-sandboxes=9",
        ]);
        let made = made.await.unwrap();
        assert!(made.result.starts_with("sbx_"));
        assert!(made.notes[2].starts_with("No operator has run in namespace ns"));

        let table = run(&["list"]).await.unwrap().result;
        assert!(
            table.contains("  a  ") && table.contains("sandboxes=2 total=9"),
            "{table}"
        );
        let text = run(&["list", "-o", "json"]).await.unwrap().result;
        let [key] = &serde_json::from_str::<Vec<Value>>(&text).unwrap()[..] else {
            panic!("one key: {text}");
        };
        assert_eq!(
            (&key["name"], &key["maxSandboxes"]),
            (&"a".into(), &2.into())
        );

        assert_eq!(key["sha256"], Value::Null);
        let id = key["id"].as_str().unwrap();
        let revoked = run(&["revoke", id]).await.unwrap();
        assert_eq!(revoked.result, "1 revoked\n");
        let again = run(&["revoke", id]).await.unwrap_err().to_string();
        assert!(again.contains(id), "{again}");
        let named = run(&["create", "team a"]).await.unwrap_err().to_string();
        assert!(named.contains("as in team-a"), "{named}");
    }
}
