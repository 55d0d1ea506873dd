//! Typed operations, made from calls. Types are checked as the Python stack does it: some errors
//! come before anything happens, others only after the element has been found.

use super::call::Call;
use super::value::Value;
use crate::error::StepError;
use crate::keys::Modifier;

/// A value whose error counts only once the element of the operation has been found.
pub type Deferred<T> = Result<T, StepError>;

#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    Noop {
        wait_ms: f64,
    },
    Goto {
        url: String,
    },
    GoBack,
    GoForward,
    NewTab,
    TabClose,
    /// A negative index counts from the end.
    TabFocus {
        index: i64,
    },
    Scroll {
        delta_x: f64,
        delta_y: f64,
    },
    Fill {
        bid: String,
        value: Deferred<String>,
        /// Types the last character, so that pages offer completions.
        enable_autocomplete_menu: bool,
    },
    Clear {
        bid: String,
    },
    /// Each option is a value or a label; none at all removes the selection.
    SelectOption {
        bid: String,
        options: Deferred<Vec<String>>,
    },
    Click {
        bid: String,
        click: Deferred<Click>,
    },
    DoubleClick {
        bid: String,
        click: Deferred<Click>,
    },
    Hover {
        bid: String,
    },
    Focus {
        bid: String,
    },
    /// `keys::parse_combination` reads the combination, after the element has been found.
    Press {
        bid: String,
        combination: Deferred<String>,
    },
    /// The second id counts once the first element has been hovered.
    DragAndDrop {
        from_bid: String,
        to_bid: Deferred<String>,
    },
    /// The files count once the chooser has opened; none at all clears the field.
    UploadFile {
        bid: String,
        files: Deferred<Vec<String>>,
    },
    SendMessage {
        text: String,
    },
    ReportInfeasible {
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Click {
    pub button: MouseButton,
    pub modifiers: Vec<Modifier>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MouseButton {
    #[default]
    Left,
    Middle,
    Right,
}

impl Call {
    /// Checks the arguments, when the call is reached.
    pub fn bind(self) -> Result<Operation, StepError> {
        let name = self.name.clone();
        let mut arguments = self.into_arguments()?.into_iter();
        let mut next = || arguments.next().flatten();
        let operation = match name.as_str() {
            "noop" => Operation::Noop {
                wait_ms: next().map_or(Ok(1000.0), |value| {
                    number(&value, "Page.wait_for_timeout: wait_timeout")
                })?,
            },
            "goto" => Operation::Goto {
                url: string(next(), "Page.goto", "Frame.goto", "url")?,
            },
            "go_back" => Operation::GoBack,
            "go_forward" => Operation::GoForward,
            "new_tab" => Operation::NewTab,
            "tab_close" => Operation::TabClose,
            "tab_focus" => Operation::TabFocus {
                index: index(&required(next()))?,
            },
            "scroll" => Operation::Scroll {
                delta_x: number(&required(next()), "Mouse.wheel: delta_x")?,
                delta_y: number(&required(next()), "Mouse.wheel: delta_y")?,
            },
            "fill" => Operation::Fill {
                bid: bid(next())?,
                value: string(next(), "Locator.fill", "Frame.fill", "value"),
                enable_autocomplete_menu: next() == Some(Value::Bool(true)),
            },
            "clear" => Operation::Clear { bid: bid(next())? },
            "select_option" => Operation::SelectOption {
                bid: bid(next())?,
                options: options(required(next())),
            },
            "click" => Operation::Click {
                bid: bid(next())?,
                click: click(next().as_ref(), next()),
            },
            "dblclick" => Operation::DoubleClick {
                bid: bid(next())?,
                click: click(next().as_ref(), next()),
            },
            "hover" => Operation::Hover { bid: bid(next())? },
            "focus" => Operation::Focus { bid: bid(next())? },
            "press" => Operation::Press {
                bid: bid(next())?,
                combination: string(next(), "Locator.press", "Frame.press", "key"),
            },
            "drag_and_drop" => Operation::DragAndDrop {
                from_bid: bid(next())?,
                to_bid: bid(next()),
            },
            "upload_file" => Operation::UploadFile {
                bid: bid(next())?,
                files: files(required(next())),
            },
            "send_msg_to_user" => Operation::SendMessage {
                text: message(next())?,
            },
            _ => Operation::ReportInfeasible {
                reason: message(next())?,
            },
        };
        Ok(operation)
    }
}

/// The binding has made sure that required arguments exist.
fn required(value: Option<Value>) -> Value {
    value.unwrap_or(Value::None)
}

fn bid(value: Option<Value>) -> Result<String, StepError> {
    match required(value) {
        Value::Str(bid) => Ok(bid),
        other => Err(StepError::new(
            "ValueError",
            format!("expected a string, got {other:?}"),
        )),
    }
}

fn message(value: Option<Value>) -> Result<String, StepError> {
    match required(value) {
        Value::Str(text) => Ok(text),
        other => Err(StepError::new(
            "ValueError",
            format!("Forbidden value: {other:?} is not a string"),
        )),
    }
}

/// Reads a text that the driver takes: it loses `None` on the way to a second function.
fn string(
    value: Option<Value>,
    method: &str,
    inner: &str,
    parameter: &str,
) -> Result<String, StepError> {
    match required(value) {
        Value::Str(text) => Ok(text),
        Value::None => Err(StepError::new(
            "TypeError",
            format!("{inner}() missing 1 required positional argument: '{parameter}'"),
        )),
        other => Err(unexpected(
            &format!("{method}: {parameter}"),
            "string",
            other.script_type(),
        )),
    }
}

fn number(value: &Value, path: &str) -> Result<f64, StepError> {
    match value {
        // Browsers count in floats anyway.
        #[allow(clippy::cast_precision_loss)]
        Value::Int(number) => Ok(*number as f64),
        Value::Float(number) => Ok(*number),
        Value::None => Err(unexpected(path, "float", "undefined")),
        other => Err(unexpected(path, "float", other.script_type())),
    }
}

fn index(value: &Value) -> Result<i64, StepError> {
    match value {
        Value::Int(index) => Ok(*index),
        Value::Bool(index) => Ok(i64::from(*index)),
        other => Err(StepError::new(
            "TypeError",
            format!(
                "list indices must be integers or slices, not {}",
                other.python_type()
            ),
        )),
    }
}

fn options(value: Value) -> Result<Vec<String>, StepError> {
    let items = match value {
        Value::Str(option) => return Ok(vec![option]),
        Value::Dict(entries) => return Ok(entries.into_iter().map(|(key, _)| key).collect()),
        Value::None => return Ok(Vec::new()),
        Value::List(items) | Value::Tuple(items) => items,
        other => {
            let message = format!("'{}' object is not iterable", other.python_type());
            return Err(StepError::new("TypeError", message));
        }
    };
    let items = items.into_iter().enumerate();
    items
        .map(|(index, item)| match item {
            Value::Str(option) => Ok(option),
            other => Err(unexpected(
                &format!("Locator.select_option: options[{index}].valueOrLabel"),
                "string",
                other.script_type(),
            )),
        })
        .collect()
}

fn files(value: Value) -> Result<Vec<String>, StepError> {
    let items = match value {
        Value::List(items) | Value::Tuple(items) => items,
        single => vec![single],
    };
    let mut paths = Vec::new();
    let mut other = None;
    for item in items {
        match item {
            Value::Str(path) => paths.push(path),
            item => other = other.or(Some(item)),
        }
    }
    match other {
        None => Ok(paths),
        Some(_) if !paths.is_empty() => Err(StepError::new(
            "Error",
            "File paths cannot be mixed with buffers",
        )),
        // No literal can describe a buffer, so that no keys help.
        Some(Value::Dict(_)) => Err(StepError::new("KeyError", "'name'")),
        Some(item) => Err(StepError::new(
            "AttributeError",
            format!("'{}' object has no attribute 'get'", item.python_type()),
        )),
    }
}

/// Looks at the modifiers first, as the driver does.
fn click(button: Option<&Value>, modifiers: Option<Value>) -> Result<Click, StepError> {
    let modifiers = match modifiers {
        None | Some(Value::None) => Vec::new(),
        Some(Value::List(items) | Value::Tuple(items)) => items
            .iter()
            .enumerate()
            .map(|(index, item)| modifier(index, item))
            .collect::<Result<_, _>>()?,
        Some(other) => {
            let path = "Locator.click: modifiers";
            return Err(unexpected(path, "array", other.script_type()));
        }
    };
    let button = match button {
        None | Some(Value::None) => MouseButton::Left,
        Some(Value::Str(name)) if name == "left" => MouseButton::Left,
        Some(Value::Str(name)) if name == "middle" => MouseButton::Middle,
        Some(Value::Str(name)) if name == "right" => MouseButton::Right,
        Some(_) => {
            let message = "Locator.click: button: expected one of (left|right|middle)";
            return Err(StepError::new("Error", message));
        }
    };
    Ok(Click { button, modifiers })
}

fn modifier(index: usize, value: &Value) -> Result<Modifier, StepError> {
    let modifier = match value {
        Value::Str(name) => Modifier::from_name(name),
        _ => None,
    };
    modifier.ok_or_else(|| {
        StepError::new(
            "Error",
            format!(
                "Locator.click: modifiers[{index}]: \
                 expected one of (Alt|Control|ControlOrMeta|Meta|Shift)"
            ),
        )
    })
}

fn unexpected(path: &str, expected: &str, got: &str) -> StepError {
    StepError::new("Error", format!("{path}: expected {expected}, got {got}"))
}
