//! Decoder for the few protobuf messages that kubectl sends without falling back to JSON (`create
//! secret`, `configmap`, `namespace`; delete options).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::error::ApiError;

pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Prefix of every Kubernetes protobuf message.
const MAGIC: &[u8] = b"k8s\0";

/// Number, name and type of each field. Other numbers are skipped.
type Fields = &'static [(u64, &'static str, Form)];

#[derive(Clone, Copy)]
enum Form {
    Text,
    Bytes,
    Integer,
    Flag,
    Texts,
    Message(Fields),
    /// Of texts, or of bytes.
    Map(Fields),
}

const ENVELOPE: Fields = &[
    (1, "type", Form::Message(TYPE_META)),
    (2, "raw", Form::Bytes),
];
const TYPE_META: Fields = &[(1, "apiVersion", Form::Text), (2, "kind", Form::Text)];
const OBJECT_META: Fields = &[
    (1, "name", Form::Text),
    (2, "generateName", Form::Text),
    (3, "namespace", Form::Text),
    (11, "labels", Form::Map(ENTRY)),
    (12, "annotations", Form::Map(ENTRY)),
    (14, "finalizers", Form::Texts),
];
const PLAIN: Fields = &[(1, "metadata", Form::Message(OBJECT_META))];
const SECRET: Fields = &[
    (1, "metadata", Form::Message(OBJECT_META)),
    (2, "data", Form::Map(BYTES_ENTRY)),
    (3, "type", Form::Text),
    (4, "stringData", Form::Map(ENTRY)),
    (5, "immutable", Form::Flag),
];
const CONFIG_MAP: Fields = &[
    (1, "metadata", Form::Message(OBJECT_META)),
    (2, "data", Form::Map(ENTRY)),
    (3, "binaryData", Form::Map(BYTES_ENTRY)),
    (4, "immutable", Form::Flag),
];
const PRECONDITIONS: Fields = &[(1, "uid", Form::Text), (2, "resourceVersion", Form::Text)];
const DELETE_OPTIONS: Fields = &[
    (1, "gracePeriodSeconds", Form::Integer),
    (2, "preconditions", Form::Message(PRECONDITIONS)),
    (3, "orphanDependents", Form::Flag),
    (4, "propagationPolicy", Form::Text),
    (5, "dryRun", Form::Texts),
];
const EVICTION: Fields = &[
    (1, "metadata", Form::Message(OBJECT_META)),
    (2, "deleteOptions", Form::Message(DELETE_OPTIONS)),
];
const ENTRY: Fields = &[(1, "key", Form::Text), (2, "value", Form::Text)];
const BYTES_ENTRY: Fields = &[(1, "key", Form::Text), (2, "value", Form::Bytes)];

pub(crate) fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let malformed = || ApiError::BadRequest("the protobuf body cannot be read".to_owned());
    let envelope =
        message(body.strip_prefix(MAGIC).ok_or_else(malformed)?, ENVELOPE).ok_or_else(malformed)?;
    let fields = match envelope["type"]["kind"].as_str() {
        Some("Namespace" | "ServiceAccount") => PLAIN,
        Some("Secret") => SECRET,
        Some("ConfigMap") => CONFIG_MAP,
        Some("DeleteOptions") => DELETE_OPTIONS,
        Some("Eviction") => EVICTION,
        _ => {
            return Err(ApiError::UnsupportedMediaType(
                "application/json, application/yaml".to_owned(),
            ));
        }
    };
    let raw = STANDARD
        .decode(envelope["raw"].as_str().unwrap_or_default())
        .map_err(|_| malformed())?;
    let mut object = message(&raw, fields).ok_or_else(malformed)?;
    for field in ["apiVersion", "kind"] {
        object[field] = envelope["type"][field].clone();
    }
    Ok(object)
}

fn message(mut bytes: &[u8], fields: Fields) -> Option<Value> {
    let mut object = Map::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let raw = Raw::take(tag & 7, &mut bytes)?;
        if let Some((_, name, form)) = fields.iter().find(|(number, ..)| *number == tag >> 3) {
            add(&mut object, name, *form, &raw)?;
        }
    }
    Some(object.into())
}

/// Content of a field, by wire type.
enum Raw<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Raw<'a> {
    fn take(wire_type: u64, bytes: &mut &'a [u8]) -> Option<Self> {
        match wire_type {
            0 => varint(bytes).map(Self::Number),
            1 => bytes.split_off(..8).map(Self::Bytes),
            2 => {
                let length = usize::try_from(varint(bytes)?).ok()?;
                bytes.split_off(..length).map(Self::Bytes)
            }
            5 => bytes.split_off(..4).map(Self::Bytes),
            _ => None,
        }
    }

    fn text(&self) -> Option<&'a str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Number(_) => None,
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn add(object: &mut Map<String, Value>, name: &str, form: Form, raw: &Raw<'_>) -> Option<()> {
    let value = match (form, raw) {
        (Form::Text, raw) => json!(raw.text()?),
        (Form::Bytes, Raw::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Form::Integer, Raw::Number(number)) => json!(number),
        (Form::Flag, Raw::Number(number)) => json!(*number != 0),
        (Form::Message(fields), Raw::Bytes(bytes)) => message(bytes, fields)?,
        (Form::Texts, raw) => return push(object, name, raw.text()?),
        (Form::Map(fields), Raw::Bytes(bytes)) => {
            return insert(object, name, &message(bytes, fields)?);
        }
        _ => return None,
    };
    // Protobuf encodes "not set" as an empty string.
    if value != "" {
        object.insert(name.to_owned(), value);
    }
    Some(())
}

fn push(object: &mut Map<String, Value>, name: &str, text: &str) -> Option<()> {
    object
        .entry(name)
        .or_insert_with(|| json!([]))
        .as_array_mut()?
        .push(json!(text));
    Some(())
}

fn insert(object: &mut Map<String, Value>, name: &str, entry: &Value) -> Option<()> {
    let map = object
        .entry(name)
        .or_insert_with(|| json!({}))
        .as_object_mut()?;
    map.insert(
        entry["key"].as_str()?.to_owned(),
        entry.get("value").cloned().unwrap_or_else(|| json!("")),
    );
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [
            &[number << 3 | 2, u8::try_from(bytes.len()).unwrap()],
            bytes,
        ]
        .concat()
    }

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn decode_reads_secret() {
        let meta = [field(1, b"s"), field(2, b""), field(7, b"skipped")].concat();
        let raw = [
            field(1, &meta),
            field(2, &[field(1, b"k"), field(2, &[0xff])].concat()),
            field(3, b"Opaque"),
        ]
        .concat();
        let expected = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "data": {"k": "/w=="}, "type": "Opaque"});
        assert_eq!(decode(&envelope("Secret", &raw)).unwrap(), expected);
    }

    #[test]
    fn malformed_input_is_rejected() {
        let whole = envelope("Secret", &field(1, &field(1, b"s")));
        for end in 0..whole.len() {
            let _ = decode(&whole[..end]);
        }
        assert!(decode(b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
        assert!(decode(&envelope("Secret", &[0x0a, 0xff, 0xff, 0x03])).is_err());
        assert!(decode(&envelope("Pod", b"")).is_err());
    }
}
