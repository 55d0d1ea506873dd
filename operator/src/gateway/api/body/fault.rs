//! What is wrong with a body, in words that name the field and what it should be, and never tell
//! what it is: that may be a secret, and answers are logged by clients.

use serde::de::DeserializeOwned;
use serde_json::Deserializer;
use serde_json::error::Category;
use serde_path_to_error::Path;

use crate::gateway::api::ApiError;

/// Most characters of a field that are told: names in maps are the client's.
const LONGEST_FIELD: usize = 64;
/// What stands before the expectation in the texts of serde.
const EXPECTED: &str = ", expected ";
/// Names of serde for kinds of values, and those of clients.
const KINDS: [(&str, &str); 7] = [
    ("i64", "a whole number"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a map", "an object"),
    ("a string", "text"),
];

/// Reads a body that is an object.
pub(super) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, ApiError> {
    let mut source = Deserializer::from_slice(json);
    let read = serde_path_to_error::deserialize(&mut source);
    let read = read.map_err(|error| describe(error.path(), error.inner()))?;
    source.end().map_err(|error| malformed(&error))?;
    Ok(read)
}

fn describe(path: &Path, error: &serde_json::Error) -> ApiError {
    if error.classify() != Category::Data {
        return malformed(error);
    }
    let text = error.to_string();
    if let Some(name) = text.strip_prefix("missing field `") {
        let name = name.split('`').next().unwrap_or_default();
        return ApiError::bad(format!("{name} is required"));
    }
    if let Some(name) = text.strip_prefix("duplicate field `") {
        let name = name.split('`').next().unwrap_or_default();
        return ApiError::bad(format!("{name} is there twice"));
    }
    let field: String = path.to_string().chars().take(LONGEST_FIELD).collect();
    match expected(&text) {
        Some(kind) => ApiError::bad(format!("{field} must be {kind}")),
        None => ApiError::bad(format!("{field} cannot be read")),
    }
}

/// What the field should be. Only the end of the text is fixed: before it may stand the value.
fn expected(text: &str) -> Option<&str> {
    let (_, kind) = text.rsplit_once(EXPECTED)?;
    let kind = kind.rsplit_once(" at line ").map_or(kind, |(kind, _)| kind);
    let known = KINDS.iter().find(|(name, _)| *name == kind);
    Some(known.map_or(kind, |(_, said)| said))
}

/// The position is enough to find the fault.
fn malformed(error: &serde_json::Error) -> ApiError {
    let (line, column) = (error.line(), error.column());
    ApiError::bad(format!(
        "the body is not valid JSON at line {line} column {column}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::api::start::StartRequest;
    use crate::gateway::configs::ConfigRequest;

    fn fault<T: DeserializeOwned>(body: &str) -> String {
        match read::<T>(body.as_bytes()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_field_and_what_it_should_be_are_named() {
        for (field, said) in [
            ("image", "text"),
            ("command", "text or a list of texts"),
            ("environment", "an object"),
            ("session_id", "text"),
            ("resource_factor", "a number"),
            ("run_as_user", "a whole number"),
        ] {
            let odd = match field {
                "resource_factor" | "run_as_user" => json!("SECRET, expected x"),
                "environment" => json!(["SECRET"]),
                "command" => json!({"SECRET": 1}),
                _ => json!(7),
            };
            let body = json!({"a": 1, field: odd}).to_string();
            let expected = format!("{field} must be {said}");
            assert_eq!(fault::<StartRequest>(&body), expected, "{body}");
        }
        let words = r#"{"command": ["a", 1]}"#;
        let said = "command must be text or a list of texts";
        assert_eq!(fault::<StartRequest>(words), said);
        let said = "run_as_user must be a whole number";
        assert_eq!(fault::<StartRequest>(r#"{"run_as_user": 1e300}"#), said);
    }

    #[test]
    fn configs_say_where_in_them_the_fault_is() {
        for (body, said) in [
            (r"{}", "image is required"),
            (r#"{"image": "i", "image": "j"}"#, "image is there twice"),
            (
                r#"{"image": "i", "environment": {"A": 1}}"#,
                "environment.A must be text",
            ),
            (
                r#"{"image": "i", "command": ["a", {}]}"#,
                "command[1] must be text",
            ),
            (
                r#"{"image": "i", "count": -1}"#,
                "count must be a whole number from 0 to 4294967295",
            ),
            (
                r#"{"image": "i", "fuse_s3_mount": "SECRET"}"#,
                "fuse_s3_mount must be true or false",
            ),
        ] {
            assert_eq!(fault::<ConfigRequest>(body), said, "{body}");
        }
        let name = "x".repeat(1000);
        let body = json!({"image": "i", "environment": {name: 1}}).to_string();
        let said = fault::<ConfigRequest>(&body);
        assert!(
            said.len() < 100 && said.ends_with("x must be text"),
            "{said}"
        );
    }

    #[test]
    fn what_is_no_json_is_told_by_its_place() {
        let said = "the body is not valid JSON at line 2 column 1";
        assert_eq!(fault::<StartRequest>("{\"image\": \"SECRET\"\n?}"), said);
        let said = "the body is not valid JSON at line 1 column 3";
        assert_eq!(fault::<StartRequest>("{}?"), said);
    }
}
