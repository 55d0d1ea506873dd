//! Commands that just run: 4.4 (rendering), 4.7, 4.8, 4.9, 4.10, 4.13, 4.14.

use super::script::{Case, case, check_in_one, run};
use super::world::worlds;

/// Name, command, status, content.
const OUTPUTS: &[(&str, &str, i64, &str)] = &[
    ("3.4 echo", "echo hi", 0, "hi"),
    ("4.4 blanks around the command", " \n echo hi \n", 0, "hi"),
    (
        "4.4 leading blanks of the first line are lost",
        "printf '  a\\n  b\\n'",
        0,
        "a\n  b",
    ),
    (
        "4.4 trailing blanks of every line are lost",
        "printf 'a  \\nb\\t\\n\\n\\n'",
        0,
        "a\nb",
    ),
    (
        "4.4 tabs are expanded",
        "printf 'a\\tb\\tc'",
        0,
        "a       b       c",
    ),
    (
        "4.4 colours are interpreted",
        "printf '\\033[1;31mred\\033[0m'",
        0,
        "red",
    ),
    (
        "4.4 a carriage return overwrites",
        "printf '10%%\\r20%%\\r30%%\\n'",
        0,
        "30%",
    ),
    (
        "4.4 invalid UTF-8 vanishes",
        "printf 'a\\xff\\xfeb\\xc3'",
        0,
        "ab",
    ),
    ("4.4 a zero byte vanishes", "printf 'a\\0b'", 0, "ab"),
    ("4.4 a bell vanishes", "printf 'a\\ab'", 0, "ab"),
    ("4.4 a title vanishes", "printf '\\033]0;title\\ab'", 0, "b"),
    (
        "4.4 a link keeps its text",
        "printf '\\033]8;;http://x\\033\\\\text\\033]8;;\\033\\\\'",
        0,
        "text",
    ),
    ("4.4 backspace", "printf 'ab\\bc'", 0, "ac"),
    (
        "4.4 cursor up and erase",
        "printf 'one\\ntwo\\n\\033[1A\\033[2Kdone\\n'",
        0,
        "one\ndone",
    ),
    (
        "4.4 cursor to a place",
        "printf '\\033[2;3Hx\\033[1;1Hy'",
        0,
        "y\n  x",
    ),
    (
        "4.4 erase to the end",
        "printf 'abc\\033[2D\\033[Kx'",
        0,
        "ax",
    ),
    (
        "4.4 insert and delete characters",
        "printf 'abc\\r\\033[2@x\\033[1C\\033[Py'",
        0,
        "x yc",
    ),
    (
        "4.4 insert a line",
        "printf 'a\\nb\\033[1A\\r\\033[Lnew'",
        0,
        "new\na\nb",
    ),
    (
        "4.4 delete a line",
        "printf 'a\\nb\\nc\\033[2A\\r\\033[M'",
        0,
        "b\nc",
    ),
    (
        "4.4 the alternate screen is left behind",
        "printf 'a\\033[?1049hpicture\\033[?1049lb'",
        0,
        "ab",
    ),
    ("4.4 line drawing", "printf '\\033(0lqk\\033(B'", 0, "┌─┐"),
    (
        "4.4 wide characters take two columns",
        "printf '日本\\r\\033[2Cx'",
        0,
        "日x",
    ),
    (
        "4.4 accents stay with their letter",
        "printf 'e\\xcc\\x81x'",
        0,
        "e\u{301}x",
    ),
    ("4.10 no newline", "printf \"no newline\"", 0, "no newline"),
    (
        "4.10 Unicode",
        "echo ünïcødé 日本語 🎉",
        0,
        "ünïcødé 日本語 🎉",
    ),
    (
        "4.10 heredoc",
        "cat << EOF\nline 1\nline 2\nEOF",
        0,
        "line 1\nline 2",
    ),
    ("4.10 exclamation marks", "echo \"wow!!\"", 0, "wow!!"),
    ("4.10 history expansion is off", "echo \"!b\"", 0, "!b"),
    (
        "4.14 not found",
        "no-such-command-x",
        127,
        "bash: no-such-command-x: command not found",
    ),
    (
        "4.6 status of a signal",
        "sh -c 'kill -9 $$'",
        137,
        "Killed",
    ),
    ("4.4 status", "(exit 42)", 42, ""),
    ("4.4 status is kept", "echo $?", 0, "42"),
    ("4.4 status of a pipe", "false | true", 0, ""),
    ("4.7 and", "echo a && echo b", 0, "a\nb"),
    ("4.7 semicolon", "echo a; echo b", 0, "a\nb"),
    ("4.7 pipe", "echo a | tr a b", 0, "b"),
    ("4.7 and, on two lines", "echo a &&\necho b", 0, "a\nb"),
    ("4.7 pipe, on two lines", "echo a |\ntr a b", 0, "b"),
    ("4.7 if", "if true\nthen\n  echo yes\nfi", 0, "yes"),
    ("4.7 for", "for i in 1 2; do\n  echo $i\ndone", 0, "1\n2"),
    (
        "4.7 while",
        "i=0; while [ $i -lt 2 ]; do\n  echo $((i++))\ndone",
        0,
        "0\n1",
    ),
    ("4.7 until", "until true; do\n  echo x\ndone", 0, ""),
    ("4.7 group", "{\n  echo a\n  echo b\n}", 0, "a\nb"),
    ("4.7 subshell", "(\n  echo a\n  echo b\n)", 0, "a\nb"),
    ("4.7 function", "f() {\n  echo in f\n}", 0, ""),
    ("4.7 function is kept", "f", 0, "in f"),
    ("4.7 quoted newline", "echo 'a\nb'", 0, "a\nb"),
    ("4.7 continuation", "echo a \\\n  b", 0, "a b"),
    ("4.7 heredoc with tabs", "cat <<-EOF\n\tx\n\tEOF", 0, "x"),
    (
        "4.7 two heredocs",
        "cat << A; cat << B\n1\nA\n2\nB",
        0,
        "1\n2",
    ),
    (
        "4.7 case",
        "case x in\n  x) echo match ;;\nesac",
        0,
        "match",
    ),
    ("4.7 conditional", "[[ a == a ]] && echo same", 0, "same"),
    ("4.7 arithmetic", "echo $(( 6 * 7 ))", 0, "42"),
    (
        "4.7 C-style for",
        "for ((i=0; i<2; i++)); do\n  echo $i\ndone",
        0,
        "0\n1",
    ),
    ("4.7 array", "a=(1\n2\n3)", 0, ""),
    ("4.7 array is kept", "echo ${a[2]} ${#a[@]}", 0, "3 3"),
    ("4.7 a comment after a command", "echo A\n# comment", 0, "A"),
    ("4.7 only a comment", "# x", 0, ""),
    (
        "4.7 a syntax error on two lines",
        "echo )\necho b",
        2,
        "bash: syntax error near unexpected token `)'",
    ),
    (
        "4.8 find -exec",
        "find /etc/passwd -exec echo {} \\;",
        0,
        "/etc/passwd",
    ),
    (
        "4.8 an escaped semicolon is a word",
        "echo a \\; echo b",
        0,
        "a ; echo b",
    ),
    ("4.8 a final semicolon", "echo hi;", 0, "hi"),
    (
        "4.8 backslashes",
        "echo 'a\\\\b' \\& \\| \\<",
        0,
        "a\\\\b & | <",
    ),
    (
        "12.9 a tab in the command",
        "echo 'a\tb' | od -An -c | tr -s ' '",
        0,
        "a \\t b \\n",
    ),
    ("4.6 a key name that is a word", "end=1; echo $end", 0, "1"),
    ("4.13 export", "export FOO=bar", 0, ""),
    (
        "4.13 export is kept",
        "echo $FOO; env | grep ^FOO",
        0,
        "bar\nFOO=bar",
    ),
    ("4.13 alias", "alias greet='echo hello'", 0, ""),
    ("4.13 alias is kept", "greet", 0, "hello"),
    ("4.13 umask", "umask", 0, "0022"),
    (
        "4.1 job control, no history expansion",
        "echo $- | grep -c i; echo $- | grep -c m; echo $- | grep -c H",
        1,
        "1\n1\n0",
    ),
    ("4.1 size of the terminal", "stty size", 0, "1000 1000"),
    (
        "1.4 init command",
        "alias git",
        0,
        "alias git='git --no-pager'",
    ),
    (
        "12.8 env shows no prompt",
        "env | grep -e PS1 -e PROMPT_COMMAND",
        1,
        "",
    ),
    (
        "12.19 env shows no key",
        "env | grep -i session_api_key",
        1,
        "",
    ),
    ("12.8 PS1 is no secret", "echo \"$PS1\" | wc -l", 0, "1"),
    ("9.2 exports", "export A=\"v1\"; export B=\"v 2\";", 0, ""),
    (
        "9.3 exports for later shells",
        "touch ~/.bashrc; grep -q \"^export A=\" ~/.bashrc || echo \"export A=\"v1\"\" >> ~/.bashrc; grep -q \"^export B=\" ~/.bashrc || echo \"export B=\"v2\"\" >> ~/.bashrc;",
        0,
        "",
    ),
    (
        "9.5 git identity",
        "git config --global user.name \"openhands\" && git config --global user.email \"openhands@all-hands.dev\"",
        0,
        "",
    ),
    (
        "9 clone flow",
        "git init -q repo && git config --global --add safe.directory $PWD/repo && cd repo && git remote add origin http://x/y",
        0,
        "",
    ),
    (
        "4.14 no echo of the command",
        "git remote -v",
        0,
        "origin  http://x/y (fetch)\norigin  http://x/y (push)",
    ),
    (
        "9 later shells read ~/.bashrc",
        "bash -ic 'echo $A' 2>/dev/null",
        0,
        "v1",
    ),
    (
        "4.4 stderr is shown in order",
        "echo a; echo b >&2; echo c",
        0,
        "a\nb\nc",
    ),
    (
        "4.13 the terminal recovers",
        "stty raw -echo; PS1=mine; PROMPT_COMMAND=",
        0,
        "",
    ),
    ("4.13 and goes on", "echo fine", 0, "fine"),
    ("4.2 stderr elsewhere", "exec 2>/dev/null", 0, ""),
    (
        "4.2 stderr elsewhere, next command",
        "ls /no/such; echo $?",
        0,
        "2",
    ),
    ("4.2 stderr comes back", "exec 2>/dev/tty", 0, ""),
    (
        "4.2 stderr is back",
        "ls /no/such 2>&1 | wc -l; echo x >&2",
        0,
        "1\nx",
    ),
    (
        "4.4 set -x shows the command only",
        "set -x; echo a; set +x",
        0,
        "++ echo a\na\n++ set +x",
    ),
    (
        "4.4 traps of the user",
        "trap 'echo bye' RETURN; trap - RETURN",
        0,
        "",
    ),
    (
        "4.4 unset variables",
        "set -u; echo \"${nope-none}\"; set +u",
        0,
        "none",
    ),
    (
        "4.4 another IFS",
        "IFS=:; x='a b:c'; printf '<%s>' $x; unset IFS",
        0,
        "<a b><c>",
    ),
    (
        "4.7 exit in a subshell",
        "(exit 3); bash -c 'exit 4'; echo $?",
        0,
        "4",
    ),
    ("4.2 a nested shell completes at once", "bash", 0, ""),
    (
        "4.2 and takes commands",
        "echo $((SHLVL > 1)); INNER=1; cd /tmp",
        0,
        "1",
    ),
    ("4.2 exit of the nested shell", "exit 5", 5, "exit"),
    (
        "4.2 back outside",
        "echo ${INNER-none} ${PWD##*/}",
        0,
        "none repo",
    ),
    (
        "4.2 a script through bash",
        "echo 'echo from stdin' | bash",
        0,
        "from stdin",
    ),
    (
        "4.2 bash with arguments",
        "bash -c 'echo $0 $1' a b",
        0,
        "a b",
    ),
    (
        "9 hook flow",
        "mkdir -p .git/hooks && touch .git/hooks/x && chmod +x .git/hooks/x && echo ok",
        0,
        "ok",
    ),
    (
        "1.2 the server's environment is the shell's",
        "echo $LANG",
        0,
        "C.UTF-8",
    ),
];

