"""usage: over_http.py EXECUTOR

A driver with the protocol of original.py in front of the HTTP API of the executor, for bench.py. Its answers have the
tree, but no Markdown: that comes with `browse` alone. The `pid` it announces is the one to measure.
"""
import json
import os
import subprocess
import sys
import tempfile
import urllib.request


def main():
    with tempfile.TemporaryDirectory(prefix="executor-") as folder:
        command = [sys.argv[1], "serve", "0", "--username", "root", "--working-dir", folder]
        environment = {key: value for key, value in os.environ.items() if key not in ("SESSION_API_KEY", "SSL_CERT_FILE")}
        environment |= {"HOME": folder, "SANDBOX_BIND_ADDRESS": "127.0.0.1"}
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        address = server.stdout.readline().strip().removeprefix("listening on ")
        act(address, "run", {"command": "true"})  # clients begin with commands; the shell has started then
        print(json.dumps({"ready": True, "pid": server.pid}), flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(address, json.loads(line))), flush=True)
        server.terminate()
        server.wait(20)


def act(address, action, arguments):
    body = json.dumps({"action": {"action": action, "args": arguments}}).encode()
    post = urllib.request.Request(f"http://{address}/execute_action", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(post, timeout=130) as response:
        return json.load(response)


def answer(address, request):
    arguments = {"browser_actions": request["program"], "return_axtree": request.get("return_axtree", False)}
    seen = act(address, "browse_interactive", arguments)
    if seen["observation"] != "browse":
        return {"raised": seen["content"]}
    begin, end = "============== BEGIN accessibility tree ==============\n", "\n============== END accessibility tree =============="
    return seen["extras"] | {"tree": seen["content"].partition(begin)[2].partition(end)[0]}


main()
