"""usage: drive_browser.py URL [SESSION_KEY]

Drives the browser of a sandbox from outside, over the DevTools protocol at URL: reads the title of the first tab, fills
its input, presses its button, reads its paragraph, and opens a second tab. Prints the title and the paragraph.
"""
import sys

from playwright.sync_api import sync_playwright

url, *key = sys.argv[1:]
headers = {"X-Session-API-Key": key[0]} if key else None
with sync_playwright() as playwright:
    browser = playwright.chromium.connect_over_cdp(url, headers=headers, timeout=60_000)
    context = browser.contexts[0]
    page = context.pages[0]
    page.get_by_role("textbox").fill("from outside")
    page.get_by_role("button").click()
    print(page.title(), page.get_by_role("paragraph").inner_text())
    context.new_page()
