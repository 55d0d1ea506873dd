//! Names of keys: control keys such as `C-c` in commands and input, keys such as `Up` in input.

/// Returns the control character that `C-x` names, and the letter to report.
pub(super) fn control(command: &str) -> Option<(u8, char)> {
    let rest = command.strip_prefix("C-")?;
    let mut characters = rest.chars();
    let character = characters.next().filter(char::is_ascii)?;
    if characters.next().is_some() {
        return None;
    }
    let upper = character.to_ascii_uppercase();
    u8::try_from(upper).ok().map(|byte| (byte & 0x1f, upper))
}

/// Bytes that a terminal sends for a key. Full-screen programs select the application sequences.
pub(super) fn named(input: &str, application_cursor: bool) -> Option<&'static str> {
    Some(match input {
        "Up" if application_cursor => "\x1bOA",
        "Down" if application_cursor => "\x1bOB",
        "Right" if application_cursor => "\x1bOC",
        "Left" if application_cursor => "\x1bOD",
        "Home" if application_cursor => "\x1bOH",
        "End" if application_cursor => "\x1bOF",
        "Up" => "\x1b[A",
        "Down" => "\x1b[B",
        "Right" => "\x1b[C",
        "Left" => "\x1b[D",
        "Home" => "\x1b[H",
        "End" => "\x1b[F",
        "PageUp" => "\x1b[5~",
        "PageDown" => "\x1b[6~",
        "Enter" => "",
        "Escape" => "\x1b",
        "Tab" => "\t",
        "BSpace" => "\x7f",
        "F1" => "\x1bOP",
        "F2" => "\x1bOQ",
        "F3" => "\x1bOR",
        "F4" => "\x1bOS",
        "F5" => "\x1b[15~",
        "F6" => "\x1b[17~",
        "F7" => "\x1b[18~",
        "F8" => "\x1b[19~",
        "F9" => "\x1b[20~",
        "F10" => "\x1b[21~",
        "F11" => "\x1b[23~",
        "F12" => "\x1b[24~",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_key_is_c_dash_and_one_ascii_character() {
        assert_eq!(control("C-c"), Some((3, 'C')));
        assert_eq!(control("C-\\"), Some((0x1c, '\\')));
        assert_eq!(control("C-cc"), None);
        assert_eq!(control("C-"), None);
        assert_eq!(control("C-ü"), None);
    }
}
