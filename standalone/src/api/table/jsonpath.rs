//! JSON paths of printer columns: fields (also `\.` and `['…']`), indices, `[*]`, and filters such
//! as `.status.conditions[?(@.type=="Ready")].status`.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
    All,
    Where(Vec<String>, String),
}

impl JsonPath {
    /// Parses a path. Unsupported syntax selects nothing and shows as an empty cell.
    pub(super) fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        let mut rest = text.trim_matches(['{', '}']);
        while !rest.is_empty() {
            rest = match rest.strip_prefix('[') {
                Some(inner) => bracket(inner, &mut steps),
                None => field(rest.strip_prefix('.').unwrap_or(rest), &mut steps),
            };
        }
        Self(steps)
    }

    pub(super) fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        walk(&self.0, object)
    }
}

fn walk<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else {
        return Some(value);
    };
    let mut items = value.as_array().into_iter().flatten();
    match step {
        Step::Field(name) => walk(rest, value.get(name)?),
        Step::Index(index) => walk(rest, value.get(index)?),
        Step::All => items.find_map(|item| walk(rest, item)),
        Step::Where(path, wanted) => {
            let fits = |item: &&Value| {
                path.iter()
                    .try_fold(*item, |item, step| item.get(step))
                    .is_some_and(|v| text(v) == *wanted)
            };
            items.filter(fits).find_map(|item| walk(rest, item))
        }
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn field<'a>(rest: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let mut name = String::new();
    let mut letters = rest.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.extend(letters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => {
                push_field(name, steps);
                return &rest[at..];
            }
            _ => name.push(letter),
        }
    }
    push_field(name, steps);
    ""
}

fn push_field(name: String, steps: &mut Vec<Step>) {
    if !name.is_empty() {
        steps.push(Step::Field(name));
    }
}

fn bracket<'a>(inner: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let (content, rest) = inner.split_once(']').unwrap_or((inner, ""));
    steps.push(selector(content.trim()));
    rest
}

fn selector(content: &str) -> Step {
    if content == "*" {
        return Step::All;
    }
    if let Some((path, value)) = content
        .strip_prefix("?(@.")
        .and_then(|c| c.strip_suffix(')'))
        .and_then(|c| c.split_once("=="))
    {
        let value = value.trim().trim_matches(['"', '\'']).to_owned();
        return Step::Where(path.trim().split('.').map(str::to_owned).collect(), value);
    }
    content.parse().map_or_else(
        |_| Step::Field(content.trim_matches(['"', '\'']).to_owned()),
        Step::Index,
    )
}
