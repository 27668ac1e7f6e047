"""Shared code of tests of `shunt report`: makes pages and looks at them in Chromium. The first argument of a program is the path of shunt."""
import html
import json
import re
import shutil
import subprocess
import sys
import unittest

from with_folder import WithFolder

SHUNT = sys.argv.pop(1)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SKIPPED = 77
WIDTHS = [360, 1400]


class ReportCase(WithFolder):
    def write(self, content, name="place.json"):
        with open(self.path(name), "w") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return self.path(name)

    def run_report(self, *arguments):
        return subprocess.run([SHUNT, "report", *arguments], capture_output=True, text=True, timeout=120)

    def page_of(self, content):
        """Makes a page, which must succeed; returns its text."""
        done = self.run_report(self.write(content), "-o", self.path("page.html"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("page.html")) as file:
            return file.read()


# Runs in a copy of the page without the policy against scripts; otherwise the copy is unchanged.
MEASURE = """<script>
const box = element => { const r = element.getBoundingClientRect(); return [r.left + scrollX, r.top + scrollY, r.width, r.height]; };
const boxes = selector => [...document.querySelectorAll(selector)].map(box);
const channels = colour => (colour.match(/[0-9.]+/g) || []).map(Number);
const luminance = rgb => rgb.slice(0, 3).map(c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
const background = element => {
  const own = channels(getComputedStyle(element).backgroundColor);
  return own.length === 3 || own[3] > 0 ? own : background(element.parentElement);
};
const contrast = (element, property) => {
  const colour = getComputedStyle(element)[property || (element instanceof SVGElement ? "fill" : "color")];
  const [low, high] = [luminance(channels(colour)), luminance(background(element))].sort((a, b) => a - b);
  return (high + .05) / (low + .05);
};
const texts = [...document.body.querySelectorAll("*")].filter(e => e.checkVisibility() && !["SCRIPT", "title", "desc"].includes(e.tagName) &&
  [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
const measured = {
  width: innerWidth, height: document.documentElement.scrollHeight, needed: document.documentElement.scrollWidth, text: document.body.innerText,
  charts: boxes("svg.plot"), canvases: boxes("canvas"), heat: boxes("svg.heat image"), bars: [...document.querySelectorAll("svg.plot rect")].map(e => [e.textContent, ...box(e)]),
  limit: boxes(".limit")[0], marks: [...document.querySelectorAll("#c-t-by-layer use")].map(e => [e.textContent, ...box(e)]),
  lines: boxes("#c-t-by-layer polyline"), elements: [...new Set([...document.querySelectorAll("*")].map(e => e.tagName.toLowerCase()))],
  names: [...document.querySelectorAll("svg[role=img]")].map(e => e.getAttribute("aria-labelledby").split(" ").map(id => document.getElementById(id).textContent)),
  dark: matchMedia("(prefers-color-scheme: dark)").matches, series: [...document.querySelectorAll(".legend li")].map(e => contrast(e, "fill")),
  faint: texts.map(e => [contrast(e), e.textContent]).filter(([c]) => c < 4.5), font: Math.min(...texts.filter(e => e.tagName !== "SUB").map(e => parseFloat(getComputedStyle(e).fontSize))),
};
const out = document.createElement("pre");
out.id = "measured";
out.textContent = JSON.stringify(measured);
parent.document.body.append(out);
</script>"""


class PageCase(ReportCase):
    """Checks what Chromium renders. Skipped without Chromium or Python's imaging module."""

    @classmethod
    def setUpClass(cls):
        if not CHROMIUM:
            raise unittest.SkipTest("no Chromium was found (Debian package chromium)")
        try:
            from PIL import Image
        except ImportError:
            raise unittest.SkipTest(f"{sys.executable} has no module PIL (Debian package python3-pil)")
        cls.open_image = staticmethod(Image.open)

    def chromium(self, width, height, dark, *arguments):
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={self.path('profile')}",
                               "--force-device-scale-factor=1", f"--window-size={width},{height}", *scheme, *arguments],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def measure(self, page, width, dark=False, first="", last=MEASURE):
        """What the script `last` puts into an element "measured"; the script `first` runs before the page's."""
        policy = re.search(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", page)[0]
        copied = page.replace(policy, first).replace("</body>", last + "</body>")
        # In a frame, because windows can't be as narrow as phones.
        frame = f'<!DOCTYPE html><body><iframe style="border:0;width:{width}px;height:1000px" srcdoc="{html.escape(copied)}"></iframe></body>'
        dom = self.chromium(1600, 1200, dark, "--dump-dom", "file://" + self.write(frame, "frame.html"))
        return json.loads(html.unescape(re.search(r'<pre id="measured">(.*?)</pre>', dom, re.DOTALL)[1]))

    def screenshot(self, width, height, dark=False):
        self.chromium(width, height, dark, f"--screenshot={self.path('page.png')}", "file://" + self.path("page.html"))
        return self.open_image(self.path("page.png")).convert("RGB")


def main():
    """Prints why tests were skipped; exits with ctest's skip code if all were."""
    result = unittest.main(exit=False).result
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    sys.exit(not result.wasSuccessful() if result.testsRun else SKIPPED)
