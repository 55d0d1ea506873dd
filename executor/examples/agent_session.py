"""A realistic agent session against an action execution server, with nothing but `requests`.

    SERVER_URL=http://127.0.0.1:60000 SESSION_API_KEY=key python3 agent_session.py [WORKING-DIR]

Clones, edits, tests, fixes, serves, interrupts and fetches. Prints each step and ends with status 0
if every answer is what an agent relies on.
"""

import io
import json
import os
import sys
import zipfile

import requests

URL = os.environ["SERVER_URL"].rstrip("/")
ROOT = sys.argv[1] if len(sys.argv) > 1 else "/workspace"
CLIENT = requests.Session()
CLIENT.headers["X-Session-API-Key"] = os.environ.get("SESSION_API_KEY", "")
CLIENT.trust_env = False  # no proxy between the two


def call(method, path, timeout=130, **more):
    response = CLIENT.request(method, URL + path, timeout=timeout, **more)
    response.raise_for_status()
    return response


def act(action, timeout=120.0, **args):
    envelope = {"action": action, "args": args, "timeout": timeout, "source": "agent"}
    return call("POST", "/execute_action", timeout + 10, json={"action": envelope}).json()


def run(command, timeout=120.0, **args):
    return act("run", timeout, command=command, **args)


def check(step, condition, answer):
    print(("ok    " if condition else "FAILED ") + step)
    if not condition:
        print(json.dumps(answer, indent=1))
        sys.exit(1)


def exit_code(answer):
    return answer["extras"]["metadata"]["exit_code"]


def succeeded(step, answer):
    check(step, answer.get("success") is True, answer)
    return answer["content"]


def set_up():
    check("alive", call("GET", "/alive").json() == {"status": "ok"}, None)
    succeeded("environment", run('export PROJECT="demo"; export STAGE="test";'))
    succeeded("git identity", run('git config --global user.name "openhands" && git config --global user.email "openhands@all-hands.dev"'))
    succeeded("origin", run(f"git init -q --bare {ROOT}/origin.git"))
    succeeded("clone", run(f"git clone {ROOT}/origin.git {ROOT}/$PROJECT"))
    succeeded("directories", run(f"cd {ROOT}/$PROJECT && mkdir src tests"))
    text = succeeded("remote", run("git remote -v"))
    check("the remote is the origin", text.splitlines()[0].split()[1] == f"{ROOT}/origin.git", text)


def write_code():
    answer = act("write", path="src/calc.py", content="def add(a, b):\n    return a - b\n")
    check("write follows the shell's directory", answer["extras"]["path"] == f"{ROOT}/demo/src/calc.py", answer)
    test = "import sys, unittest\nsys.path.insert(0, 'src')\nfrom calc import add\n\n\nclass Test(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
    act("write", path="tests/test_calc.py", content=test)
    succeeded("commit", run("git add -A && git commit -qm 'First version'"))


def fix():
    # -B: the fix is as long as the fault and may be of the same second, so a cached module would pass for it.
    answer = run("python3 -B -m unittest discover tests")
    check("the test fails", exit_code(answer) == 1 and "AssertionError: -1 != 5" in answer["content"], answer)
    path = f"{ROOT}/demo/src/calc.py"
    answer = act("edit", path=path, command="str_replace", old_str="a - b", new_str="a + b", impl_source="oh_aci")
    check("edit", answer["observation"] == "edit" and "has been edited" in answer["content"], answer)
    text = succeeded("the test passes", run("python3 -B -m unittest discover tests"))
    check("its output is whole", text.endswith("OK"), text)
    check("diff", "+    return a + b" in succeeded("git diff", run("git diff")), None)
    succeeded("second commit", run("git commit -qam 'Fix add'"))
    text = succeeded("log", run("git log --format=%s"))
    check("two commits", text == "Fix add\nFirst version", text)


def serve():
    script = "import http.server; s = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler); print(s.server_port, flush=True); s.serve_forever()"
    answer = run(f"python3 -u -c \"{script}\" > port.txt 2> log.txt &")
    pid = answer["extras"]["metadata"]["pid"]
    check("background job", answer["content"] == f"[1] {pid}", answer)
    succeeded("it listens", run("while [ ! -s port.txt ]; do sleep 0.05; done", blocking=True))
    text = succeeded("curl", run("curl -s http://127.0.0.1:$(cat port.txt)/src/calc.py"))
    check("it serves the fixed file", "return a + b" in text, text)
    check("it is still there", "Running" in succeeded("jobs", run("jobs")), None)
    succeeded("end it", run("kill %1; wait; true"))
    answer = run("python3 -u -m http.server --bind 127.0.0.1 0", timeout=2.0, blocking=True)
    check("a server in the foreground keeps running", exit_code(answer) == -1, answer)
    said = answer["content"]
    # Before it says so, an interrupt would end it while it starts.
    for _ in range(60):
        if "Serving HTTP" in said:
            break
        said += run("", timeout=2.0, blocking=True)["content"]
    check("it says that it serves", "Serving HTTP" in said, said)
    answer = run("ls")
    check("which is not disturbed", "is NOT executed" in answer["extras"]["metadata"]["suffix"], answer)
    answer = run("C-c", is_input=True)
    check("C-c ends it", exit_code(answer) == 0 and "Keyboard interrupt received, exiting." in answer["content"], answer)


def fetch():
    succeeded("push", run("git push -q origin HEAD"))
    names = call("POST", "/list_files", json={"path": f"{ROOT}/demo"}).json()
    check("list", "src/" in names and "port.txt" in names, names)
    notes = {"file": ("notes.txt", b"from the client\n")}
    call("POST", "/upload_file", params={"destination": f"{ROOT}/demo/src"}, files=notes)
    archive = call("GET", "/download_files", params={"path": f"{ROOT}/demo/src"}).content
    archive = zipfile.ZipFile(io.BytesIO(archive))
    text = archive.read("calc.py").decode()
    check("download", "return a + b" in text, text)
    check("with what was uploaded", archive.read("notes.txt") == b"from the client\n", None)
    answer = CLIENT.post(URL + "/execute_action", json={"action": {"action": "nope"}}, timeout=10)
    check("an unknown action is refused", answer.status_code == 500, answer.text)
    info = call("GET", "/server_info").json()
    check("server info", info["uptime"] >= info["idle_time"] >= 0, info)


for part in (set_up, write_code, fix, serve, fetch):
    part()
