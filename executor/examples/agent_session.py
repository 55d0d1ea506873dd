"""A realistic agent session against an action execution server, with the standard library only.

    SERVER_URL=http://127.0.0.1:60000 SESSION_API_KEY=key python3 agent_session.py [WORKING-DIR]

Prints each step and ends with status 0 if every answer is what an agent relies on.
"""

import io
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile

URL = os.environ["SERVER_URL"].rstrip("/")
KEY = os.environ.get("SESSION_API_KEY", "")
ROOT = sys.argv[1] if len(sys.argv) > 1 else "/workspace"


def call(method, path, body=None, timeout=130, raw=False):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "X-Session-API-Key": KEY}
    request = urllib.request.Request(URL + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        content = response.read()
    return content if raw else json.loads(content)


def act(action, timeout=120.0, **args):
    envelope = {"action": action, "args": args, "timeout": timeout, "source": "agent"}
    return call("POST", "/execute_action", {"action": envelope}, timeout + 10)


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
    check("alive", call("GET", "/alive") == {"status": "ok"}, None)
    succeeded("environment", run('export PROJECT="demo"; export STAGE="test";'))
    succeeded("git identity", run('git config --global user.name "openhands" && git config --global user.email "openhands@all-hands.dev"'))
    succeeded("repository", run(f"git init -q {ROOT}/$PROJECT && cd {ROOT}/$PROJECT && mkdir src tests"))


def write_code():
    answer = act("write", path="src/calc.py", content="def add(a, b):\n    return a - b\n")
    check("write follows the shell's directory", answer["extras"]["path"] == f"{ROOT}/demo/src/calc.py", answer)
    test = "import sys, unittest\nsys.path.insert(0, 'src')\nfrom calc import add\n\n\nclass Test(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
    act("write", path="tests/test_calc.py", content=test)
    succeeded("commit", run("git add -A && git commit -qm 'First version'"))


def fix():
    answer = run("python3 -m unittest discover tests")
    check("the test fails", exit_code(answer) == 1 and "AssertionError: -1 != 5" in answer["content"], answer)
    path = f"{ROOT}/demo/src/calc.py"
    answer = act("edit", path=path, command="str_replace", old_str="a - b", new_str="a + b", impl_source="oh_aci")
    check("edit", answer["observation"] == "edit" and "has been edited" in answer["content"], answer)
    text = succeeded("the test passes", run("python3 -m unittest discover tests"))
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
    text = succeeded("curl", run("while [ ! -s port.txt ]; do sleep 0.05; done; python3 -c \"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:$(cat port.txt)/src/calc.py').read().decode())\""))
    check("it serves the fixed file", "return a + b" in text, text)
    succeeded("end it", run("kill %1; wait; true"))
    answer = run("python3 -u -m http.server --bind 127.0.0.1 0", timeout=2.0, blocking=True)
    check("a server in the foreground keeps running", exit_code(answer) == -1, answer)
    answer = run("ls")
    check("which is not disturbed", "is NOT executed" in answer["extras"]["metadata"]["suffix"], answer)
    answer = run("C-c", is_input=True)
    check("C-c ends it", exit_code(answer) == 0 and "Keyboard interrupt received, exiting." in answer["content"], answer)


def fetch():
    names = call("POST", "/list_files", {"path": f"{ROOT}/demo"})
    check("list", "src/" in names and "port.txt" in names, names)
    query = urllib.parse.urlencode({"path": f"{ROOT}/demo/src"})
    archive = zipfile.ZipFile(io.BytesIO(call("GET", f"/download_files?{query}", raw=True)))
    text = archive.read("calc.py").decode()
    check("download", "return a + b" in text, text)
    try:
        call("POST", "/execute_action", {"action": {"action": "nope"}})
        check("an unknown action is refused", False, None)
    except urllib.error.HTTPError as error:
        check("an unknown action is refused", error.code == 500, None)
    info = call("GET", "/server_info")
    check("server info", info["uptime"] >= info["idle_time"] >= 0, info)


for part in (set_up, write_code, fix, serve, fetch):
    part()
