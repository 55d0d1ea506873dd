//! `sandbox-operator keys`: makes, lists and revokes API keys. A key is shown once, when it is
//! made; the Secret holds only its hash. Gateways and controllers see the change at once.

mod ensure;

use clap::Subcommand;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use super::Installation;
use crate::kubernetes::client::{CallError, bounded};
use crate::kubernetes::root_key;
use crate::quantity;
use crate::tenants::book::{Book, Listed, NewKey};
use crate::tenants::record::RawRecord;
use crate::tenants::{MAX_NAME_LEN, SECRET, SECRET_KEY};
use crate::urls::UrlForm;

/// Attempts to change the Secret while others change it too.
const ATTEMPTS: u32 = 5;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct KeysArgs {
    #[command(flatten)]
    installation: Installation,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Makes a key and prints it.
    Create(Box<Create>),
    /// Sees to it that the key in another Secret works; makes the key and that Secret if there are
    /// none. For installations: it may run again and again.
    Ensure(Box<ensure::Ensure>),
    /// Lists the keys, without the keys themselves.
    List,
    /// Revokes a key by its id, or all keys of a name.
    Revoke {
        /// Id as `list` shows it, or name.
        key: String,
    },
}

#[derive(Debug, Clone, clap::Args)]
struct Create {
    /// Whose key it is. Keys of one name see the same sandboxes.
    name: String,
    /// Most sandboxes that may run at the same time.
    #[arg(long)]
    max_sandboxes: Option<u32>,
    /// Sum of their CPU limits, for example 16 or 500m.
    #[arg(long, value_parser = amount)]
    max_cpu: Option<String>,
    /// Sum of their memory limits, for example 32Gi.
    #[arg(long, value_parser = amount)]
    max_memory: Option<String>,
    /// Starts that may wait for one of the limits above [default: 100].
    #[arg(long)]
    max_waiting: Option<u32>,
    /// Form of sandbox URLs: nested, flat, path or loopback. Default: that of the installation.
    #[arg(long)]
    url_form: Option<UrlForm>,
    /// Calls per second; faster ones wait.
    #[arg(long)]
    calls_per_second: Option<u32>,
}

impl KeysArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = self.installation.client().await?;
        let namespace = self.installation.namespace(&client);
        match self.action {
            Action::Create(create) => {
                let record = create.record();
                let make = |book: &mut Book| {
                    permit(book, &record.name)?;
                    Ok(book.create(record.clone(), Timestamp::now())?)
                };
                let NewKey { id, key } = change(&client, &namespace, make).await?;
                let name = &record.name;
                eprintln!("Key {id} of {name:?} for the operator in namespace {namespace}.");
                eprintln!("It is shown only now:");
                println!("{key}");
                warn_of_absence(&client, &namespace).await;
            }
            Action::Ensure(ensure) => ensure.run(&client, &namespace).await?,
            Action::List => {
                let book = stored(&client, &namespace).await?;
                if book.is_none() {
                    eprintln!("There are no keys in namespace {namespace}.");
                }
                print(&book.unwrap_or_default().list());
            }
            Action::Revoke { key } => {
                let revoke = |book: &mut Book| Ok(book.revoke(&key)?);
                let revoked = change(&client, &namespace, revoke).await?;
                println!("{revoked} revoked");
            }
        }
        Ok(())
    }
}

impl Create {
    fn record(&self) -> RawRecord {
        RawRecord {
            name: self.name.clone(),
            max_sandboxes: self.max_sandboxes,
            max_cpu: self.max_cpu.clone(),
            max_memory: self.max_memory.clone(),
            max_waiting: self.max_waiting,
            url_form: self.url_form.map(|form| form.to_string()),
            calls_per_second: self.calls_per_second,
            ..RawRecord::default()
        }
    }
}

/// Refuses a new name that cannot be shown, typed and searched for: it stands in lists, logs and
/// metrics. A name that has a key already stays good, so that its key can be replaced.
fn permit(book: &Book, name: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        is_plain(name) || book.has_name(name),
        "{name:?} cannot be the name of a key: \
         up to 63 letters and digits, with -, _, . and @ between them, as in team-a"
    );
    Ok(())
}

fn is_plain(name: &str) -> bool {
    let between = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let ends = [name.chars().next(), name.chars().next_back()];
    let sound = ends
        .iter()
        .all(|c| c.is_some_and(|c| c.is_ascii_alphanumeric()));
    sound && name.chars().all(between) && name.len() <= MAX_NAME_LEN
}

fn amount(text: &str) -> Result<String, String> {
    match quantity::whole(text, 1000.0) {
        Some(_) => Ok(text.to_owned()),
        None => Err("no quantity, such as 16, 500m or 32Gi".into()),
    }
}

