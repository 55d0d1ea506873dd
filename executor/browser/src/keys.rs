//! Keys of the US layout and their combinations (`docs/specs/browser.md`, section 2.3, `press`),
//! in the terms of `Input.dispatchKeyEvent`.

/// A key to hold, with what the keys before it in the combination make of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub key: &'static str,
    pub code: &'static str,
    pub windows_virtual_key_code: u8,
    /// The text to insert. Without one, the event to send is `rawKeyDown`.
    pub text: Option<&'static str>,
    /// 1 left, 2 right, 3 number pad.
    pub location: u8,
    pub modifier: Option<Modifier>,
    /// Bits of the modifiers held when the key goes down, this one included.
    pub modifiers: u8,
}

impl Key {
    pub fn is_keypad(&self) -> bool {
        self.location == KEYPAD
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modifier {
    Alt,
    Control,
    Meta,
    Shift,
}

impl Modifier {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "Alt" => Some(Self::Alt),
            "Control" | "ControlOrMeta" => Some(Self::Control),
            "Meta" => Some(Self::Meta),
            "Shift" => Some(Self::Shift),
            _ => None,
        }
    }

    /// The bit of this modifier in input events.
    pub fn bit(self) -> u8 {
        match self {
            Self::Alt => 1,
            Self::Control => 2,
            Self::Meta => 4,
            Self::Shift => 8,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unknown key: \"{0}\"")]
pub struct UnknownKey(pub String);

/// Reads a combination such as `Control+Shift+a`: the keys in the order in which they go down,
/// which is the reverse of the order in which they go up.
pub fn parse_combination(text: &str) -> Result<Vec<Key>, UnknownKey> {
    let mut modifiers = 0;
    let mut keys = Vec::new();
    for name in split(text) {
        let key = find_key(name, modifiers).ok_or_else(|| UnknownKey(name.to_owned()))?;
        modifiers = key.modifiers;
        keys.push(key);
    }
    Ok(keys)
}

/// Splits at each `+` that follows a name; any other is a key.
fn split(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut start = 0;
    for (position, _) in text.match_indices('+') {
        if position > start {
            names.push(&text[start..position]);
            start = position + 1;
        }
    }
    names.push(&text[start..]);
    names
}

fn find_key(name: &str, held: u8) -> Option<Key> {
    let name = match name {
        "Shift" => "ShiftLeft",
        "Control" | "ControlOrMeta" => "ControlLeft",
        "Alt" => "AltLeft",
        "Meta" => "MetaLeft",
        "\n" | "\r" => "Enter",
        name => name,
    };
    // A character names itself, whether Shift is held or not; a code names a place.
    let (layout, is_shifted) = LAYOUT.iter().find_map(|layout| {
        let is_main = location(layout.code) != KEYPAD;
        if layout.code == name {
            Some((layout, held & Modifier::Shift.bit() != 0))
        } else if is_main && layout.key == name && name.len() == 1 {
            Some((layout, false))
        } else if is_main && layout.shifted == Some(name) {
            Some((layout, true))
        } else {
            None
        }
    })?;
    let key = layout.shifted.filter(|_| is_shifted).unwrap_or(layout.key);
    let text = match key {
        "Enter" => Some("\r"),
        key if key.len() == 1 => Some(key),
        _ => None,
    };
    let modifier = Modifier::from_name(key);
    Some(Key {
        key,
        code: layout.code,
        windows_virtual_key_code: layout.windows_virtual_key_code,
        text: text.filter(|_| held & !Modifier::Shift.bit() == 0),
        location: location(layout.code),
        modifier,
        modifiers: held | modifier.map_or(0, Modifier::bit),
    })
}

const KEYPAD: u8 = 3;

fn location(code: &str) -> u8 {
    match code {
        "ShiftLeft" | "ControlLeft" | "AltLeft" | "MetaLeft" => 1,
        "ShiftRight" | "ControlRight" | "AltRight" | "MetaRight" => 2,
        code if code.starts_with("Numpad") => KEYPAD,
        _ => 0,
    }
}

struct Layout {
    code: &'static str,
    windows_virtual_key_code: u8,
    key: &'static str,
    shifted: Option<&'static str>,
}

/// A key that gives the same value with and without Shift.
const fn plain(code: &'static str, windows_virtual_key_code: u8, key: &'static str) -> Layout {
    Layout {
        code,
        windows_virtual_key_code,
        key,
        shifted: None,
    }
}

const fn shifted(
    code: &'static str,
    windows_virtual_key_code: u8,
    key: &'static str,
    shifted: &'static str,
) -> Layout {
    Layout {
        code,
        windows_virtual_key_code,
        key,
        shifted: Some(shifted),
    }
}

// The number pad is in the state without NumLock, in which Shift gives the digits.
#[rustfmt::skip]
const LAYOUT: &[Layout] = &[
    shifted("KeyA", 65, "a", "A"), shifted("KeyB", 66, "b", "B"), shifted("KeyC", 67, "c", "C"),
    shifted("KeyD", 68, "d", "D"), shifted("KeyE", 69, "e", "E"), shifted("KeyF", 70, "f", "F"),
    shifted("KeyG", 71, "g", "G"), shifted("KeyH", 72, "h", "H"), shifted("KeyI", 73, "i", "I"),
    shifted("KeyJ", 74, "j", "J"), shifted("KeyK", 75, "k", "K"), shifted("KeyL", 76, "l", "L"),
    shifted("KeyM", 77, "m", "M"), shifted("KeyN", 78, "n", "N"), shifted("KeyO", 79, "o", "O"),
    shifted("KeyP", 80, "p", "P"), shifted("KeyQ", 81, "q", "Q"), shifted("KeyR", 82, "r", "R"),
    shifted("KeyS", 83, "s", "S"), shifted("KeyT", 84, "t", "T"), shifted("KeyU", 85, "u", "U"),
    shifted("KeyV", 86, "v", "V"), shifted("KeyW", 87, "w", "W"), shifted("KeyX", 88, "x", "X"),
    shifted("KeyY", 89, "y", "Y"), shifted("KeyZ", 90, "z", "Z"), shifted("Digit0", 48, "0", ")"),
    shifted("Digit1", 49, "1", "!"), shifted("Digit2", 50, "2", "@"),
    shifted("Digit3", 51, "3", "#"), shifted("Digit4", 52, "4", "$"),
    shifted("Digit5", 53, "5", "%"), shifted("Digit6", 54, "6", "^"),
    shifted("Digit7", 55, "7", "&"), shifted("Digit8", 56, "8", "*"),
    shifted("Digit9", 57, "9", "("), shifted("Backquote", 192, "`", "~"),
    shifted("Minus", 189, "-", "_"), shifted("Equal", 187, "=", "+"),
    shifted("BracketLeft", 219, "[", "{"), shifted("BracketRight", 221, "]", "}"),
    shifted("Backslash", 220, "\\", "|"), shifted("Semicolon", 186, ";", ":"),
    shifted("Quote", 222, "'", "\""), shifted("Comma", 188, ",", "<"),
    shifted("Period", 190, ".", ">"), shifted("Slash", 191, "/", "?"), plain("Space", 32, " "),
    plain("F1", 112, "F1"), plain("F2", 113, "F2"), plain("F3", 114, "F3"), plain("F4", 115, "F4"),
    plain("F5", 116, "F5"), plain("F6", 117, "F6"), plain("F7", 118, "F7"), plain("F8", 119, "F8"),
    plain("F9", 120, "F9"), plain("F10", 121, "F10"), plain("F11", 122, "F11"),
    plain("F12", 123, "F12"), plain("Escape", 27, "Escape"), plain("Backspace", 8, "Backspace"),
    plain("Tab", 9, "Tab"), plain("CapsLock", 20, "CapsLock"), plain("Enter", 13, "Enter"),
    plain("PrintScreen", 44, "PrintScreen"), plain("ScrollLock", 145, "ScrollLock"),
    plain("Pause", 19, "Pause"), plain("PageUp", 33, "PageUp"), plain("PageDown", 34, "PageDown"),
    plain("End", 35, "End"), plain("Home", 36, "Home"), plain("ArrowLeft", 37, "ArrowLeft"),
    plain("ArrowUp", 38, "ArrowUp"), plain("ArrowRight", 39, "ArrowRight"),
    plain("ArrowDown", 40, "ArrowDown"), plain("Insert", 45, "Insert"),
    plain("Delete", 46, "Delete"), plain("ContextMenu", 93, "ContextMenu"),
    plain("NumLock", 144, "NumLock"), plain("AltGraph", 225, "AltGraph"),
    plain("ShiftLeft", 16, "Shift"), plain("ShiftRight", 16, "Shift"),
    plain("ControlLeft", 17, "Control"), plain("ControlRight", 17, "Control"),
    plain("AltLeft", 18, "Alt"), plain("AltRight", 18, "Alt"), plain("MetaLeft", 91, "Meta"),
    plain("MetaRight", 92, "Meta"), shifted("Numpad0", 45, "Insert", "0"),
    shifted("Numpad1", 35, "End", "1"), shifted("Numpad2", 40, "ArrowDown", "2"),
    shifted("Numpad3", 34, "PageDown", "3"), shifted("Numpad4", 37, "ArrowLeft", "4"),
    shifted("Numpad5", 12, "Clear", "5"), shifted("Numpad6", 39, "ArrowRight", "6"),
    shifted("Numpad7", 36, "Home", "7"), shifted("Numpad8", 38, "ArrowUp", "8"),
    shifted("Numpad9", 33, "PageUp", "9"), shifted("NumpadDecimal", 46, "Delete", "."),
    plain("NumpadDivide", 111, "/"), plain("NumpadMultiply", 106, "*"),
    plain("NumpadSubtract", 109, "-"), plain("NumpadAdd", 107, "+"),
    plain("NumpadEnter", 13, "Enter"),
];

#[cfg(test)]
mod tests;
