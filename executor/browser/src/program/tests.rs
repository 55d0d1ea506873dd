use super::*;

#[test]
fn unclosed_call_of_an_action_is_refused() {
    let error = parse(r#"fill("1", f"click('2')")"#).unwrap_err();
    assert_eq!(error.class, "ValueError");
    assert!(error.message.contains("'fill'"), "{error}");
}
