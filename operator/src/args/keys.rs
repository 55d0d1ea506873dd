//! `sandbox-operator keys`: creates, lists and revokes API keys, and rotates the root key. An API key
//! is printed once, when it is created; the Secret holds only its hash. Gateways and controllers
//! watch the Secret.

mod ensure;
mod root;

use clap::Subcommand;
use jiff::Timestamp;
use kube::Client;

use super::Installation;
use crate::key_secret::{load_document, secrets, update_secret};
use shared::image_builds::ImageBuilds;
use shared::kubernetes::client::with_timeout;
use shared::kubernetes::root_key;
use shared::quantity;
use shared::tenants::MAX_NAME_LEN;
use shared::tenants::key_document::{KeyDocument, ListedKey, NewKey};
use shared::tenants::record::RawRecord;
use shared::urls::UrlForm;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct KeysArgs {
    #[command(flatten)]
    installation: Installation,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Create a key and print it.
    Create(Box<CreateArgs>),
    /// Make the key in another Secret valid; create key and Secret if absent. Idempotent, for
    /// installations.
    Ensure(Box<ensure::EnsureArgs>),
    /// List ids, names and limits of the keys.
    List,
    /// Revoke a key by its id, or all keys of a name.
    Revoke {
        /// Id as `list` shows it, or name.
        key: String,
    },
    /// Begin a rotation of the root key.
    RotateRoot(root::RotateArgs),
    /// End a rotation of the root key, once no sandbox has the previous one.
    FinishRotation(root::FinishArgs),
}

#[derive(Debug, Clone, clap::Args)]
struct CreateArgs {
    /// Tenant name. Keys of one name share their sandboxes.
    name: String,
    /// Maximum number of running sandboxes.
    #[arg(long)]
    max_sandboxes: Option<u32>,
    /// Maximum sum of their CPU limits, for example 16 or 500m.
    #[arg(long, value_parser = amount)]
    max_cpu: Option<String>,
    /// Maximum sum of their memory limits, for example 32Gi.
    #[arg(long, value_parser = amount)]
    max_memory: Option<String>,
    /// Maximum number of starts that wait for quota [default: 100].
    #[arg(long)]
    max_waiting: Option<u32>,
    /// URL form: nested, flat, path or loopback. Default: that of the installation.
    #[arg(long)]
    url_form: Option<UrlForm>,
    /// Calls per second; faster ones are delayed; 0 means no limit [default: 100].
    #[arg(long)]
    calls_per_second: Option<u32>,
    /// Image repository for clients that name no image; they append /runtime. Default: that of the
    /// installation.
    #[arg(long)]
    registry_prefix: Option<String>,
    /// Image builds: off, alias, append or full. Default: those of the installation, which are the
    /// most that a key gets.
    #[arg(long)]
    image_builds: Option<ImageBuilds>,
    /// Time until the key expires, for example 720h. Default: never.
    #[arg(long, value_parser = expiry)]
    expires_in: Option<jiff::SignedDuration>,
}

impl KeysArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = self.installation.client().await?;
        let namespace = self.installation.namespace(&client);
        match self.action {
            Action::Create(create) => {
                let record = create.record();
                let create = |document: &mut KeyDocument| {
                    validate_name(document, &record.name)?;
                    Ok(document.create(record.clone(), Timestamp::now())?)
                };
                let NewKey { id, key } = update_secret(&client, &namespace, create).await?;
                let name = &record.name;
                eprintln!(
                    "Created key {id} of {name:?} for the operator in namespace {namespace}."
                );
                eprintln!("It is printed only once:");
                println!("{key}");
                warn_if_not_installed(&client, &namespace).await;
            }
            Action::Ensure(ensure) => ensure.run(&client, &namespace).await?,
            Action::RotateRoot(rotate) => rotate.run(&client, &namespace).await?,
            Action::FinishRotation(finish) => finish.run(&client, &namespace).await?,
            Action::List => {
                let document = load_document(&client, &namespace).await?;
                if document.is_none() {
                    eprintln!("No API keys are stored in namespace {namespace}.");
                    eprintln!("The key that sandbox-standalone prints at its start is not stored.");
                }
                print(&document.unwrap_or_default().list());
            }
            Action::Revoke { key } => {
                let revoke = |document: &mut KeyDocument| Ok(document.revoke(&key)?);
                let revoked = update_secret(&client, &namespace, revoke).await?;
                println!("{revoked} revoked");
            }
        }
        Ok(())
    }
}

