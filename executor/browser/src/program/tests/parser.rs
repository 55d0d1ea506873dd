//! Texts and the calls in them, then what is refused, and hostile programs.

use super::super::{Call, parse, scan::scan};

fn render(calls: &[Call]) -> String {
    let calls = calls.iter().map(|call| {
        let positional = call.positional.iter().map(|value| format!("{value:?}"));
        let named = call.named.iter();
        let named = named.map(|(name, value)| format!("{name}={value:?}"));
        let arguments = positional.chain(named).collect::<Vec<_>>();
        format!("{}({})", call.name, arguments.join(", "))
    });
    calls.collect::<Vec<_>>().join(" ")
}

fn error(program: &str) -> String {
    parse(program).unwrap_err().to_string()
}

#[test]
fn texts_give_their_calls() {
    for (text, calls) in TEXTS {
        assert_eq!(render(&scan(text).unwrap()), *calls, "{text:?}");
    }
}

#[test]
fn broken_escapes_are_syntax_errors() {
    for (literal, positions, problem) in [
        (r#""\x1""#, "0-2", r"truncated \xXX escape"),
        (r"'''\x'''", "0-1", r"truncated \xXX escape"),
        (r"'''é\xz'''", "10-11", r"truncated \xXX escape"),
        (r#""ab\u12""#, "2-5", r"truncated \uXXXX escape"),
        (r#""\U0011""#, "0-5", r"truncated \UXXXXXXXX escape"),
        (r#""\U00110000""#, "0-9", "illegal Unicode character"),
        (r#""\N""#, "0-1", r"malformed \N character escape"),
        (r#""\N{""#, "0-2", r"malformed \N character escape"),
        (r#""\N{}""#, "0-2", r"malformed \N character escape"),
        (r#""\N{NOPE}""#, "0-7", "unknown Unicode character name"),
    ] {
        assert_eq!(
            error(&format!("go_back() goto({literal})")),
            format!(
                "SyntaxError: (unicode error) 'unicodeescape' codec can't decode bytes \
                 in position {positions}: {problem} (<unknown>, line 1)"
            )
        );
    }
    assert_eq!(
        error("goto(\"\0\")"),
        "SyntaxError: source code string cannot contain null bytes"
    );
}

#[test]
fn programs_without_calls_and_with_unknown_names_are_refused_as_a_whole() {
    for program in ["", "click the button", "goto(http://x)"] {
        assert_eq!(error(program), "ValueError: Received an empty action.");
    }
    for name in ["foo", "mouse_click", "keyboard_press", "check", "uncheck"] {
        assert_eq!(
            error(&format!("go_back() {name}(\"1\")")),
            format!("NameError: Invalid action type '{name}'.")
        );
    }
    assert_eq!(
        error(r#"go_back() click(bid="1", bid="2")"#),
        "SyntaxError: keyword argument repeated: bid"
    );
}

#[test]
fn calls_inside_an_unclosed_call_of_an_action_are_refused() {
    for program in [
        r#"fill("1", f"click('2')")"#,
        r#"fill("1", click("2"))"#,
        r#"fill("1", "no end \n click("2")"#,
        r#"fill(("1"), x, click("2"))"#,
        r#"fill("1", click(x), click("2"))"#,
    ] {
        assert_eq!(
            error(program),
            "ValueError: Could not parse the call of 'fill', which contains 'click(…)'. \
             Arguments must be plain literals. Nothing was executed.",
            "{program}"
        );
    }
    for (program, calls) in [
        (r#"f(click("2"))"#, "click('2')"),
        (r#"fill (the form), then click("2")"#, "click('2')"),
        (r#"fill(x) click("2")"#, "click('2')"),
        (r#"fill, click("2")"#, "click('2')"),
        ("fill(\"1\", \"two\nlines\") click(\"2\")", "click('2')"),
    ] {
        assert_eq!(render(&parse(program).unwrap()), calls, "{program}");
    }
    let unknown = r#"fill("1", str("2"))"#;
    assert_eq!(error(unknown), "NameError: Invalid action type 'str'.");
}

// A program that takes more than a fixed amount of work per byte would give another error.
#[test]
fn hostile_programs_take_linear_work() {
    for unit in [
        "f(",
        "f",
        "f(\"",
        "f('''",
        "f([",
        "f({\"a\":",
        "[",
        "(",
        "\\",
        "\"",
        "#",
        " ",
        "f #",
        "f(#\n",
        "f(\"\\",
        "f(-",
        "f(a=",
        "True(",
        "f(\"a\",",
    ] {
        let program = unit.repeat(40_000 / unit.len());
        assert_eq!(
            error(&program),
            "ValueError: Received an empty action.",
            "{unit:?}"
        );
    }
    // Each unit is an argument of all calls that start in the strings before it.
    let program = "\"f('''\", # ''',\n 1,".repeat(2_000);
    assert_eq!(
        error(&program),
        "ValueError: Too many unfinished calls in the program."
    );
    let calls = scan(&"f(1)".repeat(10_000)).unwrap();
    assert_eq!(calls.len(), 10_000);
}

#[test]
fn values_nest_to_a_bounded_depth() {
    let nested = |depth: usize| format!("f({}{})", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(render(&scan(&nested(64)).unwrap()), nested(64));
    assert_eq!(scan(&nested(65)).unwrap(), []);
    assert_eq!(scan(&nested(20_000)).unwrap(), []);
}

// One line for each text.
#[rustfmt::skip]
const TEXTS: &[(&str, &str)] = &[
    (r#"page.goto("u")"#, "goto('u')"),
    (r#"x = click("1")"#, "click('1')"),
    (r#"await click("1")"#, "click('1')"),
    ("I will press it:\n```python\nclick(\"1\")\n```\nand wait.", "click('1')"),
    (r#"a("1"); b("2")"#, "a('1') b('2')"),
    ("a()a()", "a() a()"),
    ("goto(http://x)", ""),
    ("f(x)", ""),
    (r#"f("a" "b")"#, ""),
    (r#"f(r"a")"#, ""),
    (r#"fill(bid="1","x")"#, ""),
    (r#"f("a)"#, ""),
    (r#"f("a""#, ""),
    ("", ""),
    ("no call", ""),
    ("g(f(h(1)))", "h(1)"),
    ("f(1 + 2)", ""),
    ("f(a.b)", ""),
    ("f(*a)", ""),
    ("f(-1)", "f(-1)"),
    (r#"f(["a", ("b", 1), {"k": None}])"#, "f(['a', ('b', 1), {'k': None}])"),
    (r#"点击click("1")"#, "click('1')"),
    (r#"f({"a": {"b": []}})"#, "f({'a': {'b': []}})"),
    ("f(0.1, 1e16, 1.5e-7)", "f(0.1, 1e+16, 1.5e-07)"),
    ("f('''a\nb''')", r"f('a\nb')"),
    ("f(\"a\nb\")", ""),
    ("f(\"a\\\nb\")", "f('ab')"),
    ("f(.5e3, 1e3, .5, 5., -3, +4, 1.5e-2)", "f(500.0, 1000.0, 0.5, 5.0, -3, 4, 0.015)"),
    ("f(1a=2)", "f(1, a=2)"),
    (r#"f("x"a=1)"#, "f('x', a=1)"),
    ("f(1,,2)", ""),
    ("f(,)", ""),
    ("f(a=1,,)", ""),
    ("f(1, a=1,)", "f(1, a=1)"),
    ("f(a=1 b=2)", ""),
    ("𝐚b(1)", "b(1)"),
    ("éa(1)", "éa(1)"),
    ("a٣(1)", ""),
    ("1a(1)", "a(1)"),
    ("f(1e999)", "f(inf)"),
    (r#"f("\N{BULLET}")"#, "f('•')"),
    (r#"f("\777\8\q")"#, r"f('ǿ\\8\\q')"),
    ("f(True)", "f(True)"),
    ("f(Truex)", ""),
    ("f(True=1)", ""),
    (r#"f({"a":1,})"#, "f({'a': 1})"),
    ("f({1:2})", ""),
    (r#"f({"a":1,"a":2})"#, "f({'a': 2})"),
    ("f({})", "f({})"),
    ("f([])", "f([])"),
    ("f(())", "f(())"),
    ("f((1))", "f((1,))"),
    ("f([1,])", "f([1])"),
    ("f([,])", ""),
    ("f(1 # c)\n)", "f(1)"),
    ("f([1 # c\n,2])", "f([1, 2])"),
    (r#"f("a#b")"#, "f('a#b')"),
    ("# f(1)\ng(2)", "g(2)"),
    ("\"# f(1)\ng(2)", "g(2)"),
    ("f (1)", "f(1)"),
    ("f\n(1)", "f(1)"),
    ("f # x\n(1)", "f(1)"),
    ("f(a = 1)", "f(a=1)"),
    ("f(a #c\n= 1)", "f(a=1)"),
    ("f(1_0)", ""),
    ("f(0x1)", ""),
    ("f(inf)", ""),
    ("f(- 1)", ""),
    ("f(007)", "f(7)"),
    ("f('a''b')", ""),
    ("f(''''a''')", r#"f("'a")"#),
    ("f('''a'''')", ""),
    ("f('')", "f('')"),
    ("f('' '')", ""),
    (r#"f("""""")"#, "f('')"),
    (r#"f("""a\"""""")"#, ""),
    (r"f('a\'b')", r#"f("a'b")"#),
    (r"f('a\\')", r"f('a\\')"),
    ("f(b'x')", ""),
    ("f(u'x')", ""),
    (r#"f(rb"x")"#, ""),
    (r#"f(x"y")"#, ""),
    ("f()", "f()"),
    ("f", ""),
    ("f(", ""),
    ("f)", ""),
    ("f(1)g(2)", "f(1) g(2)"),
    ("f(1);g(2)", "f(1) g(2)"),
    ("f(1).g(2)", "f(1) g(2)"),
    ("f(g(1))", "g(1)"),
    (r#"f("1", f"g('2')")"#, "g('2')"),
    ("f(1,a=g(2))", "g(2)"),
    ("a\u{a0}(1)", ""),
    ("f(\u{a0}1)", ""),
    ("f(\u{c}1)", ""),
    ("f(1,\u{2028}1)", ""),
    ("f(1, a=2, 3)", ""),
    ("f(a=1, a=2)", "f(a=1, a=2)"),
    ("f(None, None=1)", ""),
    ("f(1)#x", "f(1)"),
    ("f(''','a')", ""),
    ("f(1.2.3)", ""),
    ("f(1..2)", ""),
    ("f(1.a=2)", "f(1.0, a=2)"),
    ("f(\"\r\")", ""),
    ("f('''\r\n''')", r"f('\n')"),
    ("f('a\\\r\nb')", ""),
    (r#"f("a\"#, ""),
    (r#"f("a\")"#, ""),
    ("f(\"\u{2028}\")", r"f('\u2028')"),
    ("ǅ(1)", ""),
    ("ª(1)", "ª(1)"),
    ("·(1)", ""),
    ("a·(1)", "a·(1)"),
    ("ℼ(1)", ""),
    ("中(1)", ""),
    ("f(﹍=1)", ""),
    ("_(1)", "_(1)"),
    ("a‿b(1)", "b(1)"),
    ("f(+.5)", "f(0.5)"),
    ("f(1e5)", "f(100000.0)"),
    ("f(1E+5)", "f(100000.0)"),
    ("f(1e)", ""),
    ("f(-1.e2)", "f(-100.0)"),
    ("f(\u{0})", ""),
    ("f('''a\\\nb''')", ""),
    ("f(\"a\\\rb\")", "f('ab')"),
    ("f('''a\rb''')", r"f('a\nb')"),
    (r#"f("\0\12\1234\a\b\f\v")"#, r"f('\x00\nS4\x07\x08\x0c\x0b')"),
    (r#"f({"a" :1 "b":2})"#, ""),
    (r#"f({"a":})"#, ""),
    (r#"f("\x41")"#, "f('A')"),
    (r#"f("\x41\xzz")"#, ""),
    (r#"f("\x414")"#, "f('A4')"),
    ("f('x' \n , # c\n a = # d\n [ 1 # e\n ] , )", "f('x', a=[1])"),
    ("²(1)", ""),
    ("µ(1)", "µ(1)"),
    ("a²(1)", ""),
    ("×(1)", ""),
    ("ÿ(1)", "ÿ(1)"),
    (r#"f("\N{latin small letter a}\N{LF}\N{CJK UNIFIED IDEOGRAPH-4E00}")"#, r"f('a\n一')"),
    (r#"f("\ud83d\ude00 \ud83d")"#, "f('😀 \u{fffd}')"),
    ("f('a\tb')", r"f('a\tb')"),
    ("f([)", ""),
    ("f({)g(1)", "g(1)"),
    ("f((a='b')", ""),
    ("f(99999999999999999999)", "f(1e+20)"),
];