#[test]
fn outputs() {
    for world in worlds() {
        let cases: Vec<Case> = OUTPUTS
            .iter()
            .map(|(name, command, code, content)| {
                case(name, [run(command).exit(*code).gives(content)])
            })
            .collect();
        check_in_one(&world, "outputs", &cases);
    }
}

/// Command, and what it is taken apart to.
const SEVERAL: &[(&str, &[&str])] = &[
    ("echo a\necho b", &["echo a", "echo b"]),
    (
        "for i in 1; do\n  x\ndone\necho end",
        &["for i in 1; do\n  x\ndone", "echo end"],
    ),
    ("cat << E\nx\nE\necho b", &["cat << E\nx\nE", "echo b"]),
    ("f() {\n a\n}\nf", &["f() {\n a\n}", "f"]),
    ("export A=1\nexport B=2", &["export A=1", "export B=2"]),
    ("echo a;\necho b", &["echo a;", "echo b"]),
    ("(( 1+1 ))\necho b", &["(( 1+1 ))", "echo b"]),
    ("! ls\necho b", &["! ls", "echo b"]),
    (
        "x=$(cat <<E\n1\nE\n)\necho b",
        &["x=$(cat <<E\n1\nE\n)", "echo b"],
    ),
    ("a\nb\n\nc", &["a", "b", "c"]),
];

