use super::*;

fn pressed(text: &str) -> Vec<Key> {
    parse_combination(text).unwrap()
}

/// Key, code, virtual key code, text and location of the last key of a combination.
fn last(text: &str) -> (&'static str, &'static str, u8, Option<&'static str>, u8) {
    let key = pressed(text).pop().unwrap();
    (
        key.key,
        key.code,
        key.windows_virtual_key_code,
        key.text,
        key.location,
    )
}

#[test]
fn names_give_the_keys_of_the_us_layout() {
    for (name, expected) in [
        ("a", ("a", "KeyA", 65, Some("a"), 0)),
        ("A", ("A", "KeyA", 65, Some("A"), 0)),
        ("KeyA", ("a", "KeyA", 65, Some("a"), 0)),
        ("Digit1", ("1", "Digit1", 49, Some("1"), 0)),
        ("7", ("7", "Digit7", 55, Some("7"), 0)),
        ("!", ("!", "Digit1", 49, Some("!"), 0)),
        ("#", ("#", "Digit3", 51, Some("#"), 0)),
        ("Backquote", ("`", "Backquote", 192, Some("`"), 0)),
        ("\\", ("\\", "Backslash", 220, Some("\\"), 0)),
        ("\"", ("\"", "Quote", 222, Some("\""), 0)),
        ("+", ("+", "Equal", 187, Some("+"), 0)),
        ("/", ("/", "Slash", 191, Some("/"), 0)),
        (" ", (" ", "Space", 32, Some(" "), 0)),
        ("Space", (" ", "Space", 32, Some(" "), 0)),
        ("Enter", ("Enter", "Enter", 13, Some("\r"), 0)),
        ("\n", ("Enter", "Enter", 13, Some("\r"), 0)),
        ("Tab", ("Tab", "Tab", 9, None, 0)),
        ("ArrowDown", ("ArrowDown", "ArrowDown", 40, None, 0)),
        ("F12", ("F12", "F12", 123, None, 0)),
        ("Home", ("Home", "Home", 36, None, 0)),
        ("Numpad7", ("Home", "Numpad7", 36, None, 3)),
        ("NumpadAdd", ("+", "NumpadAdd", 107, Some("+"), 3)),
        ("NumpadEnter", ("Enter", "NumpadEnter", 13, Some("\r"), 3)),
        ("Shift", ("Shift", "ShiftLeft", 16, None, 1)),
        ("ShiftRight", ("Shift", "ShiftRight", 16, None, 2)),
        ("ControlOrMeta", ("Control", "ControlLeft", 17, None, 1)),
        ("MetaRight", ("Meta", "MetaRight", 92, None, 2)),
    ] {
        assert_eq!(last(name), expected, "{name:?}");
    }
}

#[test]
fn codes_are_shifted_and_characters_are_not() {
    for (combination, key, text) in [
        ("Shift+KeyA", "A", Some("A")),
        ("Shift+Digit1", "!", Some("!")),
        ("Shift+Numpad7", "7", Some("7")),
        ("Shift+a", "a", Some("a")),
        ("Shift+A", "A", Some("A")),
        ("Shift++", "+", Some("+")),
        ("Shift+Enter", "Enter", Some("\r")),
    ] {
        let (found, _, _, inserted, _) = last(combination);
        assert_eq!((found, inserted), (key, text), "{combination}");
    }
}

#[test]
fn modifiers_other_than_shift_suppress_the_text() {
    for combination in ["Control+a", "Alt+a", "Meta+Shift+t", "Control+Enter"] {
        assert_eq!(last(combination).3, None, "{combination}");
    }
}

#[test]
fn keys_have_the_modifiers_before_them() {
    let keys = pressed("Control+Shift+KeyT");
    let held = keys.iter().map(|key| key.modifiers).collect::<Vec<_>>();
    assert_eq!(held, [2, 10, 10]);
    assert_eq!(last("Control+Shift+KeyT").0, "T");
}

#[test]
fn unknown_names_are_reported_as_written() {
    for (combination, name) in [
        ("Foo", "Foo"),
        ("", ""),
        ("Shift+", ""),
        ("a+Foo", "Foo"),
        ("Foo+Bar", "Foo"),
        ("ctrl+a", "ctrl"),
        ("enter", "enter"),
        ("é", "é"),
        ("\t", "\t"),
        ("Clear", "Clear"),
        ("Control+ab", "ab"),
    ] {
        let error = parse_combination(combination).unwrap_err();
        assert_eq!(error.to_string(), format!("Unknown key: \"{name}\""));
    }
}

#[test]
fn codes_are_unique() {
    let mut codes = LAYOUT.iter().map(|key| key.code).collect::<Vec<_>>();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), LAYOUT.len());
}
