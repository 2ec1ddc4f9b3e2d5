# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven by the DevTools protocol over a pipe (no network, no packages)."""
import base64
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
TIMEOUT_S = 60
# A page from a file: its own address and no other one.
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe"]


class Browser:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to 4. Both ends pass through
        # higher numbers, so that neither is overwritten on the way.
        commands, answers = (os.dup2(fd, fd + 100, inheritable=True)
                             for fd in (to_browser, from_browser))
        command = [PROGRAM, *FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash", *command],
            pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, env={**os.environ, "HOME": self.folder.name})
        for fd in (to_browser, from_browser, commands, answers):
            os.close(fd)
        self.ids = itertools.count(1)
        self.buffer = b""
        self.events = []
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.folder.name, ignore_errors=True)
        self.folder._finalizer.detach()

    def receive(self):
        while b"\0" not in self.buffer:
            if not select.select([self.read_end], [], [], TIMEOUT_S)[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self.read_end, 1 << 20)
            if not data:
                raise ConnectionError("the browser ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        call_id = next(self.ids)
        message = {"id": call_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") != call_id:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            return answer["result"]

    def open(self, path, **view):
        return Page(self, "file://" + urllib.parse.quote(os.path.abspath(path)), **view)


class Page:
    """A tab. `complaints` collects console errors, exceptions and requests for anything else."""

    def __init__(self, browser, url, width=1280, height=900, scale=1, dark=False, mobile=False):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target,
                                    flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=mobile)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.url = url
        started = time.monotonic()
        self.call("Page.navigate", url=url)
        self.wait_for("document.documentElement?.dataset.readyMs !== undefined")
        self.open_s = time.monotonic() - started

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:800])
        return answer["result"].get("value")

    def wait_for(self, condition):
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            if self.evaluate(condition):
                return
            time.sleep(0.02)
        raise TimeoutError(f"{condition}: not so after {TIMEOUT_S} s; {self.complaints()}")

    def complaints(self):
        found = []
        for event in self.browser.events:
            params = event.get("params", {})
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"])[:500])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
                found.append(json.dumps(params["args"])[:500])
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
            elif event["method"] == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if url != self.url and not url.startswith(("blob:", "about:")):
                    found.append("requests " + url)
        return found

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" else "")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def box(self, selector):
        """[left, top, width, height] in the window."""
        return self.evaluate(f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
                             ".getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")

    def screenshot(self, path, whole=False):
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as f:
            f.write(base64.b64decode(image["data"]))