impl CreateArgs {
    fn record(&self) -> RawRecord {
        RawRecord {
            name: self.name.clone(),
            max_sandboxes: self.max_sandboxes,
            max_cpu: self.max_cpu.clone(),
            max_memory: self.max_memory.clone(),
            max_waiting: self.max_waiting,
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

/// Rejects a new name that is hard to show, type or search for in lists, logs and metrics. The name
/// of an existing key stays valid, so that the key can be replaced.
fn validate_name(document: &KeyDocument, name: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        is_valid_name(name) || document.has_name(name),
        "{name:?} is not a valid name of a key: \
         use up to 63 letters and digits, with -, _, . and @ between them, as in team-a"
    );
    Ok(())
}

fn is_valid_name(name: &str) -> bool {
    let between = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let ends = [name.chars().next(), name.chars().next_back()];
    let sound = ends
        .iter()
        .all(|c| c.is_some_and(|c| c.is_ascii_alphanumeric()));
    sound && name.chars().all(between) && name.len() <= MAX_NAME_LEN
}

/// Reads a duration of at most 100 years, so that the time of expiry exists.
fn expiry(text: &str) -> Result<jiff::SignedDuration, String> {
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

/// Warns if the namespace has no root key, which a controller creates at its first start.
async fn warn_if_not_installed(client: &Client, namespace: &str) {
    let found =
        with_timeout(secrets(client, namespace).get_metadata_opt(root_key::SECRET_NAME)).await;
    // Without the permission to read it, there is no warning.
    if matches!(found, Ok(None)) {
        eprintln!("No operator has run in namespace {namespace} yet: the key works where one does");
        eprintln!("(--operator-namespace, or the namespace of the kubeconfig's context).");
    }
}

fn print(keys: &[ListedKey]) {
    println!("ID        NAME                  CREATED               LIMITS");
    for ListedKey { id, record, fault } in keys {
        let created = record.created_at.as_deref().unwrap_or("-");
        let limits = fault.map_or_else(|| limits(record), |fault| format!("no effect: {fault}"));
        println!("{id:8}  {:20}  {created:20}  {limits}", record.name);
    }
}

fn limits(record: &RawRecord) -> String {
    let number = |n: Option<u32>| n.map(|n| n.to_string());
    let all = [
        ("sandboxes", number(record.max_sandboxes)),
        ("cpu", record.max_cpu.clone()),
        ("memory", record.max_memory.clone()),
        ("waiting", number(record.max_waiting)),
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

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct TestArgs {
        #[command(flatten)]
        create: CreateArgs,
    }

    #[test]
    fn names_and_quantities_are_validated() {
        let parse = |args: &[&str]| {
            let line = [&["x"], args].concat();
            TestArgs::try_parse_from(line).map_err(|error| error.to_string())
        };
        let mut document = KeyDocument::default();
        for name in ["a", "team-a", "Team_7", "who@example.org", &"x".repeat(63)] {
            assert!(validate_name(&document, name).is_ok(), "{name}");
        }
        for name in [
            "",
            " ",
            "team a",
            "-a",
            "a.",
            "\u{fc}",
            "a\nb",
            &"x".repeat(64),
        ] {
            let said = validate_name(&document, name).unwrap_err().to_string();
            assert!(said.contains("as in team-a"), "{name:?}: {said}");
        }
        let old = RawRecord {
            name: "Team A".into(),
            ..RawRecord::default()
        };
        document.create(old, Timestamp::UNIX_EPOCH).unwrap();
        assert!(
            validate_name(&document, "Team A").is_ok()
                && validate_name(&document, "Team B").is_err()
        );
        assert!(parse(&["a", "--max-cpu", "500m", "--max-memory", "32Gi"]).is_ok());
        let record = parse(&["a", "--expires-in", "24h"])
            .unwrap()
            .create
            .record();
        let expiry: Timestamp = record.expires_at.unwrap().parse().unwrap();
        assert!(expiry > Timestamp::now());
        for wrong in ["-1h", "0s", "soon", "99999999h"] {
            assert!(
                parse(&["a", &format!("--expires-in={wrong}")]).is_err(),
                "{wrong}"
            );
        }
        let said = parse(&["a", "--max-cpu", "much"]).unwrap_err();
        assert!(
            said.contains("--max-cpu") && said.contains("examples: 16"),
            "{said}"
        );
    }
}
