//! Keys and input (section 4.6), and full-screen programs.

use super::case::Cases;

#[test]
fn keys() {
    let mut cases = Cases::default();
    cases.case("4.6 C-c at an idle prompt");
    cases.run("C-c").exit(130).by_key('C').gives("^C");
    cases.run("echo a").gives("a");
    cases.case("4.6 C-l at an idle prompt does no harm");
    cases.run("C-l").by_key('L');
    cases.run("echo a").gives("a");
    cases.case("4.6 C-\\");
    cases.start("cat", "");
    cases.input("C-\\").exit(131).by_key('\\').contains("^\\");
    cases.case("4.6 C-d ends an input");
    cases.start("cat", "");
    cases.input("C-d").by_key('D').gives("");
    cases.case("4.6 C-z suspends");
    cases.start("cat", "");
    cases
        .input("C-z")
        .exit(148)
        .by_key('Z')
        .gives("^Z\n[1]+  Stopped                 cat");
    cases.start("fg", "cat");
    cases.input("C-d").by_key('D');
    cases.case("4.6 C-c, lower and upper case");
    cases.start("cat", "");
    cases.input("C-C").exit(130).by_key('C');
    cases.case("4.6 a longer word is no key");
    cases
        .run("C-cc")
        .exit(127)
        .contains("C-cc: command not found");
    cases.case("4.6 a key name is a word unless input");
    cases.run("Up").exit(127).contains("Up: command not found");
    cases.case("4.6 a key name in small letters is a word");
    cases.start("read x; echo \"<$x>\"", "");
    cases.input("end").gives("<end>");
    cases.case("4.6 Tab");
    cases.start("IFS= read x; echo \"$x\" | od -An -c | tr -s ' '", "");
    cases.input("Tab").contains("\\t \\n");
    cases.case("4.6 Up");
    cases.start("IFS= read x; printf %q \"$x\"", "");
    cases.input("Up").contains("$'\\E[A'");
    cases.case("4.6 Enter");
    cases.start("read x; echo \"<$x>\"", "");
    cases.input("Enter").gives("<>");
    cases.case("4.6 Escape");
    cases.start("IFS= read x; printf %q \"$x\"", "");
    cases.input("Escape").contains("$'\\E'");
    cases.case("4.6 BSpace");
    cases.start("IFS= read x; echo \"<$x>\"", "");
    cases.input("BSpace").gives("<>");
    cases.case("4.6 the echo of input is not told");
    cases.start("read n; echo \"Hello $n\"", "");
    cases.input("John").gives("Hello John");
    cases.case("4.6 a password has no echo");
    cases.start("read -sp 'Password: ' p; echo; echo \"${#p}\"", "Password:");
    cases.input("secret").gives("6").lacks("secret");
    cases.case("4.6 input on several lines");
    cases.start("cat > f; cat f", "");
    cases.input("a\nb").times_out(0.2).any_prefix();
    cases.input("C-d").by_key('D').contains("a\nb");
    cases.check_all();
}

/// Key name, and the bytes that the program reads, quoted by bash.
const NAMED: &[(&str, &str)] = &[
    ("Down", "\\E[B"),
    ("Right", "\\E[C"),
    ("Left", "\\E[D"),
    ("Home", "\\E[H"),
    ("End", "\\E[F"),
    ("PageUp", "\\E[5~"),
    ("PageDown", "\\E[6~"),
    ("F1", "\\EOP"),
    ("F4", "\\EOS"),
    ("F5", "\\E[15~"),
    ("F12", "\\E[24~"),
];

#[test]
fn named_keys() {
    let mut cases = Cases::default();
    for (key, bytes) in NAMED {
        cases.case("4.6 a key by its name");
        cases.start("IFS= read -r x; printf '%q\\n' \"$x\"", "");
        cases.input(key).contains(&format!("$'{bytes}'"));
    }
    cases.check_in_one();
}

#[test]
fn full_screen_programs() {
    let mut cases = Cases::default();
    cases.case("4.10 python3 REPL");
    cases.start("python3", ">>>");
    cases.input("1+1").times_out(0.5).any_prefix();
    cases.input("exit()");
    cases.case("4.10 C-d ends python's input");
    cases.start("python3 -c \"input(1)\"", "1");
    cases.input("C-d").exit(1).by_key('D').contains("EOFError");
    cases.case("4.14 an interrupted server");
    cases.start(
        "python3 -u -m http.server --bind 127.0.0.1 0",
        "Serving HTTP on",
    );
    cases
        .input("C-c")
        .by_key('C')
        .contains("Keyboard interrupt received, exiting.");
    cases.run("echo next").gives("next");
    let menu = "import curses; s = curses.initscr(); s.keypad(True); s.addstr('menu'); \
                    s.refresh(); keys = [s.getch() for _ in range(3)]; curses.endwin(); print(keys)";
    cases.case("4.6 cursor keys in a menu of curses");
    cases.start(&format!("python3 -c \"{menu}\""), "menu");
    cases.input("Up").times_out(0.5).any_prefix();
    cases.input("Home").contains("[259, 10, 262]");
    cases.case("4.10 less");
    cases.run("seq 3000 > f");
    cases.start("less f", "999");
    cases.start("G", "3000").with("is_input", true.into());
    cases.input("q").gives("");
    cases.run("echo after").gives("after");
    cases.case("4.10 vi");
    cases.run("printf 'one\\ntwo\\n' > f");
    cases.start("vi -u NONE f", "two");
    cases.start("ihello", "hello").with("is_input", true.into());
    cases.input("Escape").times_out(0.2).any_prefix();
    cases.input(":wq").gives("");
    cases.run("cat f").gives("hello\none\ntwo");
    cases.check_all();
}