/// Warns where no operator has ever been: its controller makes the root key when it first starts.
async fn warn_of_absence(client: &Client, namespace: &str) {
    let found = bounded(secrets(client, namespace).get_metadata_opt(root_key::SECRET)).await;
    // Who may not look is not told.
    if matches!(found, Ok(None)) {
        eprintln!("No operator has run in namespace {namespace} yet: the key works where one does");
        eprintln!("(--operator-namespace, or the namespace of the kubeconfig's context).");
    }
}

fn secrets(client: &Client, namespace: &str) -> Api<Secret> {
    Api::namespaced(client.clone(), namespace)
}

/// Changes the Secret, made if there is none, and again if somebody else changed it meanwhile.
async fn change<T>(
    client: &Client,
    namespace: &str,
    change: impl Fn(&mut Book) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let api = secrets(client, namespace);
    for _ in 0..ATTEMPTS {
        let found = bounded(api.get_opt(SECRET)).await?;
        let mut book = found.as_ref().map(read).transpose()?.unwrap_or_default();
        let before = book.clone();
        let changed = change(&mut book)?;
        if book == before {
            return Ok(changed);
        }
        match store(&api, found, &book).await? {
            Ok(()) => return Ok(changed),
            Err(error) if error.is_conflict() || error.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("Secret {SECRET} is changed all the time by somebody else")
}

/// The keys that there are; `None` if there have never been any.
async fn stored(client: &Client, namespace: &str) -> anyhow::Result<Option<Book>> {
    let secret = bounded(secrets(client, namespace).get_opt(SECRET)).await?;
    secret.as_ref().map(read).transpose()
}

fn read(secret: &Secret) -> anyhow::Result<Book> {
    let json = secret.data.as_ref().and_then(|data| data.get(SECRET_KEY));
    Ok(json
        .map(|json| Book::read(&json.0))
        .transpose()?
        .unwrap_or_default())
}

/// Writes the Secret only as a successor of the version that was read.
async fn store(
    api: &Api<Secret>,
    found: Option<Secret>,
    book: &Book,
) -> anyhow::Result<Result<(), CallError>> {
    let params = PostParams::default();
    let is_new = found.is_none();
    let mut secret = found.unwrap_or_else(|| Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.into()),
            ..ObjectMeta::default()
        },
        ..Secret::default()
    });
    let data = secret.data.get_or_insert_default();
    data.insert(SECRET_KEY.into(), ByteString(book.write()?));
    let written = if is_new {
        bounded(api.create(&params, &secret)).await
    } else {
        bounded(api.replace(SECRET, &params, &secret)).await
    };
    Ok(written.map(|_| ()))
}

fn print(keys: &[Listed]) {
    println!("ID        NAME                  CREATED               LIMITS");
    for Listed { id, record, fault } in keys {
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
    use crate::kubernetes::fake::FakeApi;

    #[tokio::test]
    async fn the_secret_is_made_and_then_changed_under_its_version() {
        let api = FakeApi::default();
        let client = api.client();
        let record = RawRecord {
            name: "a".into(),
            ..RawRecord::default()
        };
        let make = |book: &mut Book| Ok(book.create(record.clone(), Timestamp::UNIX_EPOCH)?);
        let first = change(&client, "ns", make).await.unwrap();
        let (other, second) = (api.client(), api.client());
        let (a, b) = tokio::join!(change(&other, "ns", make), change(&second, "ns", make));
        let secret = secrets(&client, "ns").get(SECRET).await.unwrap();
        let ids: Vec<_> = read(&secret)
            .unwrap()
            .list()
            .into_iter()
            .map(|k| k.id)
            .collect();
        for made in [first, a.unwrap(), b.unwrap()] {
            assert!(ids.contains(&made.id), "nothing is overwritten");
        }
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        create: Create,
    }

    #[test]
    fn names_and_amounts_are_checked_where_they_are_typed() {
        let parse = |args: &[&str]| {
            let line = [&["x"], args].concat();
            Line::try_parse_from(line).map_err(|error| error.to_string())
        };
        let mut book = Book::default();
        for name in ["a", "team-a", "Team_7", "who@example.org", &"x".repeat(63)] {
            assert!(permit(&book, name).is_ok(), "{name}");
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
            let said = permit(&book, name).unwrap_err().to_string();
            assert!(said.contains("as in team-a"), "{name:?}: {said}");
        }
        let old = RawRecord {
            name: "Team A".into(),
            ..RawRecord::default()
        };
        book.create(old, Timestamp::UNIX_EPOCH).unwrap();
        assert!(permit(&book, "Team A").is_ok() && permit(&book, "Team B").is_err());
        assert!(parse(&["a", "--max-cpu", "500m", "--max-memory", "32Gi"]).is_ok());
        let said = parse(&["a", "--max-cpu", "much"]).unwrap_err();
        assert!(
            said.contains("--max-cpu") && said.contains("such as 16"),
            "{said}"
        );
    }
}
