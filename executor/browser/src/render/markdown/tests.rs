use super::*;
#[test]
fn show() {
    let s: DomSnapshot =
        serde_json::from_str(&std::fs::read_to_string("/tmp/r2/snap.json").unwrap()).unwrap();
    println!("{}", markdown(&s));
    let t = crate::snapshot::element::ElementTable::from_snapshot(&s, (0.0, 0.0));
    println!("{}", serde_json::to_string(&t).unwrap());
}
