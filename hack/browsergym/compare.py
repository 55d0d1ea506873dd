"""usage: compare.py [--only NAME,...] [--original FILE] [--save FILE] [--chromium PROGRAM] OURS [ARGUMENT]...
       compare.py --record [--only NAME,...] [--chromium PROGRAM]
       compare.py --markdown

Runs the sessions of executor/browser/tests/original/cases.json on BrowserGym and on OURS, a driver that speaks the
protocol of original.py, and compares their observations. Ends with status 1 if something differs that neither the rules
in fields.py nor differences.json allow, or if something listed there differs no more.

  --only      runs these sessions alone
  --save      keeps the answers of BrowserGym in FILE
  --original  takes them from there instead of running it: seconds instead of minutes
  --record    writes what BrowserGym answers into cases.json, for tests that run without it
  --markdown  prints what may differ, as tables for the documentation

Its Python is that of hack/browsergym/install.
"""
import argparse
import fnmatch
import json
import sys
import time
from collections import Counter
from pathlib import Path

from drivers import TESTS, Driver, DriverError, Site
from fields import ALLOWED, FIELDS, compare_answers, telling_line, tree_rows

HERE = Path(__file__).parent
CASES = TESTS / "cases.json"
MAX_LINES = 12  # of one difference


def run_sessions(site, command, sessions):
    """Answers of a driver, of each session its list. A session begins with a new browser."""
    answers, driver, started = {}, None, time.monotonic()
    for session in sessions:
        name = session["name"]
        answers[name] = []
        try:
            if driver:
                driver.ask(reset=True)
            else:
                driver = Driver(command).start()
            for step in session["steps"]:
                answer = driver.ask(program=site.fill_in(step["program"]), return_axtree=True)
                answers[name].append(without_port(answer, site.port))
        except (DriverError, OSError) as error:
            answers[name].append({"raised": f"{error}"})
            driver = driver and driver.stop()
        print(f"\r{len(answers)}/{len(sessions)} {name:24}", end="", file=sys.stderr)
    if driver:
        driver.stop()
    print(f"\r{len(answers)} sessions in {time.monotonic() - started:.0f} s{'':20}", file=sys.stderr)
    return answers


def without_port(answer, port):
    return json.loads(json.dumps(answer).replace(f":{port}", ":8000"))


def known_difference(known, session, index, field):
    for entry in known:
        if fnmatch.fnmatch(session, entry["session"]) and {field, "*"} & {*entry["fields"]} and index in entry.get("steps", [index]):
            return entry


def print_unexpected(unexpected):
    """Each difference once, with the steps of its session that have it, then their number by field."""
    places = {}
    for name, index, program, field, lines in unexpected:
        places.setdefault((name, field, *lines), []).append((index, program))
    for (name, field, *lines), steps in places.items():
        others = f", also in steps {', '.join(str(index) for index, _ in steps[1:])}" if steps[1:] else ""
        print(f"\n{name}, step {steps[0][0]}: {steps[0][1][:200]!r}: {field}{others}")
        print("\n".join(line[:300] for line in lines[:MAX_LINES]))
        if len(lines) > MAX_LINES:
            print(f"and {len(lines) - MAX_LINES} lines more")
    for field, count in Counter(field for *_, field, _ in unexpected).most_common():
        print(f"{count} not expected in {field}")


def compare(sessions, original, ours, known):
    """Prints a row for each session and what was not expected; returns whether there is such a thing."""
    used, unexpected, totals = [], [], Counter()
    print(f"{'session':24} {'steps':>5} {'fields':>6} {'equal':>6} {'known':>6} {'other':>6}")
    for session in sessions:
        name, count = session["name"], Counter()
        for index, step in enumerate(session["steps"]):
            left, right = (dict(enumerate(side.get(name, []))).get(index, {"raised": "not reached"}) for side in (original, ours))
            differing = compare_answers(left, right)
            count["fields"] += 1 if "raised" in differing else len(FIELDS.keys() & left.keys())
            for field, lines in differing.items():
                entry = known_difference(known, name, index, field)
                count["known" if entry else "other"] += 1
                used += [entry] if entry and entry not in used else []
                if not entry:
                    unexpected.append((name, index, step["program"], field, lines))
        count["equal"] = count["fields"] - count["known"] - count["other"]
        totals += count | {"steps": len(session["steps"])}
        print(f"{name:24} {len(session['steps']):5} {count['fields']:6} {count['equal']:6} {count['known']:6} {count['other']:6}")
    print(f"{'all':24} {totals['steps']:5} {totals['fields']:6} {totals['equal']:6} {totals['known']:6} {totals['other']:6}")
    print_unexpected(unexpected)
    run = {session["name"] for session in sessions}
    stale = [entry for entry in known if entry not in used and any(fnmatch.fnmatch(name, entry["session"]) for name in run)]
    for entry in stale:
        print(f"\nno longer differs: {entry['session']} {entry.get('steps', '')} {entry['fields']}: {entry['reason']}")
    return bool(unexpected or stale)


