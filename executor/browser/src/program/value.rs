//! Arguments of calls: Python literals, with the type names that error texts show.

use std::fmt::{self, Debug, Formatter};

use crate::python_repr::{float, quoted};

#[derive(Clone, PartialEq)]
pub enum Value {
    Str(String),
    Int(i64),
    /// Also holds an integer that exceeds 64 bits.
    Float(f64),
    Bool(bool),
    None,
    List(Vec<Value>),
    Tuple(Vec<Value>),
    /// Keys are unique, in the order of their first appearance.
    Dict(Vec<(String, Value)>),
}

impl Value {
    /// The name that Python's own errors use.
    pub(super) fn python_type(&self) -> &'static str {
        match self {
            Self::Str(_) => "str",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Bool(_) => "bool",
            Self::None => "NoneType",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
        }
    }

    /// The name that errors of the browser driver use for a member of an array.
    pub(super) fn script_type(&self) -> &'static str {
        match self {
            Self::Str(_) => "string",
            Self::Int(_) | Self::Float(_) => "number",
            Self::Bool(_) => "boolean",
            Self::None | Self::List(_) | Self::Tuple(_) | Self::Dict(_) => "object",
        }
    }

    pub(super) fn contains_infinity(&self) -> bool {
        match self {
            Self::Float(number) => number.is_infinite(),
            Self::List(items) | Self::Tuple(items) => items.iter().any(Self::contains_infinity),
            Self::Dict(entries) => entries.iter().any(|(_, value)| value.contains_infinity()),
            Self::Str(_) | Self::Int(_) | Self::Bool(_) | Self::None => false,
        }
    }
}

/// Python's `repr`.
impl Debug for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(text) => f.write_str(&quoted(text)),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => f.write_str(&float(*number)),
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::None => f.write_str("None"),
            Self::List(items) => write_items(f, "[", items, "]"),
            Self::Tuple(items) if items.len() == 1 => write_items(f, "(", items, ",)"),
            Self::Tuple(items) => write_items(f, "(", items, ")"),
            Self::Dict(entries) => {
                f.write_str("{")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{}: {value:?}", quoted(key))?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_items(f: &mut Formatter<'_>, open: &str, items: &[Value], close: &str) -> fmt::Result {
    f.write_str(open)?;
    for (index, item) in items.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(f, "{separator}{item:?}")?;
    }
    f.write_str(close)
}