#[test]
fn several_commands() {
    for world in worlds() {
        let cases: Vec<Case> = SEVERAL
            .iter()
            .map(|(command, parts)| case("4.7 several commands", [run(command).refused(parts)]))
            .collect();
        check_in_one(&world, "several", &cases);
    }
}

#[test]
fn lengths() {
    for world in worlds() {
        let line = "x".repeat(20_000);
        let cases = [
            case("4.4 a long line is not folded", [run("printf 'y%.0s' {1..2500}").gives(&"y".repeat(2500))]),
            case("4.15 a long command", [run(&format!("echo {line}")).gives(&line)]),
            case(
                "4.9 5000 lines",
                [run("for i in {1..5000}; do echo \"Line $i\"; done")
                    .contains("Line 1\n")
                    .contains("\n[... Observation truncated due to length ...]\n")
                    .contains("Line 5000")],
            ),
            case(
                "4.9 50 000 lines",
                [run("for i in {1..50000}; do echo \"Line $i\"; done")
                    .prefix("[Previous command outputs are truncated. Showing the last 10499 lines of the output below.]\n")
                    .contains("Line 40000\n")
                    .contains("Line 50000")],
            ),
            case("4.9 the next command is not affected", [run("echo small").gives("small")]),
            case(
                "3.3 30 000 characters are not cut",
                [run("printf 'é%.0s' {1..30000}").gives(&"é".repeat(30_000))],
            ),
            case(
                "3.3 hidden commands are not cut",
                [run("printf 'é%.0s' {1..30001}").with("hidden", true.into()).gives(&"é".repeat(30_001))],
            ),
        ];
        check_in_one(&world, "lengths", &cases);
        let process = world.serve("more-lengths");
        let answer = process.run("printf 'é%.0s' {1..30001}");
        assert_eq!(answer["content"].as_str().unwrap().chars().count(), 30_047);
    }
}
