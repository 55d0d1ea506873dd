//! Properties: nothing panics, literals come back as they were written, and no call is made of
//! anything but literals.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Call, Value, parse, scan::scan};

/// Pieces of the language, joined at random into near misses.
const PIECES: &[&str] = &[
    "click", "fill(", "f(", "(", ")", ",", " ", "\n", "\r", "\"", "'", "\"\"\"", "'''", "\\",
    "\\x4", "\\u00e9", "\\N{", "}", "\\7", "[", "]", "{", ":", "a=", "1", "-.5", "1e3", "#",
    "True", "None", "'a'", "é", "中", "·", "😀", "f()",
];

/// Expressions that are no literals, and that no separator turns into some.
const EXCLUDED: &[&str] = &[
    "x",
    "g('1')",
    "f'x'",
    "r'x'",
    "b'x'",
    "'a' + 'b'",
    "'a' 'b'",
    "0x1",
    "1_0",
    "x.y",
    "-x",
    "{1: 2}",
    "[x]",
    "(x)",
    "*a",
    "not 1",
    "inf",
    "...",
    "'a",
    "lambda: 1",
    "a[0]",
    "1 if 2 else 3",
    "'a'.b()",
];

fn values() -> impl Strategy<Value = Value> {
    let finite = any::<f64>().prop_filter("finite", |number| number.is_finite());
    let leaf = prop_oneof![
        any::<String>().prop_map(Value::Str),
        any::<i64>().prop_map(Value::Int),
        finite.prop_map(Value::Float),
        any::<bool>().prop_map(Value::Bool),
        Just(Value::None),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::List),
            vec(inner.clone(), 0..4).prop_map(Value::Tuple),
            proptest::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|entries| Value::Dict(entries.into_iter().collect())),
        ]
    })
}

fn render(values: &[Value]) -> Vec<String> {
    values.iter().map(|value| format!("{value:?}")).collect()
}

proptest! {
    #[test]
    fn any_program_gives_calls_of_actions_or_an_error(
        pieces in vec(prop_oneof![
            4 => proptest::sample::select(PIECES).prop_map(str::to_owned),
            1 => any::<String>(),
        ], 0..24)
    ) {
        for call in parse(&pieces.concat()).unwrap_or_default() {
            // Binding may fail, but not with the error for names: those are known by now.
            if let Err(error) = call.bind() {
                prop_assert!(!error.message.starts_with("Invalid action type"));
            }
        }
    }

    #[test]
    fn literals_are_read_as_written(
        positional in vec(values(), 0..4),
        named in proptest::collection::btree_map("[a-z_é][a-z0-9_]{0,8}", values(), 0..3),
    ) {
        let named = named.into_iter().collect::<Vec<_>>();
        let mut arguments = render(&positional);
        arguments.extend(named.iter().map(|(name, value)| format!("{name}={value:?}")));
        let program = format!("call({})", arguments.join(", "));
        let call = Call { name: "call".to_owned(), positional, named };
        prop_assert_eq!(scan(&program), Ok(vec![call]));
    }

    #[test]
    fn arguments_other_than_literals_exclude_the_call(
        values in vec(values(), 0..4),
        excluded in proptest::sample::select(EXCLUDED),
        at in any::<proptest::sample::Index>(),
    ) {
        let mut arguments = render(&values);
        arguments.insert(at.index(arguments.len() + 1), excluded.to_owned());
        let program = format!("call({})", arguments.join(", "));
        let calls = scan(&program).unwrap_or_default();
        prop_assert!(calls.iter().all(|call| call.name != "call"), "{calls:?}");
    }
}
