//! What of an envelope counts, and the words of its refusals.

use serde_json::json;

use super::*;

fn parse(envelope: Value) -> Result<Action, String> {
    let Value::Object(envelope) = envelope else {
        panic!("not an object");
    };
    Action::parse(&envelope).map_err(|error| error.to_string())
}

#[test]
fn unknown_arguments_are_ignored() {
    let envelope = json!({"action": "run", "args": {"command": "ls", "zzz": 1}, "timeout": 3});
    let Ok(Action::Run(run)) = parse(envelope) else {
        panic!("refused");
    };
    assert_eq!((run.command.as_str(), run.timeout), ("ls", Some(3.0)));
}

#[test]
fn refusals_use_the_originals_words() {
    let error = |envelope| parse(envelope).unwrap_err();
    assert_eq!(error(json!({})), "Unknown event type: {}");
    assert_eq!(
        error(json!({"observation": "run"})),
        "400: Invalid action type"
    );
    assert!(error(json!({"action": "nope"})).starts_with(
        "'action['action']='nope'' is not defined. Available actions: dict_keys(['null', "
    ));
    assert_eq!(
        error(json!({"action": "run", "args": {}})),
        "action={'action': 'run', 'args': {}} has the wrong arguments: \
         CmdRunAction.__init__() missing 1 required positional argument: 'command'"
    );
    assert!(error(json!({"action": "write"})).ends_with("arguments: 'path' and 'content'"));
    assert_eq!(
        error(json!({"action": "think", "args": {"thought": ""}})),
        "'ActionExecutor' object has no attribute 'think'"
    );
    assert_eq!(
        error(json!({"action": "run", "source": "bogus", "args": {"command": ""}})),
        "'bogus' is not a valid EventSource"
    );
}