def recorded(step, answer, before):
    """A step with the decisive fields of what BrowserGym answered; `rows` are those of the tree that came with it."""
    if "raised" in answer:
        return {"program": step["program"], "raised": answer["raised"].split("\n")[0]}
    error, rows = answer["last_browser_action_error"], Counter(row.strip() for row in tree_rows(answer["tree"] or ""))
    new = list((rows - before).elements())
    kept = {
        "program": step["program"],
        "error": error.split("\n")[0],
        "reason": telling_line(error),
        "url": answer["url"],
        "focused": answer["focused_element_bid"],
        "pages": answer["open_pages_urls"] if len(answer["open_pages_urls"]) > 1 else [],
        "active": answer["active_page_index"],
        "rows": new if before and len(new) <= 8 else [],
    }
    before.clear()
    before.update(rows)
    return {key: value for key, value in kept.items() if value or key in ("program", "focused") or value is None}


def record(sessions, answers):
    everything = json.loads(CASES.read_text())
    for session in everything["sessions"]:
        if session["name"] in answers:
            before = Counter()
            session["steps"] = [recorded(*pair, before) for pair in zip(session["steps"], answers[session["name"]], strict=True)]
    lines = [",\n".join(
        f'    {{"name": {json.dumps(session["name"])}, "steps": [\n      '
        + ",\n      ".join(json.dumps(step, ensure_ascii=False) for step in session["steps"]) + "\n    ]}"
        for session in everything["sessions"]
    )]
    CASES.write_text('{\n  "comment": %s,\n  "sessions": [\n%s\n  ]\n}\n' % (json.dumps(everything["comment"]), lines[0]))


def print_markdown(known):
    print("| Field | May differ everywhere | Because |\n|---|---|---|")
    for row in ALLOWED:
        print("| " + " | ".join(row) + " |")
    print("\n| Session | Fields | Because |\n|---|---|---|")
    for entry in known:
        steps = f", steps {', '.join(map(str, entry['steps']))}" if "steps" in entry else ""
        print(f"| {entry['session']}{steps} | {', '.join(entry['fields'])} | {entry['reason']} |")


def main():
    arguments = argparse.ArgumentParser(usage=__doc__)
    arguments.add_argument("--only", default="*")
    arguments.add_argument("--original", type=Path)
    arguments.add_argument("--save", type=Path)
    arguments.add_argument("--chromium", default="/usr/bin/chromium-headless-shell")
    arguments.add_argument("--record", action="store_true")
    arguments.add_argument("--markdown", action="store_true")
    arguments.add_argument("ours", nargs=argparse.REMAINDER)
    options = arguments.parse_args()
    known = json.loads((HERE / "differences.json").read_text())
    if options.markdown:
        return print_markdown(known)
    sessions = [session for session in json.loads(CASES.read_text())["sessions"]
                if any(fnmatch.fnmatch(session["name"], name) for name in options.only.split(","))]
    with Site() as site:
        if options.original:
            original = json.loads(options.original.read_text())
        else:
            command = [sys.executable, str(HERE / "original.py"), "--slow-mo", "0", "--chromium", options.chromium]
            original = run_sessions(site, command, sessions)
            if options.save:
                options.save.write_text(json.dumps(original))
        if options.record:
            return record(sessions, original)
        ours = run_sessions(site, options.ours, sessions)
    sys.exit(compare(sessions, original, ours, known))


main()
