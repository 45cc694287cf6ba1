"""A headless Chromium, driven through its DevTools pipe: no package, no port, no network.

`python tests/chromium.py PAGE FOLDER` photographs a page at 1280 and 390 pixels, light and dark.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # CI is root in a container; the only page it opens is ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
WIDTHS, SCHEMES = (1280, 390), ("light", "dark")


def find():
    """Where Chromium is; None: nowhere."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One browser with one page. `events` holds all that the page reported since it was opened."""

    def __init__(self, seconds=30):
        self.seconds, self.events, self.last, self.buffer = seconds, [], 0, b""
        self.folder = tempfile.mkdtemp(prefix="chromium-")
        (theirs_in, self.into), (self.out, theirs_out) = os.pipe(), os.pipe()
        # Chromium reads from 3 and writes to 4: keep our ends out of the way of these two
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (theirs_in, theirs_out)]
        self.process = subprocess.Popen(
            [find(), *OPTIONS, f"--user-data-dir={self.folder}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": self.folder},  # so that nothing of it stays behind
            close_fds=False,
            preexec_fn=lambda: [os.dup2(fd, number) for fd, number in zip(high, (3, 4), strict=True)],
        )
        for fd in (theirs_in, theirs_out, *high):
            os.close(fd)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=10)
        for fd in (self.into, self.out):
            os.close(fd)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **parameters):
        """Send a command and wait for its answer."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.into, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda said: said.get("id") == self.last)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _until(self, wanted):
        deadline = time.monotonic() + self.seconds
        while True:
            while b"\0" not in self.buffer:
                left = deadline - time.monotonic()
                assert left > 0, f"Chromium said nothing for {self.seconds} s"
                if select.select([self.out], [], [], left)[0]:
                    read = os.read(self.out, 1 << 20)
                    assert read, "Chromium went away"
                    self.buffer += read
            line, _, self.buffer = self.buffer.partition(b"\0")
            said = json.loads(line)
            if "method" in said:
                self.events.append(said)
            if wanted(said):
                return said

    def open(self, path, width, scheme, height=900):
        """Show a file in a viewport of that width, as someone with that colour scheme sees it."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        self._until(lambda said: said.get("method") == "Page.loadEventFired")

    def run(self, script):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
            if key == "Enter":
                event |= {"text": "\r"} if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", **event)

    def complaints(self):
        """What the console and the log said, and what was thrown."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [said["params"] for said in self.events if said["method"] in kinds]

    def requests(self):
        """All that was asked for, but data that the page itself holds."""
        sent = (s["params"] for s in self.events if s["method"] == "Network.requestWillBeSent")
        return [url for url in (s["request"]["url"] for s in sent) if not url.startswith("data:")]

    def photograph(self, whole=True):
        """A PNG of the whole page, or of the viewport."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def print(self):
        """The page on A4, as a PDF."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69}
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, **size)["data"])


if __name__ == "__main__":
    page, folder = sys.argv[1:]
    with Chromium() as browser:
        for width in WIDTHS:
            for scheme in SCHEMES:
                browser.open(page, width, scheme)
                Path(folder, f"{width}-{scheme}.png").write_bytes(browser.photograph())
