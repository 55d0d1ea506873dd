"""usage: original.py [--chromium PROGRAM] [--downloads FOLDER] [--slow-mo MILLISECONDS]

Runs BrowserGym as OpenHands' browser worker does, for hack/browsergym/compare and bench. Its Python is that of
hack/browsergym/install.

Protocol, of this driver and of every other one that is compared with it: one JSON object a line, one answer a request.

* Started, the driver opens the browser with one blank tab and writes {"ready": true}.
* {"program": TEXT, "return_axtree": BOOL} runs a program. The answer is the observation: the fields of the observation
  `browse` (docs/specs/browser.md, section 1.2) that come from the browser: url, screenshot, set_of_marks,
  open_pages_urls, active_page_index, axtree_object ({} unless return_axtree), extra_element_properties (likewise),
  last_browser_action, last_browser_action_error, focused_element_bid, error; and the two texts of `content`:
    tree      rows of the accessibility tree (section 2.7), or null with the reason in tree_error
    markdown  text of the page (section 2.9)
  If the step itself failed, the answer is {"raised": TEXT} instead; only a reset is sure to work then.
* {"reset": true} closes the browser and opens another, as at the start, and answers {"ready": true}.
* At the end of the input the driver closes the browser and exits with status 0.

Relative paths of uploads are resolved in the driver's working directory. Nothing else is written to standard output.
"""
import argparse
import base64
import io
import json
import logging
import os
import sys
import tempfile
from pathlib import Path


def browsers_folder(folder, chromium):
    """Puts a Chromium where Playwright looks for its own: BrowserGym's chat window cannot be told another path."""
    import playwright

    known = json.loads((Path(playwright.__file__).parent / "driver/package/browsers.json").read_text())
    revision = next(b["revision"] for b in known["browsers"] if b["name"] == "chromium-headless-shell")
    place = Path(folder, f"chromium_headless_shell-{revision}", "chrome-linux", "headless_shell")
    place.parent.mkdir(parents=True)
    place.symlink_to(chromium)
    os.environ["PLAYWRIGHT_BROWSERS_PATH"] = str(folder)


def png(pixels):
    import PIL.Image

    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


class Original:
    def __init__(self, downloads, slow_mo):
        import gymnasium
        import browsergym.core  # registers the task
        import html2text

        self.env = gymnasium.make(
            "browsergym/openended",
            task_kwargs={"start_url": "about:blank", "goal": "PLACEHOLDER_GOAL"},
            wait_for_user_message=False,
            headless=True,
            disable_env_checker=True,
            tags_to_mark="all",
            timeout=100000,
            slow_mo=slow_mo,
            pw_context_kwargs={"accept_downloads": True},
            pw_chromium_kwargs={"downloads_path": downloads},
        )
        self.html = html2text.HTML2Text()
        self.html.ignore_images = True
        self.html.body_width = 0
        self.env.reset()

    def step(self, program, return_axtree):
        from browsergym.utils.obs import flatten_axtree_to_str, flatten_dom_to_str, overlay_som

        seen = self.env.step(program)[0]
        properties = seen["extra_element_properties"]
        answer = {
            "url": seen["url"],
            "screenshot": png(seen["screenshot"]),
            "set_of_marks": png(overlay_som(seen["screenshot"], properties)),
            "open_pages_urls": seen["open_pages_urls"],
            "active_page_index": seen["active_page_index"].item(),
            "axtree_object": seen["axtree_object"] if return_axtree else {},
            "extra_element_properties": properties if return_axtree else {},
            "last_browser_action": seen["last_action"],
            "last_browser_action_error": seen["last_action_error"],
            "focused_element_bid": seen["focused_element_bid"],
            "error": seen["last_action_error"] != "",
            "markdown": self.html.handle(flatten_dom_to_str(seen["dom_object"])),
        }
        try:
            answer["tree"] = flatten_axtree_to_str(
                seen["axtree_object"], properties, with_clickable=True, skip_generic=False, filter_visible_only=False
            )
        except Exception as error:
            answer |= {"tree": None, "tree_error": str(error)}
        return answer


def main():
    arguments = argparse.ArgumentParser(usage=__doc__)
    arguments.add_argument("--chromium", default="/usr/bin/chromium-headless-shell")
    arguments.add_argument("--downloads")
    arguments.add_argument("--slow-mo", type=int)  # by default the second that BrowserGym's task asks for
    options = arguments.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries
    logging.getLogger("browsergym").setLevel(logging.ERROR)

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    with tempfile.TemporaryDirectory(prefix="browsergym-") as folder:
        browsers_folder(Path(folder, "browsers"), options.chromium)
        downloads = options.downloads or str(Path(folder, "downloads"))
        original = Original(downloads, options.slow_mo)
        answer({"ready": True})
        for line in sys.stdin:
            request = json.loads(line)
            try:
                if request.get("reset"):
                    original.env.reset()
                    answer({"ready": True})
                else:
                    answer(original.step(request["program"], request.get("return_axtree", False)))
            except Exception as error:
                answer({"raised": str(error)})
        original.env.close()


if __name__ == "__main__":
    main()
