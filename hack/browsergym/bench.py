"""usage: bench.py [--steps N] [--chromium PROGRAM] [--executor PROGRAM] OURS [ARGUMENT]...

Measures BrowserGym and OURS, drivers that speak the protocol of original.py, one after the other in one run: start, steps
on a small page, a page of 6 000 elements, and memory of all their processes. With --executor also the whole way through
the HTTP API of that program. BrowserGym waits as long as it does by default. Its Python is that of
hack/browsergym/install.
"""
import argparse
import statistics
import sys
import time
from pathlib import Path

from drivers import Driver, Site

HERE = Path(__file__).parent
MIB = 1 << 20
SMALL, LARGE = 'goto("{site}/article.html")', 'goto("{site}/large.html")'
CLICK_SMALL, CLICK_LARGE = 'click("45")', 'click("9")'
# What the browser must reach, by row; steps also 1/10 of the original's time.
GOALS = {
    "first step, s": "<= 1",
    "goto + observation, p50, s": "<= 0.15, ratio <= 0.1",
    "click + observation, p50, s": "<= 0.15, ratio <= 0.1",
    "memory beside the browser, MiB": "<= 30",
}


def processes(root):
    """Identifiers of a process and its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue  # ended meanwhile
    tree, grown = {root}, True
    while grown:
        more = {child for child, parent in parents.items() if parent in tree} - tree
        tree, grown = tree | more, bool(more)
    return tree


def memory(root):
    """Memory of a tree of processes in bytes: (of all, of those that are not the browser, how many there are). Shared
    pages count in parts (PSS)."""
    everything = own = count = 0
    for pid in processes(root):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            program = Path(f"/proc/{pid}/exe").resolve().name
        except OSError:
            continue  # ended meanwhile, or a zombie
        size = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024
        everything, count = everything + size, count + 1
        own += 0 if "chrom" in program or "headless_shell" in program else size
    return everything, own, count


def timed(driver, site, program):
    started = time.monotonic()
    answer = driver.ask(program=site.fill_in(program))
    if answer.get("raised") or answer["error"]:
        sys.exit(f"{program}: {answer.get('raised') or answer['last_browser_action_error']}")
    return time.monotonic() - started


def measure(site, command, steps):
    with Driver(command) as driver:
        figures = {"start, s": driver.start_seconds, "first step, s": timed(driver, site, SMALL)}
        pairs = [(timed(driver, site, SMALL), timed(driver, site, CLICK_SMALL)) for _ in range(steps)]
        for name, values in zip(["goto", "click"], zip(*pairs)):
            figures[f"{name} + observation, p50, s"] = statistics.median(values)
            figures[f"{name} + observation, max, s"] = max(values)
        everything, own, count = memory(driver.pid)
        figures |= {"memory, MiB": everything / MIB, "memory beside the browser, MiB": own / MIB, "processes": count}
        pairs = [(timed(driver, site, LARGE), timed(driver, site, CLICK_LARGE)) for _ in range(3)]
        for name, values in zip(["goto", "click"], zip(*pairs)):
            figures[f"6 000 elements: {name}, p50, s"] = statistics.median(values)
        everything, own, _ = memory(driver.pid)
        return figures | {"memory after that, MiB": everything / MIB, "beside the browser after that, MiB": own / MIB}


def main():
    arguments = argparse.ArgumentParser(usage=__doc__)
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--chromium", default="/usr/bin/chromium-headless-shell")
    arguments.add_argument("--executor")
    arguments.add_argument("ours", nargs=argparse.REMAINDER)
    options = arguments.parse_args()
    drivers = {"original": [sys.executable, str(HERE / "original.py"), "--chromium", options.chromium]}
    if options.ours:
        drivers["ours"] = options.ours
    if options.executor:
        drivers["executor"] = [sys.executable, str(HERE / "over_http.py"), options.executor]
    with Site() as site:
        figures = {name: measure(site, command, options.steps) for name, command in drivers.items()}
    others = [name for name in figures if name != "original"]
    print(f"{'':36} {'original':>10}" + "".join(f" {name:>10} {'ratio':>7}" for name in others) + "  goal")
    for row, value in figures["original"].items():
        cells = [f" {figures[name][row]:10.2f} {figures[name][row] / value:7.3f}" for name in others]
        print(f"{row:36} {value:10.2f}{''.join(cells)}  {GOALS.get(row, '')}".rstrip())


main()
