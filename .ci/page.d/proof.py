"""Drives both pages in a browser, and ends with the number of what was checked. See .ci/page."""
import http.server
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from browser import Browser

STRANDLINE, PROGRAM = sys.argv[1:3]
RECORDS = int(os.environ.get("CI_PAGE_RECORDS", "20000"))
# The bounds of times are for this number of records on a machine that does nothing else; with fewer they are only said.
BOUNDED = 1_000_000
SHOTS = os.environ.get("CI_PAGE_SHOTS")
EVIL = "<img src=x onerror=document.title='owned'>"
SCRIPT = "javascript:document.title='owned'"
TURN = "abc\u202egnp.exe\u202c\u200f end"
BIG = 9007199254740993
WORDS = "low tide strand line kelp gull wrack shingle foam drift shell otter skerry ebb flood neap spring swell".split()
checks = 0
pictures = 0
beyond = []
work = tempfile.mkdtemp(prefix="page-proof-")
processes = []


def check(is_true, what, *more):
    global checks
    checks += 1
    if not is_true:
        raise AssertionError(what + ("" if not more else ": " + " ".join(str(m)[:1500] for m in more)))


def say(text):
    print(text, flush=True)


def bound(number, most, unit, what):
    """Says a measure and its bound, and notes what is beyond it where it is bounded: all are said before the proof fails."""
    # Memory takes no longer on a busy machine.
    is_bounded = RECORDS >= BOUNDED or unit == "MB"
    say(f"page: {what}: {number:,.0f} {unit}, of at most {most:,}" + ("" if is_bounded else f" with {BOUNDED:,} records"))
    if is_bounded and number > most:
        beyond.append(f"{what}: {number:,.0f} {unit} instead of {most:,}")


def command(*words, text=None, code=0):
    done = subprocess.run([STRANDLINE, *words], input=text, capture_output=True, text=True)
    if code is not None and done.returncode != code:
        raise AssertionError(f"{words[:3]} ended with {done.returncode}: {done.stderr[:500]}")
    return done


class Page:
    """A command that serves a page."""

    def __init__(self, *words):
        self.process = subprocess.Popen([STRANDLINE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(self.process)
        self.url = self.process.stdout.readline().strip()
        if "?t=" not in self.url:
            self.base = self.url
            self.url = self.process.stdout.readline().split("page ")[1].strip()
        self.base = self.url.split("/?")[0]
        self.port = self.base.rsplit(":", 1)[1]

    def end(self, kill=False):
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(30)
        # What it has said of changes.
        self.said = self.process.stderr.read()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()

    def memory(self):
        """Its resident memory without what only maps files, in MB."""
        with open(f"/proc/{self.process.pid}/status") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["RssAnon"].split()[0]) / 1024


def record(number, chooser):
    fields = {"title": " ".join(chooser.choice(WORDS) for _ in range(4)), "size": chooser.randint(0, 100000),
              "made": {"type": "TIMESTAMP", "value": 1735689600000 + chooser.randint(0, 30000000000)}, "tags": [chooser.choice(WORDS)]}
    line = {"recordType": "Note", "recordName": f"note-{number:07}", "fields": fields}
    if number % 9 == 1:
        line["parent"] = f"folder-{number % 4}"
    return json.dumps(line)


def stores():
    """A server, a device with history, conflicts and a held record, and one with hostile records."""
    server = Page("serve", f"{work}/server")
    sync = ["sync", "--url", server.base, "--container", "iCloud.example"]
    a, b = f"{work}/a", f"{work}/b"
    chooser = random.Random(3)
    lines = [json.dumps({"recordType": "Folder", "recordName": f"folder-{i}", "fields": {"name": WORDS[i]}}) for i in range(4)]
    lines += [record(i, chooser) for i in range(400)]
    hostile = [
        {"recordType": "Evil", "recordName": EVIL, "fields": {"javascript": SCRIPT, "turned": TURN, "html": EVIL, "list": [EVIL, SCRIPT]}},
        {"recordType": "Evil", "recordName": SCRIPT, "parent": EVIL, "fields": {"html": EVIL, "to": {"type": "REFERENCE", "value": {"recordName": EVIL, "action": "NONE"}}}},
        {"recordType": "Evil", "recordName": "in-zone", "zoneName": EVIL, "fields": {"html": EVIL}},
    ]
    hostile += [
        {"recordType": "Dash", "recordName": "-n", "fields": {"big": BIG, "list": [BIG, 1]}},
        {"recordType": "Dash", "recordName": "late", "zoneName": "-z", "fields": {}},
    ]
    lines += [json.dumps(one) for one in hostile]
    command("import", a, "-", text="\n".join(lines) + "\n")
    command(*sync, a)
    command(*sync, b)
    # Both change one field: one of them loses, and both sides are in the history.
    command("put", b, json.dumps({"recordName": "note-0000010", "fields": {"title": "from b"}}))
    command("put", b, json.dumps({"recordName": EVIL, "fields": {"html": EVIL + "b"}}))
    command(*sync, b)
    command("put", a, json.dumps({"recordName": "note-0000010", "fields": {"title": "from a"}}))
    command("put", a, json.dumps({"recordName": EVIL, "fields": {"html": EVIL + "2"}}))
    # The command's put refuses values of another type, and import takes them, as an app's save does.
    for kind, field, name in (("Note", "title", "wrong"), ("Note", "title", "wrong2"), ("Evil", "html", EVIL + "-held")):
        command("import", a, "-", text=json.dumps({"recordType": kind, "recordName": name, "fields": {field: 7}}) + "\n")
    command("delete", a, "note-0000020")
    command(*sync, a, code=1)
    command("put", a, json.dumps({"recordName": "note-0000011", "fields": {"title": EVIL}}))
    return server, a, sync


def visit(browser, page, hash_=""):
    browser.go("about:blank")
    browser.go(page.url)
    browser.wait("document.querySelector('#views a')", what="the page has started")
    check(browser.script("location.search") == "", "the token has left the address")
    check(browser.script("document.cookie") == "", "no script reads the cookie")
    if hash_:
        to(browser, hash_)


def leave(browser, page):
    """Ends a command whose page is shown no more: a page asks for a command that has ended until it is back."""
    browser.go("about:blank")
    page.end()


def to(browser, hash_):
    # The page's own listener comes first, so its questions are asked when this one is called.
    browser.script(f"new Promise(done => {{ addEventListener('hashchange', () => setTimeout(done, 0), {{once: true}}); setTimeout(done, 1000); location.hash = {json.dumps(hash_)}; }})")
    browser.settle()
    browser.wait("!document.querySelector('.loading')", what=f"{hash_} was read")


def quiet(browser, where):
    check(not browser.errors, f"an error of the console in {where}", browser.errors)


def is_text(browser, where, sample=EVIL[:20]):
    """Hostile text is shown as text, and nothing of it has become markup, a link that runs, or a script."""
    quiet(browser, where)
    state = browser.script("""({
      title: document.title, images: [...document.images].filter(i => !i.src.endsWith('/page/icon.svg')).length,
      links: [...document.querySelectorAll('a')].filter(a => !/^https?:$/.test(a.protocol)).length,
      attributes: [...document.querySelectorAll('*')].filter(e => e.getAttributeNames().some(n => n.startsWith('on'))).length,
      elements: document.querySelectorAll('script, iframe, object, embed').length,
      text: document.body.innerText, marks: /[\\u202a-\\u202e\\u2066-\\u2069\\u200f]/.test(document.body.innerText)})""")
    check("owned" not in state["title"].replace(EVIL, ""), f"a script of a record ran in {where}")
    check(state["images"] == 0 and state["links"] == 0 and state["attributes"] == 0 and state["elements"] == 1, f"a record became markup in {where}", {k: v for k, v in state.items() if k != "text"})
    check(not state["marks"], f"a mark that turns text is shown raw in {where}")
    if sample:
        check(sample in state["text"], f"the hostile text is shown in {where}", state["text"][:600])


def shots(browser, name):
    """Three widths in both themes: nothing wider than the window, and a picture to look at, in which there is something."""
    global pictures
    for width in (360, 1024, 1920):
        taken = []
        for theme in ("light", "dark"):
            browser.look(width, 760 if width == 360 else 1000, theme)
            wide = browser.script("document.documentElement.scrollWidth - innerWidth")
            check(wide <= 0, f"{name} is wider than {width} pixels", wide)
            cut = browser.script("[...document.querySelectorAll('.detail .scroll-x')].filter(s => s.checkVisibility() && s.scrollWidth > s.clientWidth).length")
            check(cut == 0, f"a table in the panel of {name} is cut at {width} pixels")
            cut = browser.script("[...document.querySelectorAll('.failed *')].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth).length")
            check(cut == 0, f"what {name} says of a failure is cut at {width} pixels")
            cut = browser.script("[...document.querySelectorAll('td.acts button')].filter(b => b.checkVisibility() && b.getBoundingClientRect().right > b.closest('.scroll-x').getBoundingClientRect().right + 1).map(b => b.textContent)")
            check(cut == [], f"buttons of {name} are out of sight at {width} pixels", cut)
            low = browser.script("[...document.querySelectorAll('.grid')].filter(g => g.checkVisibility() && g.clientHeight < 120).length")
            check(low == 0, f"the table of {name} has no room at {width} pixels")
            picture = browser.screenshot()
            # Width and height are where each PNG has them; one ground without a word is a small file.
            size = struct.unpack("!II", picture[16:24])
            check(size == (width, 760 if width == 360 else 1000) and len(picture) > 4_000, f"the picture of {name} is of the window and has something in it", size, len(picture))
            taken.append(picture)
            pictures += 1
            if SHOTS:
                with open(f"{SHOTS}/{name}-{width}-{theme}.png", "wb") as file:
                    file.write(picture)
        check(taken[0] != taken[1], f"{name} is not the same in both themes at {width} pixels")
    contrast(browser, name)
    labelled(browser, name)
    quiet(browser, name)


def contrast(browser, where):
    """Text against its ground by WCAG: 4.5 at least, in both themes."""
    for theme in ("light", "dark"):
        browser.look(1280, 900, theme)
        worst = browser.script("""(() => {
          const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
          const rgb = (c, under) => { canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)]; };
          const css = (a) => `rgb(${a.join(' ')})`;
          const light = (a) => { const [r, g, b] = a.map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
          const ground = (e) => { const chain = []; for (; e; e = e.parentElement) chain.unshift(getComputedStyle(e).backgroundColor); let c = [255, 255, 255]; for (const one of chain) c = rgb(one, css(c)); return c; };
          let worst = [99, ''];
          for (const e of document.querySelectorAll('body *')) {
            if (!e.checkVisibility() || e.disabled || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
            const g = ground(e), t = rgb(getComputedStyle(e).color, css(g)), [a, b] = [light(g), light(t)].sort((x, y) => y - x), ratio = (a + .05) / (b + .05);
            if (ratio < worst[0]) worst = [ratio, e.className + ': ' + e.textContent.slice(0, 40)];
          }
          let edge = 99;
          for (const e of document.querySelectorAll('input:not([type=checkbox]), select')) {
            if (!e.checkVisibility()) continue;
            const [a, b] = [light(ground(e.parentElement)), light(rgb(getComputedStyle(e).borderTopColor, css(ground(e.parentElement))))].sort((x, y) => y - x);
            edge = Math.min(edge, (a + .05) / (b + .05));
          }
          return [...worst, edge]; })()""")
        check(worst[0] >= 4.5, f"too little contrast in {where}, {theme}", worst)
        check(worst[2] >= 3, f"the edge of an input is hardly seen in {where}, {theme}", worst)
    browser.look(1280)


def labelled(browser, where):
    unnamed = browser.script("""[...document.querySelectorAll('button, input, select, textarea, a, [role=grid], dialog, section, nav')].filter(e => e.checkVisibility()).filter(e => !(
      e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.title || e.labels?.length || e.textContent.trim() || e.placeholder)).map(e => e.outerHTML.slice(0, 120))""")
    check(unnamed == [], f"a reader of the screen finds no name in {where}", unnamed)


def store_views(browser, store):
    page = Page("open", "--no-browser", store)
    visit(browser, page)
    browser.wait("document.querySelectorAll('.grid-row').length > 20")
    views = [
        ("records", "records?type=Note", None), ("evil", "records?type=Evil", EVIL[:20]),
        ("zone", "records?type=Evil&zone=" + quote(EVIL), EVIL[:20]),
        ("filter", "records?type=Evil&where=" + quote("html = " + EVIL), EVIL[:20]),
        ("record", f"records?type=Evil&in=Main&name={quote(EVIL)}", EVIL[:20]),
        ("sync", "sync", EVIL[:20]), ("log", "log", None), ("log-zone", "log?zone=" + quote(EVIL), EVIL[:20]), ("log-record", "log?record=" + quote(EVIL), EVIL[:20]),
        ("space", "space", None),
    ]
    for name, hash_, sample in views:
        to(browser, hash_)
        is_text(browser, name, sample)
        shots(browser, name)
    to(browser, f"records?type=Evil&in=Main&name={quote(EVIL)}")
    browser.wait("document.querySelector('.fields')")
    check("\\u{202e}" in browser.script("document.querySelector('.detail').innerText"), "a mark that turns text is named")
    click(browser, "Find its children")
    browser.wait(f"[...document.querySelectorAll('.chip a')].some(a => a.textContent === {json.dumps(SCRIPT)})", what="its child is found")
    links(browser)
    browser.script("document.querySelector('.detail input[type=checkbox]').click()")
    browser.wait("/by writer [0-9a-f]+/.test(document.querySelector('.detail').innerText)", what="stamps on demand")
    click(browser, "Story")
    browser.wait("document.querySelectorAll('.story li').length > 2", what="the story of a hostile record")
    conflict = browser.script("document.querySelector('[aria-label=\"Who lost\"] tbody').innerText")
    check(EVIL + "b" in conflict and EVIL + "2" in conflict, "a conflict of hostile values", conflict)
    is_text(browser, "story")
    to(browser, "records?type=Note&in=Main&name=note-0000010")
    browser.wait("document.querySelector('.story')?.innerText.includes('from b')")
    story = browser.script("document.querySelector('.detail').innerText")
    for part in ("from a", "from b", "was sent to the server", "lost", "Now: "):
        check(part in story, f"the story of a conflict says '{part}'", story)
    sides = browser.script("[...document.querySelector('[aria-label=\"Who lost\"] tbody tr').cells].map(c => [c.innerText, [...c.querySelectorAll('.was')].some(s => getComputedStyle(s).textDecorationLine === 'line-through')])")
    check(sorted(text for text, _ in sides[1:3]) == ["from a", "from b"] and [lost for _, lost in sides].count(True) == 1, "both values stand at a conflict, and one is crossed out", sides)
    shots(browser, "story")
    click(browser, "Fields")
    to(browser, "sync")
    text = browser.script("document.body.innerText")
    cards = {
        "Held": ["BAD_REQUEST", "3 records", "wrong2", "waits for a person", "tried 1 time"], "Unsent": ["set aside", "is sent with the next sync", "note-0000011", "wrong2"],
        "Zones": ["Main", "in step"], "Requests of the last cycles": ["upload", "fetch", "up to a new change token", "held"],
    }
    for card, parts in cards.items():
        inside = browser.script(f"document.querySelector('[aria-label=\"{card}\"]').innerText")
        for part in parts:
            check(part in inside, f"the card {card} of sync says '{part}'", inside)
    check("Release" not in text and "Discard" not in text, "no verb is offered that is not allowed")
    status = browser.script("""fetch('/api/session').then(r => r.json()).then(s => fetch('/api/run', {method: 'POST', body: 'verb=held&w=retry',
      headers: {'X-Strandline-Token': s.changeToken, 'Content-Type': 'application/x-www-form-urlencoded'}})).then(r => r.text().then(() => r.status))""")
    check(status == 403, "a change that is not allowed is refused", status)
    check("held" in command("status", store).stdout, "and has changed nothing")
    browser.errors.clear()
    compaction(browser, store)
    dashes_and_numbers(browser)
    news(browser, store)
    no_loops(browser)
    states(browser, STORE_STATES)
    doctored(browser)
    keyboard(browser)
    leave(browser, page)
    a_sync(browser)
    say(f"page: the views of a store, {checks} checks")


def links(browser):
    """A record's parent and its references lead to them."""
    def leads(selector):
        browser.wait(f"document.querySelector({json.dumps(selector)})", what=f"a link {selector}")
        return browser.script(f"(a => [a.textContent, ...['in', 'name'].map(n => new URLSearchParams(a.hash.split('?')[1]).get(n))])(document.querySelector({json.dumps(selector)}))")

    parent, reference = ".detail .body > .row a", ".detail .fields td a"
    for selector in (parent, reference):
        to(browser, f"records?type=Evil&in=Main&name={quote(SCRIPT)}")
        check(leads(selector) == [EVIL, "Main", EVIL], "a parent and a reference name what they lead to", leads(selector))
        browser.script(f"document.querySelector({json.dumps(selector)}).click()")
        browser.wait(f"document.querySelector('.detail h1').textContent === {json.dumps(EVIL)} && document.querySelector('.detail .fields')?.innerText.includes('javascript')", what=f"{selector} leads to its record")


def dashes_and_numbers(browser):
    """Names that begin as options do, and numbers that a script would round."""
    to(browser, "records?type=Dash&in=Main&name=-n")
    browser.wait(f"document.querySelector('.fields')?.innerText.includes('{BIG}')", what="a number is shown as it is")
    browser.wait(f"document.querySelector('.grid').innerText.includes('{BIG}')", what="in the table too")
    click(browser, "Story")
    browser.wait(f"document.querySelector('.story')?.innerText.includes('{BIG}')", what="the story of a name that begins with a dash")
    click(browser, "Fields")
    click(browser, "Find its children")
    browser.wait("document.querySelector('.detail').innerText.includes('No record of the zone')", what="it has no children")
    to(browser, "records?type=Dash&where=" + quote(f"big = {BIG}"))
    browser.wait("document.querySelectorAll('.grid-row').length === 1", what="a filter by a large number")
    to(browser, "records?type=Dash&zone=-z&in=-z&name=late")
    browser.wait("document.querySelector('.detail .tag')?.innerText === 'Dash'", what="a record of a zone that begins with a dash")
    quiet(browser, "dashes")


def news(browser, store):
    """What is open stays open, and what is not renewed says so, when something else has changed."""
    to(browser, f"records?type=Evil&in=Main&name={quote(EVIL)}")
    click(browser, "Find its children")
    browser.wait("document.querySelector('.chip a')", what="its children")
    browser.script("document.querySelector('.detail h1').id = 'same'")
    kept = "document.querySelector('.detail').innerText.includes('Children')"
    command("put", store, json.dumps({"recordType": "Folder", "recordName": "folder-new", "fields": {"name": "new"}}))
    browser.wait("[...document.querySelectorAll('.side a')].some(a => a.innerText.includes('Folder') && a.innerText.includes('5'))", what="the counts are renewed")
    browser.settle()
    check(browser.script(kept), "the children stay")
    click(browser, "Story")
    browser.wait("document.querySelector('.story li')")
    browser.script("document.querySelector('[role=tab][data-name=story]').focus()")
    command("delete", store, "folder-new")
    browser.wait("document.querySelector('.detail').innerText.includes('newer events than this story')", what="a story says that it is not renewed")
    browser.press("ArrowLeft")
    browser.wait("document.querySelector('.detail .fields') && document.activeElement.dataset.name === 'fields'", what="the arrows go from tab to tab, and the focus stays")
    # A skip link is no view.
    to(browser, "records?type=Note&where=" + quote("size >= 5"))
    browser.script("document.querySelector('.skip').click()")
    browser.settle()
    check(browser.script("location.hash.includes('where=') && document.activeElement.id === 'main' && Boolean(document.querySelector('.filter'))"), "the link to the content keeps the view")
    # Rows that are scrolled away from.
    to(browser, "records?type=Note")
    browser.wait("document.querySelectorAll('.grid-row').length > 20")
    browser.script("document.querySelector('.grid').scrollTop = 4000")
    browser.settle()
    # The command says every ten seconds that it is there.
    browser.listen(11)
    check("Something has changed" not in browser.script("document.querySelector('.notes').innerText"), "nothing is said to have changed that has not")
    # A deleted name takes no save: each attempt has its own.
    for attempt in range(3):
        browser.script("document.querySelector('.grid').scrollTop = 4000")
        browser.settle()
        command("put", store, json.dumps({"recordType": "Note", "recordName": f"a-first-{attempt}", "fields": {"size": 1, "newfield": "x"}}))
        browser.wait("document.querySelector('.notes').innerText.includes('Something has changed since')", what="a table that is not renewed says so")
        browser.script("document.querySelector('.grid').scrollTop = 0")
        try:
            browser.wait("document.querySelector('.grid-head').innerText.includes('newfield') && document.querySelector('.grid-row').innerText.includes('a-first') && !document.querySelector('.notes').innerText.includes('Something has changed')", 15, what="it is renewed at its beginning, with a column more")
            break
        except AssertionError:
            # A table that was read slowly, as on a busy machine, waits until it is told to read again.
            if attempt == 2:
                raise
            command("delete", store, f"a-first-{attempt}")
            click(browser, "Read again")
            browser.wait("!document.querySelector('.grid').innerText.includes('a-first') && !document.querySelector('.notes').innerText.includes('Something has changed')")
    command("delete", store, f"a-first-{attempt}")
    # The focus of what is closed or drawn again.
    browser.wait("!document.querySelector('.grid').innerText.includes('a-first')")
    browser.script("[...document.querySelectorAll('.grid-head button')].find(b => b.textContent.includes('size')).focus()")
    browser.press("Enter")
    browser.wait("document.querySelector('[aria-sort=ascending]') && document.activeElement.textContent === 'size ↑'", what="the focus stays at a head that sorts")
    sizes = sorted(json.loads(line)["fields"].get("size") or 0 for line in command("query", "--json", "--limit", "1000", store, "Note").stdout.splitlines() if '"fields"' in line)
    sizes = [size for size in sizes if size]
    browser.settle()
    values = column(browser, "size")
    check(len(values) > 15 and values == sizes[:len(values)], "the rows are in the order of the column, from the smallest", values)
    browser.press("Enter")
    browser.wait("document.querySelector('[aria-sort=descending]')", what="a second click turns the order")
    browser.settle()
    values = column(browser, "size")
    check(len(values) > 15 and values == sizes[::-1][:len(values)], "and from the largest", values)
    to(browser, "log")
    browser.wait("document.querySelectorAll('.grid-row').length > 20")
    browser.script("document.querySelector('.grid-row').click()")
    browser.wait("!document.querySelector('.detail').hidden")
    browser.script("document.querySelector('.detail header button').focus()")
    browser.press("Enter")
    browser.wait("document.querySelector('.detail').hidden && document.activeElement.classList.contains('grid')", what="the focus goes back to the table")
    to(browser, "log?kind=deleted")
    browser.wait("document.querySelector('.grid-row time')", what="times of events")
    local_times(browser)
    quiet(browser, "news")
    live_log(browser, store)
    # More rows than an element may be high.
    last = browser.script("""(async () => {
      const { Grid } = await import('/page/grid.js');
      const grid = new Grid('Many', { open: () => {} });
      grid.node.style.height = '300px';
      document.getElementById('main').replaceChildren(grid.node);
      grid.setColumns([{ name: 'n', width: 9, cell: (row) => String(row.n) }]);
      const rows = new Map();
      grid.setRows({ length: 2_000_000, at: (n) => rows.get(n) ?? rows.set(n, { n }).get(n), near: () => {} });
      const seen = async (top) => { grid.node.scrollTop = top; await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame);
        const box = grid.node.getBoundingClientRect(); return [...grid.node.querySelectorAll('.grid-row')].filter(r => { const b = r.getBoundingClientRect(); return b.top >= box.top - 1 && b.bottom <= box.bottom + 1; }).map(r => Number(r.textContent)); };
      const out = { height: grid.body.offsetHeight, first: (await seen(0))[0], middle: (await seen(7_500_000)).length, last: (await seen(1e9)).at(-1) };
      grid.choose(1_234_567);
      out.chosen = (await seen(grid.node.scrollTop)).includes(1_234_567);
      return out; })()""")
    check(last["height"] <= 15_000_000 and last["first"] == 0 and last["last"] == 1_999_999 and last["middle"] >= 9 and last["chosen"], "two million rows are reached", last)
    to(browser, "sync")


def local_times(browser):
    """Times are of the machine's zone, with UTC on hover."""
    shown, title, moment = browser.script("(t => [t.innerText, t.title, t.getAttribute('datetime')])(document.querySelector('.grid-row time'))")
    check(title == moment + " (UTC)" and moment.endswith("Z"), "UTC on hover", title, moment)
    local = datetime.fromisoformat(moment.replace("Z", "+00:00")) + timedelta(hours=5, minutes=30)
    check(" ".join(shown.split()) == local.strftime("%m/%d/%Y, %I:%M:%S %p"), "the time of the machine's zone", shown, moment)


def live_log(browser, store):
    """The log goes on while answers are awaited, and reads no window twice."""
    to(browser, "log")
    browser.wait("document.querySelectorAll('.grid-row').length > 20")
    browser.hold()
    for name in ("meanwhile-1", "meanwhile-2"):
        command("put", store, json.dumps({"recordType": "Folder", "recordName": name, "fields": {"name": "x"}}))
        browser.listen(0.8)
    browser.release()
    browser.wait("document.querySelector('.grid').innerText.includes('meanwhile-1') && document.querySelector('.grid').innerText.includes('meanwhile-2')", 10, what="what came while an answer was awaited is shown")
    to(browser, "log?record=nobody")
    browser.requests.clear()
    for name in ("meanwhile-1", "meanwhile-2"):
        command("delete", store, name)
        browser.listen(0.8)
    browser.settle()
    windows = [tuple(int(n) for n in re.findall(r"w=--(?:from|to)&w=(\d+)", url)) for url in browser.requests if "verb=log-dump" in url]
    check(len(windows) >= 2 and all(before[1] <= after[0] for before, after in zip(windows, windows[1:])) and all(b - a <= 2_000 for a, b in windows), "a filter that nothing meets reads on, in windows", windows)
    quiet(browser, "the live log")


def no_loops(browser):
    """A page that fails, or that is empty against its cursor, is not asked for again and again."""
    def asked():
        browser.settle()
        before = len([url for url in browser.requests if "verb=query" in url])
        browser.listen(1.5)
        return len([url for url in browser.requests if "verb=query" in url]) - before

    to(browser, "sync")
    browser.change(lambda body: re.sub(r'"lines":.*,"notes"', '"lines":[{"unreadable":[]}],"notes"', body) if " --limit 200 --after " in body else body)
    to(browser, "records?type=Note")
    browser.wait("document.querySelectorAll('.grid-row').length > 20")
    browser.script("document.querySelector('.grid').scrollTop = 1e6")
    check(asked() < 2, "an empty last page is asked for once")
    check(browser.script("document.querySelector('.where').textContent.endsWith('of 200')"), "it is the end")
    to(browser, "sync")
    browser.change(lambda body: body[:9] if " --limit 200 --after " in body else body)
    to(browser, "records?type=Note")
    browser.wait("document.querySelector('.note.bad button')", what="a page that fails")
    check(asked() < 2, "a page that fails is not asked for again")
    # It was in sight and was let go.
    browser.change(None)
    click(browser, "Try again")
    browser.wait("document.querySelector('.where').textContent.endsWith('of 402') || document.querySelector('.where').textContent.endsWith('of 401')", what=browser.script("document.querySelector('.where').textContent"))
    browser.errors.clear()


def compaction(browser, store):
    """What a compaction would free, as the command says it."""
    to(browser, "space")
    click(browser, "Work it out")
    browser.wait("document.querySelector('[aria-label=Compaction] .bar') && document.querySelector('[aria-label=Compaction] .says')", 120, what="what a compaction would free")
    said = json.loads(command("compact", "--dry-run", "--history", "latest", "--json", store).stdout)
    check(said["eventsDropped"] > 10, "a store that has synced has events that may go", said)
    text = browser.script("document.querySelector('[aria-label=Compaction]').innerText")
    check("Now 0 events would go" in text and f"and {said['eventsDropped']:,} if no history were kept" in text, "the page says the same", text, said)
    bar = browser.script("document.querySelector('[aria-label=Compaction] .bar').getAttribute('aria-label')")
    check("goes once it is 30 days old" in bar and "stays" in bar, "the picture has the parts", bar)
    status = json.loads(command("status", "--json", store).stdout)
    sizes = browser.script(f"import('/page/parts.js').then(parts => [parts.bytes({status['logBytes']}), parts.bytes(12345678901), parts.count({status['durableLSN']})])")
    check(sizes[0] in command("status", store).stdout and sizes[1] == "12,345 MB" and sizes[2] == f"{status['durableLSN']:,}", "sizes and counts are as in the command", sizes)
    shots(browser, "compaction")


STORE_STATES = [("records?type=Folder", "records", "sync"), ("sync", "sync", "space"), ("log?kind=saved", "log", "sync"), ("space", "space", "sync")]
SERVER_STATES = [("data", "data", "faults"), ("requests", "requests", "faults"), ("faults", "faults", "data"), ("log", "journal", "faults")]


def states(browser, views):
    """What is shown while an answer is awaited, and when it fails."""
    for view, name, other in views:
        to(browser, other)
        browser.hold()
        browser.script(f"location.hash = {json.dumps(view)}")
        browser.wait("[...document.querySelectorAll('.loading')].some(e => e.getAttribute('role') === 'status' && e.checkVisibility())", what=f"{name} says that it is read")
        check(browser.script("document.querySelector('.spin') && document.getAnimations().length") == 0, "nothing moves for a reader who wants less motion")
        shots(browser, f"loading-{name}")
        browser.release()
        browser.settle()
        browser.wait("!document.querySelector('.loading')", what=f"{name} was read")
        to(browser, other)
        browser.change(lambda body: body[:9])
        browser.script(f"location.hash = {json.dumps(view)}")
        browser.wait("[...document.querySelectorAll('.failed[role=alert], .note.bad')].some(e => e.innerText.includes('cut off'))", what=f"{name} says that it failed")
        shots(browser, f"failed-{name}")
        browser.change(None)
        click(browser, "Try again")
        browser.settle()
        browser.wait("!document.querySelector('.failed') && !document.body.innerText.includes('cut off')", what=f"{name} is read again")
        quiet(browser, f"the states of {name}")


def a_sync(browser):
    """A sync of another process, as far as its log tells."""
    server = Page("serve", "--latency", "600", f"{work}/slow")
    store = f"{work}/syncing"
    chooser = random.Random(11)
    command("import", store, "-", text="\n".join(record(number, chooser) for number in range(900) if number % 9 != 1) + "\n")
    page = Page("open", "--no-browser", store)
    visit(browser, page, "sync")
    state = "document.querySelector('[aria-label=State] .note').innerText"
    browser.wait(f"{state}.includes('No app has the store open, so no sync runs')", what="no sync runs")
    syncing = subprocess.Popen([STRANDLINE, "sync", "--url", server.base, "--container", "iCloud.example", store], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    processes.append(syncing)
    browser.wait(f"/A sync is under way, and (sends|waits for an answer): [0-9,]+ changes sent, [0-9,]+ answered;.* [0-9,]+ changes? still unsent/.test({state})", 60, what="a sync is under way")
    check(browser.script("document.querySelector('[aria-label=State] progress')?.max") == 800, "its progress has a measure", browser.script(state))
    shots(browser, "syncing")
    check(syncing.wait(120) == 0, "the sync ends")
    browser.wait(f"{state}.includes('no sync runs') && document.body.innerText.includes('everything is at the server')", 60, what="the sync has ended")
    rows = browser.script("[...document.querySelectorAll('[aria-label=Requests] tbody tr')].map(r => [...r.cells].map(c => c.innerText))")
    sent = [row for row in rows if row[1] == "upload"]
    answered = sum(int(row[4].split()[0].replace(",", "")) for row in sent if row[4].endswith(" saved"))
    check(sent and all(row[2] == "Main" for row in sent) and answered == 800, "each request stands with its outcome", rows)
    check("without durations: the log has no times of requests" in browser.script("document.body.innerText"), "and the page says why it has no duration")
    quiet(browser, "a sync")
    leave(browser, page)
    server.end()
    countdown(browser)


def countdown(browser):
    """A server that asks to wait: the time counts down, second by second, and its end is seen without any event."""
    server = Page("serve", "--throttle", "9:16", f"{work}/throttled")
    store = f"{work}/waiting"
    command("put", store, json.dumps({"recordType": "Note", "recordName": "n", "fields": {"size": 1}}))
    syncing = subprocess.Popen([STRANDLINE, "sync", "--url", server.base, "--container", "iCloud.example", store], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    processes.append(syncing)
    page = Page("open", "--no-browser", store)
    visit(browser, page, "sync")
    wait = "Number(/must not be asked for\\s+([0-9]+) s/.exec(document.querySelector('.note.warn:not([hidden])')?.innerText)?.[1])"
    browser.wait(f"{wait} > 6", 60, what="a throttle is said")
    syncing.kill()
    syncing.wait()
    browser.wait("document.querySelector('[aria-label=State] .facts').innerText.includes('waits')", what="the phase says that it waits")
    status = json.loads(command("status", "--json", store).stdout)
    left, begun = browser.script(wait), time.monotonic()
    check(abs(status["waitMilliseconds"] / 1000 - left) < 3 and status["waitReason"] in browser.script("document.querySelector('.note.warn').innerText"), "the page says what the command says", left, status)
    seen = [(0.0, left)]
    while (now := browser.script(f"document.querySelector('.note.warn:not([hidden])') ? {wait} : null")) is not None and time.monotonic() - begun < 60:
        seen.append((time.monotonic() - begun, now))
        browser.listen(0.2)
    check(all(abs(left - after - number) < 2 for after, number in seen), "it counts down with the clock", seen)
    check({number for _, number in seen} >= set(range(1, int(left))), "second by second", seen)
    check(time.monotonic() - begun < left + 4, "and is gone when it is over", time.monotonic() - begun, left)
    check("waits" not in browser.script("document.querySelector('[aria-label=State] .facts').innerText"), "then the phase is another one")
    quiet(browser, "a throttle")
    leave(browser, page)
    server.end()


def doctored(browser):
    """Types and fields of names that no store of ours takes: in answers that are changed on their way."""
    browser.change(lambda body: body.replace('"type":"Folder"', '"type":' + json.dumps(EVIL + TURN)).replace('"recordType":"Evil"', '"recordType":' + json.dumps(SCRIPT + TURN)).replace('"html":', json.dumps(EVIL + TURN) + ":").replace('"code":"BAD_REQUEST"', '"code":' + json.dumps(EVIL + TURN)))
    to(browser, "sync")
    browser.wait("document.querySelector('[aria-label=Held]').innerText.includes('<img src=x')", what="a hostile code")
    is_text(browser, "a hostile code")
    to(browser, "records?type=Evil&name=" + quote(EVIL) + "&in=Main")
    browser.wait("document.querySelector('.grid-head').innerText.includes('<img src=x') && document.querySelector('.side').innerText.includes('<img src=x') && document.querySelector('.fields')?.innerText.includes('<img src=x')", what="hostile names of types and fields")
    is_text(browser, "doctored names")
    # The log of a story that cannot be read to its end.
    def cut(body):
        answer = json.loads(body)
        if " why " in answer["command"]:
            answer.update(lines=answer["lines"][:-1], notes=["error: made up by the proof"], code=65)
        return json.dumps(answer)

    browser.change(cut)
    to(browser, "sync")
    to(browser, "records?type=Note&in=Main&name=note-0000010")
    click(browser, "Story")
    browser.wait("document.querySelector('.detail .note.bad')?.innerText.includes('made up by the proof') && document.querySelectorAll('.story li').length > 2", what="a story that is not whole says so")
    check("Now:" not in browser.script("document.querySelector('.detail').innerText"), "and tells of no state")
    click(browser, "Fields")
    # Records so large that 200 are too many.
    browser.change(lambda body: re.sub(r'"isCut":false,"lines":.*', '"isCut":true,"lines":[],"notes":["error: the answer is larger than a page can show"]}', body) if " --limit 200" in body else body)
    to(browser, "sync")
    to(browser, "records?type=Note")
    browser.wait("document.querySelectorAll('.grid-row').length > 20 && document.querySelector('.says code').textContent.includes('--limit 20')", what="large records are shown by smaller pages")
    browser.change(None)
    browser.errors.clear()


def column(browser, name):
    """The numbers of a column in the rows in sight; a record without the field is left out."""
    cells = browser.script(f"""(at => [...document.querySelectorAll('.grid-row')].sort((a, b) => a.dataset.at - b.dataset.at).map(r => r.children[at].textContent))(
      [...document.querySelectorAll('.grid-head .cell')].findIndex(c => c.textContent.split(' ')[0] === {json.dumps(name)}))""")
    return [int(cell) for cell in cells if cell.isdigit()]


def keyboard(browser):
    to(browser, "records?type=Note")
    browser.wait("document.querySelectorAll('.grid-row').length > 20")
    browser.script("document.activeElement.blur()")
    browser.press("/")
    check(browser.script("document.activeElement.type") == "search", "/ goes to the filter")
    browser.call("Input.insertText", text="size >= 50000")
    browser.press("Enter")
    browser.wait("document.querySelector('.filter') && !document.querySelector('.loading') && document.querySelector('.says code').textContent.includes('size >= 50000')", what="a condition by the keyboard")
    values = column(browser, "size")
    check(len(values) > 20 and all(value >= 50_000 for value in values), "the filter finds what it says, and no other", values)
    browser.script("document.querySelector('.grid').focus()")
    for key in ("j", "ArrowDown", "k", "ArrowDown", "Enter"):
        browser.press(key)
    browser.wait("!document.querySelector('.detail').hidden && document.querySelector('.fields')", what="Enter opens the row")
    browser.press("Escape")
    browser.wait("document.querySelector('.detail').hidden", what="Escape closes the record")
    browser.press("3")
    browser.wait("location.hash === '#log'", what="3 goes to the log")
    browser.press("?")
    browser.wait("document.querySelector('dialog[open]')", what="? shows the keys")
    shots(browser, "keys")
    browser.press("Escape")
    browser.wait("!document.querySelector('dialog[open]')")
    theme = "getComputedStyle(document.body).backgroundColor"
    before = browser.script(theme)
    browser.press("t")
    check(browser.script(theme) != before, "t switches the theme")
    browser.press("t")
    quiet(browser, "keys")


def quote(text):
    from urllib.parse import quote as quoted
    return quoted(text, safe="")


def click(browser, text, within="document"):
    browser.wait(f"[...{within}.querySelectorAll('button')].some(b => b.textContent === {json.dumps(text)})", what=f"the button '{text}'")
    browser.script(f"[...{within}.querySelectorAll('button')].find(b => b.textContent === {json.dumps(text)}).click()")


def changes(browser, server, store, sync):
    """A verb with leave, while another process writes, and after it."""
    page = Page("open", "--no-browser", "--allow-changes", store)
    visit(browser, page, "sync")
    held = "[...document.querySelectorAll('[aria-label=Held] a')].map(a => a.textContent)"
    check(sorted(browser.script(held)) == [EVIL + "-held", "wrong", "wrong2"], "three records are held", browser.script(held))
    whole_verbs(browser, server, store, sync)
    # What a record is called is text in a question too.
    row = f"[...document.querySelectorAll('[aria-label=Held] tr')].find(r => r.innerText.includes('-held'))"
    browser.script(f"[...{row}.querySelectorAll('button')].find(b => b.textContent === 'Discard').click()")
    browser.wait("document.querySelector('dialog[open]')?.innerText.includes('<img src=x')", what="a hostile name in a question")
    is_text(browser, "a question")
    shots(browser, "question")
    click(browser, "Leave it")
    # The focus stays at its record when one before it is gone.
    browser.script("[...[...document.querySelectorAll('[aria-label=Held] tr')].find(r => r.cells[0].innerText === 'wrong2').querySelectorAll('button')].find(b => b.textContent === 'Release').focus()")
    command("held", store, "discard", EVIL + "-held")
    browser.wait(f"({held}).length === 2", what="it is given up")
    browser.settle()
    check(browser.script("document.activeElement.textContent + document.activeElement.closest('tr')?.cells[0].innerText") == "Releasewrong2", "the focus stays at a record's button")
    writer = subprocess.Popen([STRANDLINE, "import", "--batch", "1", "--acks", store, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    processes.append(writer)
    writer.stdin.write(json.dumps({"recordType": "Note", "recordName": "by-writer", "fields": {"size": 1}}) + "\n")
    writer.stdin.flush()
    writer.stdout.readline()
    click(browser, "Release")
    browser.wait("document.querySelector('dialog[open]')?.innerText.includes('1 record')", what="a question with a number")
    click(browser, "Release", "document.querySelector('dialog[open]')")
    browser.wait("document.querySelector('.toast')?.innerText.includes('the same command when the other process has ended')", what="a sentence on the other process")
    check(len(browser.script(held)) == 2, "nothing was changed meanwhile")
    browser.change(lambda body: body.replace("error: cannot open", "error: " + json.dumps(EVIL + TURN)[1:-1] + " cannot open"))
    click(browser, "Release")
    click(browser, "Release", "document.querySelector('dialog[open]')")
    browser.wait("[...document.querySelectorAll('.toast')].some(t => t.innerText.includes('<img src=x'))", what="a hostile sentence in a message")
    is_text(browser, "a message")
    contrast(browser, "a message")
    browser.change(None)
    writer.stdin.close()
    writer.wait(60)
    confirmed_by_keys(browser, held)
    click(browser, "Discard")
    click(browser, "Discard", "document.querySelector('dialog[open]')")
    browser.wait("document.querySelector('[aria-label=Held]').innerText.includes('Nothing is set aside')", what="the other one is given up")
    check(command("held", store).stdout == "", "the store says the same")
    quiet(browser, "changes")
    leave(browser, page)
    say(f"page: changes with leave, {checks} checks")


def confirmed_by_keys(browser, held):
    """A held record is released with the keyboard alone, after it was left once."""
    focused = "document.activeElement?.textContent"
    browser.script("document.querySelector('[data-view=sync]').focus()")
    name = browser.script(held)[0]
    browser.tab_to("e.textContent === 'Release' && e.closest('[aria-label=Held]')", "Release")
    check(browser.script("document.activeElement.closest('tr').cells[0].innerText") == name, "the first button is of the first record")
    browser.press("Enter")
    browser.wait(f"document.querySelector('dialog[open]') && {focused} === 'Leave it'", what="a question begins at what changes nothing")
    browser.press("Enter")
    browser.wait(f"!document.querySelector('dialog[open]') && {focused} === 'Release'", what="the focus is back at the button")
    browser.press("Enter")
    browser.wait("document.querySelector('dialog[open]')")
    browser.press("Escape")
    browser.wait(f"!document.querySelector('dialog[open]') && {focused} === 'Release'", what="Escape leaves it too")
    check(len(browser.script(held)) == 2, "whoever leaves it changes nothing")
    browser.press("Enter")
    browser.wait("document.querySelector('dialog[open]')")
    browser.tab_to("e.textContent === 'Release' && e.closest('dialog')", "the verb of the question", 4)
    browser.press("Enter")
    browser.wait(f"({held}).length === 1 && !({held}).includes({json.dumps(name)})", what="one is released")


def agree(browser, title, part, row=""):
    """Clicks a button, reads its question, and agrees."""
    where = f"[...document.querySelectorAll('tr')].find(r => r.cells[0].innerText === {json.dumps(row)})" if row else "document"
    click(browser, title, where)
    browser.wait(f"document.querySelector('dialog[open]')?.innerText.includes({json.dumps(part)})", what=f"the question of {title}")
    click(browser, title, "document.querySelector('dialog[open]')")
    browser.wait("!document.querySelector('dialog[open]')")
    browser.settle()


def many_held(browser):
    """More held and pending records than are shown at once; and a page that is closed in the middle of a change."""
    server = Page("serve", f"{work}/many-server")
    sync = ["sync", "--url", server.base, "--container", "iCloud.example"]
    command("put", f"{work}/first", json.dumps({"recordType": "Note", "recordName": "n", "fields": {"title": "text"}}))
    command(*sync, f"{work}/first")
    store = f"{work}/many"
    wrong = [f"wrong {i:03}" for i in range(260)]
    lines = [json.dumps({"recordType": "Note", "recordName": name, "fields": {"title": value}}) for i, one in enumerate(wrong) for name, value in ((one, 7), (f"good-{i}", "x"))]
    command("import", store, "-", text="\n".join(lines) + "\n")
    command(*sync, store, code=1)
    command("import", store, "-", text="\n".join(json.dumps({"recordType": "Note", "recordName": f"late-{i}", "fields": {"title": "x"}}) for i in range(600)) + "\n")
    page = Page("open", "--no-browser", "--allow-changes", store)
    visit(browser, page, "sync")
    card = "document.querySelector('[aria-label=Held]')"
    names = f"[...{card}.querySelectorAll('tbody tr')].map(r => r.cells[0].innerText)"
    seen = []
    for number in (1, 2, 3):
        browser.wait(f"{card}.innerText.includes('page {number} of 3')", what=f"page {number} of the held records")
        check("260 records" in browser.script(f"{card}.innerText") and browser.script("document.querySelector('[data-view=sync] .badge').textContent") == "260", "all are counted")
        seen += browser.script(names)
        check(browser.script(f"[...{card}.querySelectorAll('button')].some(b => b.textContent === 'Next')") == (number < 3), "there is a next page, but behind the last")
        if number == 2:
            shots(browser, "held")
        if number < 3:
            click(browser, "Next", card)
    check(seen == wrong, "the pages have each record once", len(seen))
    click(browser, "Previous", card)
    browser.wait(f"{card}.innerText.includes('page 2 of 3') && {names}[0] === 'wrong 100'", what="the page before")
    click(browser, "Next", card)
    browser.wait(f"{card}.innerText.includes('page 3 of 3')")
    command("held", store, "discard", *wrong[200:])
    browser.wait(f"{card}.innerText.includes('page 1 of 2') && {names}[0] === 'wrong 000'", what="of a page that is gone the first one")
    pending = "document.querySelector('[aria-label=Unsent]')"
    browser.wait(f"{pending}.innerText.includes('the oldest 500 of 800')", what="the list of pending says what it leaves out")
    check("200 of these 500" in browser.script(f"{pending}.innerText") and "300 of these 500" in browser.script(f"{pending}.innerText"), "and that its numbers are of those")
    click(browser, "Count all of them", pending)
    table = "[...document.querySelectorAll('[aria-label=\"All that is unsent\"] tbody tr')].map(r => r.innerText.split('\\t'))"
    browser.wait(f"({table}).length === 2", what="all are counted by obstacle")
    said = [json.loads(line) for line in command("pending", "--count", "--json", store).stdout.splitlines()]
    check([row[1] for row in browser.script(table)] == [f"{one['count']:,}" for one in said] == ["600", "200"], "as the command counts them", browser.script(table), said)
    shots(browser, "pending")
    # Closed before the answer comes: what was begun is done, and the command says so where the page cannot.
    browser.hold()
    browser.script(f"[...{card}.querySelectorAll('button')].find(b => b.textContent === 'Release').click()")
    browser.wait("document.querySelector('dialog[open]')?.innerText.includes('goes on to its end, also if this page is closed')", what="the question says what a closed page means")
    browser.script("[...document.querySelectorAll('dialog[open] button')].find(b => b.textContent === 'Release').click()")
    end = time.monotonic() + 30
    while not any(one["request"]["method"] == "POST" for one in browser.kept) and time.monotonic() < end:
        browser.listen(0.1)
    check(any(one["request"]["method"] == "POST" for one in browser.kept), "the change is asked for, and its answer kept back")
    leave(browser, page)
    browser.drop()
    check(json.loads(command("held", "--count", "--json", store).stdout)["count"] == 199, "the change was made to its end")
    check("note: the page has done: strandline held" in page.said and "release 'wrong 000'" in page.said, "and the command has said so", page.said)
    browser.errors.clear()
    server.end()
    say(f"page: many held and pending records, {checks} checks")


def whole_verbs(browser, server, store, sync):
    """What is about all held records, or about a zone."""
    agree(browser, "Retry all", "3 held records")
    browser.wait("document.querySelector('[aria-label=Held]').innerText.includes('Nothing is set aside')", what="all are retried")
    command(*sync, store, code=1)
    browser.wait("document.querySelectorAll('[aria-label=Held] a').length === 3", what="the server refuses them again")
    for title, kind, word in (("Resync from server", "resync-from-server", "removes here"), ("Resync from here", "resync-from-here", "uploads again")):
        before = len(command("log-dump", "--kind", "zoneChanged", store).stdout)
        agree(browser, title, word, "Main")
        check(len(command("log-dump", "--kind", "zoneChanged", store).stdout) > before, f"{title} is in the log")
    command(*sync, store, code=1)
    # A zone that the server has no more.
    body = {"operations": [{"operationType": "delete", "zone": {"zoneID": {"zoneName": "-z"}}}]}
    check(request(server, "/database/1/iCloud.example/development/private/zones/modify", body)[0] == 200, "the server deletes a zone")
    command(*sync, store, code=None)
    browser.wait("document.querySelector('[aria-label=Zones]').innerText.includes('lost')", what="a lost zone is said")
    agree(browser, "Resume", "fetches the zone from its beginning", "-z")
    browser.wait("!document.querySelector('[aria-label=Zones]').innerText.includes('lost')", what="it is resumed")
    quiet(browser, "verbs of all")


def live_and_large(browser):
    """Many records; live updates while more are imported; scrolling to the end."""
    store = f"{work}/large"
    chooser = random.Random(7)
    with open(f"{work}/large.jsonl", "w") as file:
        for number in range(RECORDS):
            file.write(record(number, chooser) + "\n")
    command("import", store, f"{work}/large.jsonl")
    command("put", store, json.dumps({"recordType": "Folder", "recordName": "folder-1", "fields": {"name": "one"}}))
    page = Page("open", "--no-browser", store)
    browser.requests.clear()
    # When the first rows stand in the table, counted from the request for the page.
    watching = browser.call("Page.addScriptToEvaluateOnNewDocument", source="""new MutationObserver((_, watcher) => {
      if (document.querySelector('.grid-row a')) { window.firstRows = performance.now(); watcher.disconnect(); } }).observe(document, {childList: true, subtree: true});""")["identifier"]
    visit(browser, page)
    browser.wait("window.firstRows && document.querySelectorAll('.grid-row').length > 20")
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=watching)
    bound(browser.script("window.firstRows"), 300, "ms", "the first rows after the request")
    first = browser.script("""({bytes: performance.getEntriesByType('resource').reduce((n, e) => n + e.transferSize, 0) + performance.getEntriesByType('navigation')[0].transferSize,
      ms: performance.getEntriesByType('resource').filter(e => e.name.includes('verb=query')).map(e => e.responseEnd)[0]})""")
    check(first["bytes"] < 1_000_000, "the first view is under 1 MB", first)
    pages = browser.script("""(async () => {
      const { run } = await import('/page/parts.js'), times = [];
      for (let cursor, number = 0; number < 30; number++) {
        const begun = performance.now();
        const { lines } = await run('query', ['Note', '--limit', '100', ...(cursor ? ['--after', cursor] : [])]);
        times.push(performance.now() - begun);
        cursor = lines.at(-1).cursor;
      }
      return times.sort((a, b) => a - b); })()""")
    bound(pages[15], 50, "ms", f"a page of 100 records, median of 30 (the slowest {pages[-1]:.0f} ms)")
    check(all(url.startswith(page.base) or url.startswith("about:") or url.startswith("data:") for url in browser.requests), "no outside resource", browser.requests)
    # As long as a million take at a hundred rows a frame, and more.
    seconds = 280 + RECORDS // 1_000
    browser.patience = seconds + 20
    scroll = browser.script(f"""(async () => {{
      const grid = document.querySelector('.grid');
      let last = performance.now(), longest = 0, most = 0, seen = 0;
      const end = performance.now() + {seconds} * 1_000;
      while (performance.now() < end) {{
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        longest = Math.max(longest, now - last); last = now;
        most = Math.max(most, document.querySelectorAll('.grid-row').length);
        if ([...document.querySelectorAll('.grid-row')].at(-1)?.firstChild.textContent === 'note-{RECORDS - 1:07}') break;
        grid.scrollTop += 2_600;
      }}
      await new Promise(done => setTimeout(done, 300));
      const queries = performance.getEntriesByType('resource').filter(e => e.name.includes('verb=query')).map(e => e.duration).sort((a, b) => a - b);
      return {{last: [...document.querySelectorAll('.grid-row')].at(-1)?.firstChild.textContent, longest, most, where: document.querySelector('.tools .where').textContent,
        pages: queries.length, median: queries[queries.length >> 1], slowest: queries.at(-1), heap: performance.memory?.usedJSHeapSize}};
    }})()""")
    browser.patience = 120
    check(scroll["last"] == f"note-{RECORDS - 1:07}", "the last record is shown after scrolling", scroll)
    check(scroll["most"] < 200, "only rows in sight are elements", scroll)
    memory = page.memory()
    say(f"page: {RECORDS} records: first view {first['ms']:.0f} ms after the request, {first['bytes']} bytes; pages of 200: median {scroll['median']:.0f} ms, slowest {scroll['slowest']:.0f} ms;"
        f" longest frame {scroll['longest']:.0f} ms; open holds {memory:.0f} MB")
    bound(memory, 64, "MB", "what open holds after scrolling")
    shots(browser, "scrolled")
    to(browser, "space")
    begun = time.monotonic()
    click(browser, "Work it out")
    browser.wait("document.querySelector('[aria-label=Compaction] .says')", 900, what="what a compaction of many records would free")
    say(f"page: what a compaction would free is worked out in {time.monotonic() - begun:.1f} s")
    bound(page.memory(), 64, "MB", "what open holds when it has worked out a compaction")
    to(browser, "records")
    browser.wait("document.querySelectorAll('.grid-row').length > 20")
    # More children than are asked for at once.
    to(browser, "records?type=Folder&in=Main&name=folder-1")
    if browser.script("Boolean(document.querySelector('.fields'))"):
        click(browser, "Find its children")
        browser.wait("document.querySelector('.detail').innerText.includes('The first 100 of Note')", what="children that are left out are said")
        browser.script("[...document.querySelectorAll('.detail a')].find(a => a.innerText === 'all of them').click()")
        browser.wait("document.querySelector('.filter')?.innerText.includes('___parent')", what="and all of them are shown")
    to(browser, "records?type=Note")
    # Live: the numbers beside the type move while an import of 10,000 runs, and the log shows its events.
    count = "Number(document.querySelector('.side a[aria-current] .dim').textContent.replaceAll(',', ''))"
    reader = subprocess.Popen([STRANDLINE, "import", "--batch", "100", "--acks", store, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    processes.append(reader)
    seen = set()

    def feed():
        for number in range(10_000):
            reader.stdin.write(record(RECORDS + number, chooser) + "\n")
            if number % 500 == 499:
                reader.stdin.flush()
                time.sleep(0.15)
        reader.stdin.close()

    feeder = threading.Thread(target=feed)
    feeder.start()
    while feeder.is_alive():
        seen.add(browser.script(count))
        browser.listen(0.1)
    feeder.join()
    reader.wait(60)
    browser.wait(f"({count}) === {RECORDS + 10_000}", what="all are counted")
    check(len(seen) >= 3, "the counts have moved while it ran", seen)
    to(browser, "log")
    browser.wait("document.querySelectorAll('.grid-row').length > 20")
    browser.script("""(() => { window.shown = {}; new MutationObserver(() => { for (const row of [...document.querySelectorAll('.grid-row')].slice(0, 8)) {
      const name = /live-[0-9]+/.exec(row.textContent)?.[0]; if (name) window.shown[name] ??= Date.now(); } }).observe(document.querySelector('.grid'), {childList: true, subtree: true}); })()""")
    slowest = []
    for number in range(10):
        name = f"live-{number}"
        writer = subprocess.Popen([STRANDLINE, "import", "--batch", "1", "--acks", store, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        writer.stdin.write(json.dumps({"recordType": "Note", "recordName": name, "fields": {"size": number}}) + "\n")
        writer.stdin.flush()
        writer.stdout.readline()
        durable = time.time() * 1000
        browser.wait(f"window.shown['{name}']", what="a new event is in the log")
        slowest.append(max(0, browser.script(f"window.shown['{name}']") - durable))
        writer.stdin.close()
        writer.wait(30)
        writer.stdout.close()
    check(max(slowest) < 5_000, "an event is shown soon", slowest)
    bound(max(slowest), 300, "ms", f"an event of another process after it was durable, the slowest of 10 (median {sorted(slowest)[5]:.0f} ms)")
    bound(page.memory(), 64, "MB", "what open holds after an import of 10,000 records")
    quiet(browser, "live")
    again(browser, page, store)
    say(f"page: live and large, {checks} checks")


def again(browser, page, store):
    """The command is killed and started again on its port."""
    browser.expected = ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "401 (Unauthorized)", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET"]
    page.end(kill=True)
    browser.wait("!document.getElementById('lost').hidden", what="a lost command is said")
    check(browser.script("document.querySelectorAll('.grid-row').length") > 20, "what is shown stays")
    shots(browser, "lost")
    other = Page("open", "--no-browser", "--port", page.port, store)
    browser.wait("document.getElementById('lost').innerText.includes('new token')", what="a new token is said")
    target = browser.call("Target.createTarget", url=other.url)["targetId"]
    browser.wait("document.getElementById('lost').hidden", what="it is found again")
    browser.call("Target.closeTarget", targetId=target)
    command("put", store, json.dumps({"recordType": "Note", "recordName": "after", "fields": {"size": 1}}))
    browser.wait("[...document.querySelectorAll('.grid-row')].slice(0, 8).some(r => r.innerText.includes('after'))", what="events come again")
    # A page that is not seen leaves its connection to others, and has everything when it is seen again.
    hide = "Object.defineProperty(document, 'hidden', { value: %s, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))"
    browser.requests.clear()
    browser.script(hide % "true")
    end = time.monotonic() + 40
    while time.monotonic() < end and not any("rest=" in url for url in browser.requests):
        browser.listen(0.5)
    check(any("rest=" in url for url in browser.requests), "a page that is not seen says that it is there")
    command("put", store, json.dumps({"recordType": "Note", "recordName": "unseen", "fields": {"size": 1}}))
    browser.listen(1)
    rows = "[...document.querySelectorAll('.grid-row')].slice(0, 8).some(r => r.innerText.includes('unseen'))"
    check(not browser.script(rows), "it follows nothing")
    browser.script(hide % "false")
    browser.wait(rows, what="it is renewed when it is seen again")
    # One that is stopped closes no connection.
    other.process.send_signal(signal.SIGSTOP)
    browser.wait("!document.getElementById('lost').hidden", 60, what="a command that does not answer is said")
    other.process.send_signal(signal.SIGCONT)
    browser.wait("document.getElementById('lost').hidden", what="it is found when it goes on")
    browser.expected = []
    leave(browser, other)


def hurt(store, name):
    """Changes one byte of a record's first event."""
    place = json.loads(command("log-dump", "--json", "--hex", "--record", name, store).stdout.splitlines()[0])
    with open(f"{store}/{int(place['segment'], 16):016x}.seg", "r+b") as file:
        file.seek(place["offset"] + 60)
        byte = file.read(1)
        file.seek(place["offset"] + 60)
        file.write(bytes([byte[0] ^ 1]))


def at_its_place(browser, store):
    """The mark is in the file that is damaged, and as far from its beginning as the damage is."""
    found = [json.loads(line) for line in command("verify", "--json", store, code=None).stdout.splitlines()]
    found = [one for one in found if one.get("offset") and one.get("file")]
    marks = browser.script("""[...document.querySelectorAll('.hurt')].map(m => { const [mark, part] = [m, m.parentElement].map(e => e.getBoundingClientRect());
      return [m.parentElement.title, 100 * (mark.left - part.left) / part.width, part.width]; })""")
    check(len(found) == len(marks) == 1, "there is one mark for one damaged place", found, marks)
    (title, percent, width), name = marks[0], found[0]["file"].rsplit("/", 1)[-1]
    place = 100 * found[0]["offset"] / os.path.getsize(f"{store}/{name}")
    check(20 < place < 80, "the damage is neither at the beginning nor at the end", place)
    check(title.startswith(name + ","), "the mark is in the damaged file", title, name)
    # Two pixels: the mark has a width.
    check(abs(percent - place) < 0.5 + 200 / width, "the mark is as far in the file as the damage", percent, place, width)


def empty_and_damaged(browser, store):
    damaged = f"{work}/damaged"
    chooser = random.Random(5)
    lines = [record(number, chooser) for number in range(5000)]
    lines.insert(3000, json.dumps({"recordType": "Note", "recordName": EVIL, "fields": {"title": EVIL}}))
    command("import", damaged, "-", text="\n".join(lines) + "\n")
    hurt(damaged, EVIL)
    page = Page("open", "--no-browser", damaged)
    visit(browser, page, "space")
    click(browser, "Check")
    browser.wait("document.querySelector('.hurt')", 60, what="the damaged place is on the picture")
    browser.wait("document.body.innerText.includes('Damaged')", what="the check says so")
    at_its_place(browser, damaged)
    shots(browser, "damaged")
    to(browser, "records?type=Note")
    browser.wait("document.querySelector('.notes')?.innerText.includes('cannot be read')", what="an unreadable record is named")
    check(browser.script("document.querySelectorAll('.grid-row').length") > 20, "the others are beside it")
    browser.script("document.querySelector('.notes details').open = true")
    is_text(browser, "unreadable records")
    shots(browser, "unreadable")
    to(browser, "log?record=" + quote(EVIL))
    browser.wait("document.querySelector('.note.bad, .failed')", what="the log says where it is damaged")
    shots(browser, "damaged-log")
    for name in ("note-0000029", "note-0004200"):
        to(browser, f"log?record={name}")
        browser.wait(f"document.querySelector('.grid').innerText.includes('{name}') && document.querySelector('.note.bad')", what="events on both sides of a damaged place")
    quiet(browser, "damaged")
    leave(browser, page)
    # One of which nothing can be read.
    copied = f"{work}/ruined"
    shutil.copytree(store, copied)
    hurt(copied, "note-0000030")
    page = Page("open", "--no-browser", copied)
    visit(browser, page)
    browser.wait("document.querySelector('.failed')?.innerText.includes('strandline verify')", what="a store that cannot be read says what helps")
    shots(browser, "ruined")
    to(browser, "space")
    click(browser, "Check")
    browser.wait("document.querySelector('.hurt')", 60, what="its damaged place is on the picture")
    quiet(browser, "ruined")
    leave(browser, page)
    empty = f"{work}/empty"
    command("put", empty, json.dumps({"recordType": "Note", "recordName": "n", "fields": {}}))
    command("delete", empty, "n")
    page = Page("open", "--no-browser", empty)
    visit(browser, page)
    browser.wait("document.body.innerText.includes('No record lives here')", what="an empty store says so")
    shots(browser, "empty")
    for view in ("sync", "log", "space"):
        to(browser, view)
        quiet(browser, "empty " + view)
    command("put", empty, json.dumps({"recordType": "Note", "recordName": "n2", "fields": {"size": 1}}))
    to(browser, "records")
    browser.wait("document.querySelector('.grid-row')", what="the first record is shown by itself")
    leave(browser, page)
    browser.go(page.base)
    say(f"page: damaged and empty stores, {checks} checks")


def hostile_tab(browser, store):
    """A page of another program on this machine tries to read and to change."""
    class Quiet(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>other</title>")

        def log_message(self, *_):
            pass

    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    page, server = Page("open", "--no-browser", "--allow-changes", store), Page("serve", f"{work}/hostile-server")
    for one in (page, server):
        visit(browser, one)
        browser.settle()
    before = command("export", store).stdout + command("held", store).stdout
    faults = browser.script("fetch('/api/faults').then(r => r.text())")
    # All that the pages have asked for until now, so that none is left out.
    paths = {path: query for path, query in browser.paths.items() if path == "/" or path.startswith(("/page/", "/api/"))}
    names = {"session", "run", "events", "space", "databases", "newest", "faults", "requests", "request", "cloud"}
    check(os.environ.get("CI_PAGE_ONLY") or names <= {path[5:] for path in paths if path.startswith("/api/")}, "the pages have asked for all that there is", sorted(paths))
    browser.expected = ["403 (Forbidden)", "blocked by CORS", "ERR_FAILED", "Failed to load resource", "Refused to", "X-Frame-Options", "frame-ancestors", "MIME type", "violates", "EventSource"]
    for base, host in ((base, host) for base in (page.base, server.base) for host in ("127.0.0.1", "localhost")):
        browser.go(f"http://{host}:{other.server_port}/")
        found = browser.script(f"""(async () => {{
          const base = '{base}', paths = {json.dumps([path + ("?" + query if query else "") for path, query in paths.items()])}, out = [];
          const tried = async (name, body) => {{ try {{ const r = await body(); if (r) out.push(name + ': ' + r); }} catch {{ }} }};
          const form = {{'Content-Type': 'application/x-www-form-urlencoded'}}, words = 'verb=held&w=retry&w=--latency&w=900';
          for (const path of paths) {{
            await tried('read ' + path, async () => (await (await fetch(base + path, {{credentials: 'include'}})).text()).slice(0, 80));
            await tried('opaque ' + path, async () => {{ const r = await fetch(base + path, {{credentials: 'include', mode: 'no-cors'}}); return r.type !== 'opaque' ? r.type : ''; }});
            await tried('post ' + path, async () => (await fetch(base + path, {{method: 'POST', credentials: 'include', body: words, headers: form}})).status);
            await tried('post unread ' + path, async () => {{ await fetch(base + path, {{method: 'POST', credentials: 'include', mode: 'no-cors', body: words, headers: form}}); }});
            await tried('post with the header ' + path, async () => (await fetch(base + path, {{method: 'POST', credentials: 'include', body: words, headers: {{...form, 'X-Strandline-Token': '0'}}}})).status);
          }}
          const load = (tag, props) => new Promise(done => {{ const e = Object.assign(document.createElement(tag), props); e.onload = () => done(tag + ' was loaded'); e.onerror = () => done(''); setTimeout(() => done(''), 1500); document.body.append(e); }});
          for (const path of paths.filter(path => path.startsWith('/page/'))) await tried('script ' + path, () => load('script', {{src: base + path, type: path.endsWith('.js') ? 'module' : ''}}));
          await tried('data as script', () => load('script', {{src: base + '/api/run?verb=types'}}));
          await tried('image', () => load('img', {{src: base + '/page/icon.svg'}}));
          await tried('style', () => load('link', {{rel: 'stylesheet', href: base + '/page/page.css'}}));
          await load('iframe', {{src: base + '/'}});
          await tried('frame', async () => {{ try {{ return frames[0].document.body.innerText.slice(0, 40); }} catch {{ return ''; }} }});
          await tried('events', () => new Promise(done => {{ const s = new EventSource(base + '/api/events', {{withCredentials: true}}); s.onmessage = s.onopen = () => done('heard'); s.onerror = () => {{ s.close(); done(''); }}; setTimeout(() => done(''), 1500); }}));
          return out; }})()""")
        check(found == [], f"a page of http://{host} read something of {base}", found)
    other.shutdown()
    # An event source that was refused is told of late.
    browser.go("about:blank")
    browser.expected = []
    browser.errors.clear()
    check(command("export", store).stdout + command("held", store).stdout == before, "nothing was changed by another page")
    visit(browser, server)
    check(browser.script("fetch('/api/faults').then(r => r.text())") == faults, "no fault was switched by another page")
    leave(browser, page)
    server.end()
    say(f"page: a hostile tab, {len(paths)} paths of each page, {checks} checks")


def launched(browser, store):
    """The command opens the browser of its machine, where it has a terminal, a desktop and a program for that."""
    folder = f"{work}/desktop"
    os.mkdir(folder)
    with open(f"{folder}/xdg-open", "w") as file:
        file.write(f'#!/bin/sh\nprintf "%s" "$*" > {folder}/address.new && /bin/mv {folder}/address.new {folder}/address\n')
    os.chmod(f"{folder}/xdg-open", 0o700)
    own, terminal = os.openpty()
    variables = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}

    def opened(*words, error=terminal, **more):
        process = subprocess.Popen([STRANDLINE, "open", *words, store], stdout=subprocess.PIPE, stderr=error, text=True, env={**variables, **more})
        processes.append(process)
        return process, process.stdout.readline().strip()

    def end(process):
        process.terminate()
        process.wait(30)
        process.stdout.close()
        time.sleep(0.3)
        found = os.path.exists(f"{folder}/address")
        if found:
            os.remove(f"{folder}/address")
        return found

    process, printed = opened(DISPLAY=":0", PATH=f"/none:{folder}")
    limit = time.monotonic() + 30
    while not os.path.exists(f"{folder}/address") and time.monotonic() < limit:
        time.sleep(0.05)
    with open(f"{folder}/address") as file:
        address = file.read()
    check(address.split("?t=")[0] == printed.split("?t=")[0] and address != printed and re.fullmatch("[0-9a-f]{32}", address.split("?t=")[1]), "the browser gets an address of its own")
    browser.go(address)
    browser.wait("document.querySelector('#views a') && location.search === ''", what="the browser is signed in, and the token is gone from its address")
    browser.expected = ["401 (Unauthorized)"]
    browser.go(address)
    browser.wait("document.body.innerText.includes('Open the address that the command printed')", what="its address works once")
    shots(browser, "closed")
    browser.expected = []
    browser.go(printed)
    browser.wait("document.querySelector('#views a')", what="the printed one works on")
    browser.go("about:blank")
    end(process)
    for words, error, more in (([], terminal, {}), (["--no-browser"], terminal, {"DISPLAY": ":0"}), ([], subprocess.DEVNULL, {"DISPLAY": ":0"})):
        process, printed = opened(*words, error=error, PATH=folder, **more)
        check("?t=" in printed and not end(process), "without a desktop, a terminal or leave the address is only printed", words, more)
    os.set_blocking(own, False)
    said = os.read(own, 1 << 16).decode()
    check("no browser" not in said and said.count("press Ctrl-C to stop") == 3, "and no more is said", said)
    process, printed = opened(DISPLAY=":0", PATH="/none")
    end(process)
    check("note: no browser could be started; open the address above" in os.read(own, 1 << 16).decode(), "a desktop without a browser is told")
    os.close(own)
    os.close(terminal)
    quiet(browser, "a browser that was opened")
    say(f"page: a browser that the command opens, {checks} checks")


def request(server, path, body=None):
    """The status and the header of an answer to what an app sends."""
    message = urllib.request.Request(server.base + path, body and json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(message, timeout=30) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


def answer_of(server, path, body):
    """The text of an answer to what an app sends."""
    message = urllib.request.Request(server.base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(message, timeout=30) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def empty_server(browser):
    server = Page("serve", f"{work}/empty-server")
    visit(browser, server, "data")
    for view, words in (("data", "No app has written anything yet"), ("requests", "No request yet"), ("log", "No event")):
        to(browser, view)
        browser.wait(f"document.body.innerText.includes('{words}')", what=f"an empty server's {view} says so")
        shots(browser, "empty-server-" + view)
    leave(browser, server)


def all_faults(browser, server):
    """Each fault is switched on, shown, and switched off, by the keyboard as by a click."""
    to(browser, "faults")
    browser.wait("document.querySelector('[aria-label=Faults] button')")
    kinds = {"Latency": "--latency 500", "503 with Retry-After": "--throttle 3:2", "Lost answer": "--drop-answer 1", "Expired change tokens": "--expired-tokens",
             "Old page": "--replay-page", "Quota": "--quota-exceeded", "Clock": "--clock -3600", "Sign-in": "--require-session", "Strict rotation": "--require-session --strict-rotation"}
    names = browser.script("[...document.querySelectorAll('[aria-label=Faults] button[aria-pressed]')].map(b => b.getAttribute('aria-label'))")
    check(sorted(names) == sorted(kinds), "the faults", names)
    for name, words in kinds.items():
        button = f"[...document.querySelectorAll('button[aria-pressed]')].find(b => b.getAttribute('aria-label') === {json.dumps(name)})"
        number = 2 if name == "Strict rotation" else 1
        browser.script(f"{button}.focus()")
        browser.press("Enter")
        browser.wait(f"{button}.getAttribute('aria-pressed') === 'true' && document.querySelector('.says code').textContent.includes({json.dumps(words)})", what=f"{name} is on")
        browser.wait(f"document.querySelector('[data-view=faults] .badge')?.textContent === '{number}'", what=f"{name} is counted")
        check(browser.script(f"document.activeElement === {button}"), f"the focus stays at {name}")
        if name == "Clock":
            ahead = parsedate_to_datetime(request(server, "/none")[1]["Date"]).timestamp() - time.time()
            check(-3700 < ahead < -3500, "the server's clock has gone back by an hour", ahead)
            shots(browser, "server-clock")
        if name == "503 with Retry-After":
            # What is used up stays so when another one is switched, also while something is typed.
            browser.script("document.querySelector('[aria-label^=\"Clock, \"]').focus()")
            for _ in range(3):
                request(server, "/database/1/iCloud.example/development/private/zones/list")
            browser.wait(f"{button}.getAttribute('aria-pressed') === 'false'", what="a fault that is used up is off while something is typed")
            browser.script(f"{button}.focus()")
            browser.press("Enter")
            browser.wait(f"{button}.getAttribute('aria-pressed') === 'true'")
        if name == "Latency":
            begun = time.monotonic()
            request(server, "/database/1/iCloud.example/development/private/zones/list")
            check(time.monotonic() - begun > 0.45, "an answer waits")
        if name == "Quota":
            body = {"zoneID": {"zoneName": "Main"}, "operations": [{"operationType": "create", "record": {"recordType": "Note", "recordName": "quota", "fields": {}}}]}
            check("QUOTA_EXCEEDED" in answer_of(server, "/database/1/iCloud.example/development/private/records/modify", body), "a save is refused")
        if number == 2:
            browser.script("[...document.querySelectorAll('button[aria-pressed]')].find(b => b.getAttribute('aria-label') === 'Sign-in').click()")
        else:
            browser.press("Enter")
        browser.wait(f"{button}.getAttribute('aria-pressed') === 'false' && document.body.innerText.includes('none is on')", what=f"{name} is off")
    check(abs(parsedate_to_datetime(request(server, "/none")[1]["Date"]).timestamp() - time.time()) < 60, "the clock is right again")
    # What is left of a fault is shown as it is used.
    browser.script("document.querySelector('[aria-label=\"503 with Retry-After\"]').click()")
    browser.wait("document.body.innerText.includes('1 fault on')")
    for _ in range(3):
        status, header = request(server, "/database/1/iCloud.example/development/private/zones/list")
        check(status == 503 and header["Retry-After"] == "2", "a request is refused", status)
    browser.wait("document.body.innerText.includes('none is on')", what="a fault that is used up is off")
    # A wait of less than a second stays as it is, whatever else is switched.
    page_faults = "fetch('/api/faults').then(r => r.json())"
    browser.script("(() => { const box = document.querySelector('[aria-label^=\"503 with\"][placeholder]'); box.value = '5:0.4'; box.focus(); })()")
    browser.press("Enter")
    browser.wait("document.body.innerText.includes('1 fault on')")
    click_label(browser, "Old page")
    browser.wait("document.body.innerText.includes('2 faults on')")
    check(browser.script(page_faults)["throttle"] == "5:0.4", "a wait is not rounded", browser.script(page_faults))
    click(browser, "All off")
    browser.wait("document.body.innerText.includes('none is on')")
    quiet(browser, "faults")


def slow_and_lost(browser, server):
    """The latency and the bytes of a request in the list, and a request whose answer is lost."""
    cells = "[...document.querySelectorAll('.grid-head .cell')].map(c => c.textContent)"
    newest = "[...document.querySelector('.grid-row').children].map(c => c.innerText.trim())"

    def row(what):
        to(browser, "requests")
        browser.wait(f"document.querySelector('.grid-row').innerText.includes({json.dumps(what)})", what=f"{what} is listed")
        return dict(zip(browser.script(cells), browser.script(newest)))

    def milliseconds(one):
        return float(one["latency"].removesuffix(" ms").replace(",", ""))

    lookup, private = {"records": [{"recordName": "note-0000010"}], "zoneID": {"zoneName": "Main"}}, "/database/1/iCloud.example/development/private/"
    begun = time.monotonic()
    answer = answer_of(server, private + "records/lookup", lookup)
    took = 1000 * (time.monotonic() - begun)
    quick = row("records/lookup")
    check(quick["sent"] == f"{len(json.dumps(lookup)):,} bytes" and quick["received"] == f"{len(answer.encode()):,} bytes", "the list has the bytes of both directions", quick, len(answer))
    check(quick["status"] == "200" and 0 < milliseconds(quick) <= took, "and the time that an answer took", quick, took)
    to(browser, "faults")
    click_label(browser, "Latency")
    browser.wait("document.body.innerText.includes('1 fault on')")
    begun = time.monotonic()
    answer_of(server, private + "zones/list", {})
    took = 1000 * (time.monotonic() - begun)
    slow = row("zones/list")
    check(450 <= milliseconds(slow) <= took + 1, "the list has the time that an answer was held back", slow, took)
    to(browser, "faults")
    click(browser, "All off")
    browser.wait("document.body.innerText.includes('none is on')")
    click_label(browser, "Lost answer")
    browser.wait("document.body.innerText.includes('1 fault on')")
    body = {"zoneID": {"zoneName": "Main"}, "operations": [{"operationType": "create", "record": {"recordType": "Evil", "recordName": EVIL + "-lost", "fields": {"html": {"value": EVIL}}}}]}
    text = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", int(server.port)), timeout=30) as raw:
        raw.sendall(f"POST {private}records/modify HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        lost = row("records/modify")
        raw.settimeout(0.5)
        try:
            check(raw.recv(1) == b"", "no answer comes")
        except TimeoutError:
            pass
    check(lost["status"] == "no answer" and lost["received"] == "–" and lost["sent"] == f"{len(text):,} bytes", "the list says that an answer was lost", lost)
    check(browser.script("Boolean(document.querySelector('.grid-row .tag.bad'))"), "and marks it")
    browser.script("document.querySelector('.grid-row').click()")
    browser.wait("document.querySelector('.detail .body')?.innerText.includes('No answer was sent')", what="so does its panel")
    is_text(browser, "a lost answer")
    shots(browser, "server-lost-answer")
    browser.press("Escape")
    browser.script("(s => { s.value = 'bad'; s.onchange(); })(document.querySelector('[aria-label=\"Which requests\"]'))")
    statuses = "[...document.querySelectorAll('.grid-row')].map(r => r.children[2].innerText)"
    browser.wait(f"document.querySelector('.grid-row').innerText.includes('no answer') && !{statuses}.some(s => s.startsWith('2'))", what="a lost answer is among the refused and lost, and no other")
    lookup["records"] = [{"recordName": EVIL + "-lost"}]
    check('"html"' in answer_of(server, private + "records/lookup", lookup), "the upload was applied")
    to(browser, "faults")
    browser.wait("document.body.innerText.includes('none is on')", what="a lost answer is used up")


def no_secrets(browser, server):
    """Tokens of sessions, of the API and of pushes are in nothing that the page gets or shows."""
    private, tokens = "/database/1/iCloud.example/development/private/", "/device/1/iCloud.example/development/tokens/"
    session = json.loads(answer_of(server, "/signin", {}))["ckWebAuthToken"]
    push = json.loads(answer_of(server, tokens + "create", {"clientId": "c"}))["apnsToken"]
    check(len(session) > 20 and len(push) > 20, "a client has its tokens")
    answer_of(server, tokens + "register", {"apnsEnvironment": "development", "apnsToken": push})
    answer_of(server, private + f"records/lookup?ckAPIToken=API-SECRET&ckWebAuthToken={quote(session)}", {"zoneID": {"zoneName": "Main"}, "records": [{"recordName": "NO-SECRET"}]})
    with socket.create_connection(("127.0.0.1", int(server.port)), timeout=30) as raw:
        raw.sendall(f"GET /courier?token={push} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        check(b" 200 " in raw.recv(1 << 16), "a client waits for its pushes")
    to(browser, "requests")
    browser.wait("document.querySelector('.grid-row').innerText.includes('/courier')", what="the last of them is listed")
    received, shown = browser.script("fetch('/api/requests').then(r => r.text())"), ""
    numbers = sorted(one["number"] for one in json.loads(received))[-5:]
    for number in numbers:
        received += browser.script(f"fetch('/api/request?number={number}').then(r => r.text())")
    for number in range(5):
        browser.script(f"document.querySelectorAll('.grid-row')[{number}].click()")
        browser.wait("document.querySelector('.detail .body h3:nth-of-type(2)')", what="both bodies, or why they are not there")
        browser.settle()
        shown += browser.script("document.body.innerText")
    shots(browser, "server-secret")
    browser.press("Escape")
    for name in ("session", "databases", "faults", "run?verb=log-dump&w=--from&w=1"):
        received += browser.script(f"fetch('/api/{name}').then(r => r.text())")
    for text, where in ((received, "sent to the page"), (shown, "shown by the page")):
        check("NO-SECRET" in text, f"what is no token is {where}")
        for secret in ("API-SECRET", session, quote(session), push):
            check(secret not in text, f"a token is {where}")
    check(shown.count("A token may be in it, so it is not kept.") == 6, "what is left out is said", shown[-2000:])


def asked_by_keys(browser):
    """A query, a look-up and the next page of changes, with the keyboard alone."""
    def is_at(label):
        return f"e.getAttribute('aria-label') === {json.dumps(label)}"

    to(browser, "faults")
    to(browser, "data")
    browser.wait("document.querySelectorAll('.grid-row').length > 3")
    browser.script("document.querySelector('[data-view=data]').focus()")
    browser.tab_to("e.textContent === 'Add a condition'", "a new condition")
    browser.press("Enter")
    browser.script("document.querySelector('[data-view=data]').focus()")
    browser.tab_to(is_at("Field"), "the field")
    browser.call("Input.insertText", text="size")
    browser.press("Tab")
    check(browser.script(f"(e => {is_at('Comparator')})(document.activeElement)"), "then comes the comparator")
    wanted = "document.activeElement.value === 'GREATER_THAN'"
    for _ in range(25):
        if browser.script(wanted):
            break
        browser.press("ArrowDown")
    check(browser.script(wanted), "the arrows choose a comparator")
    browser.press("Tab")
    browser.call("Input.insertText", text="90000")
    browser.press("Enter")
    said = "document.querySelector('pre.json')?.textContent"
    browser.wait(f"{said}?.includes('GREATER_THAN') && {said}.includes('\"size\"') && {said}.includes('90000') && document.querySelectorAll('.grid-row').length > 3", what="a condition was asked by the keyboard")
    values = column(browser, "size")
    check(values and all(value > 90_000 for value in values), "and was met", values)
    browser.tab_to(is_at("Remove this condition"), "its removal")
    browser.press("Enter")
    browser.wait(f"!document.querySelector('.conditions .row') && !{said}.includes('GREATER_THAN')", what="it is removed by the keyboard")
    browser.script("document.querySelector('[data-view=data]').focus()")
    browser.tab_to("e.role === 'tab' && e.dataset.name === 'query'", "the tabs")
    browser.press("ArrowRight")
    browser.wait("location.hash.includes('tab=lookup') && document.activeElement.dataset.name === 'lookup'")
    browser.tab_to("e.name === 'names'", "the names")
    browser.call("Input.insertText", text="note-0000012 note-0000013")
    browser.press("Enter")
    browser.wait("document.querySelectorAll('.grid-row').length === 2", what="two records were looked up by the keyboard")
    browser.script("document.querySelector('[role=tab][data-name=lookup]').focus()")
    browser.press("ArrowRight")
    browser.wait("location.hash.includes('tab=changes') && document.body.innerText.includes('more is coming')")
    browser.settle()
    token = "document.querySelector('.form input').value"
    before = browser.script(token)
    browser.tab_to("e.textContent === 'Next page'", "the next page")
    browser.press("Enter")
    browser.wait(f"{token} !== {json.dumps(before)}", what="the next page of changes by the keyboard")
    browser.settle()
    quiet(browser, "the keys of a server's page")


def click_label(browser, label):
    browser.script(f"[...document.querySelectorAll('button')].find(b => b.getAttribute('aria-label') === {json.dumps(label)}).click()")


def hostile_requests(browser, server):
    """Names that an app sends in its address and in its body."""
    evil = quote(EVIL)
    for path in (f"/database/1/{evil}/development/private/records/query", f"/database/1/iCloud.example/development/private/{evil}", f"/{evil}"):
        request(server, path, {"zoneID": {"zoneName": EVIL + TURN}, "query": {"recordType": SCRIPT}})
    to(browser, "requests")
    with socket.create_connection(("127.0.0.1", int(server.port)), timeout=30) as raw:
        raw.sendall(f"GET /{EVIL.replace(' ', '/')} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n".encode())
        check(b" 404 " in raw.recv(1 << 16), "a path that is markup leads nowhere")
    browser.wait("document.querySelector('.grid').innerText.includes('<img/src=x')", what="hostile requests are listed")
    is_text(browser, "requests", "<img/src=x/onerror=d")
    # A body of which only the beginning is kept.
    answer_of(server, "/database/1/iCloud.example/development/private/records/query", {"query": {"recordType": "x" * 40_000}})
    browser.wait("document.querySelector('.grid-row').innerText.includes('kB')")
    browser.script("document.querySelector('.grid-row').click()")
    browser.wait("document.querySelector('.detail').innerText.includes('Only its first 32 kB are kept')", what="a body that is cut is said to be")
    # One of another origin is refused before the service.
    message = urllib.request.Request(server.base + "/database/1/iCloud.example/development/private/zones/list", headers={"Origin": "http://evil.example"})
    try:
        urllib.request.urlopen(message, timeout=30)
    except urllib.error.HTTPError as error:
        error.close()
    browser.wait("document.querySelector('.grid-row').innerText.includes('403')", what="a request that was refused by its origin is listed")
    for number in range(3, 6):
        browser.script(f"document.querySelectorAll('.grid-row')[{number}].click()")
        browser.wait("document.querySelectorAll('.detail pre').length === 2", what="the bodies of a hostile request")
        is_text(browser, "hostile requests", EVIL[:20])
    browser.press("Escape")


def server_again(browser, server):
    """The server is killed and started again on its port."""
    browser.expected = ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "401 (Unauthorized)", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET"]
    server.end(kill=True)
    browser.wait("!document.getElementById('lost').hidden", what="a lost server is said")
    shots(browser, "server-lost")
    other = Page("serve", "--port", server.port, f"{work}/server")
    browser.wait("document.getElementById('lost').innerText.includes('new token')", what="a new token is said")
    target = browser.call("Target.createTarget", url=other.url)["targetId"]
    browser.wait("document.getElementById('lost').hidden", what="the server is found again")
    browser.call("Target.closeTarget", targetId=target)
    browser.wait("document.body.innerText.includes('No request yet')", what="it is another process's list")
    request(other, "/database/1/iCloud.example/development/private/zones/list")
    browser.wait("document.querySelectorAll('.grid-row').length === 1", what="requests come again")
    browser.expected = []
    quiet(browser, "the server's page, found again")
    return other


def big_numbers(browser):
    """Numbers that a script would round, in answers, conditions and JSON."""
    # A condition by a field that the type does not have is refused.
    remove = "document.querySelector('[aria-label=\"Remove this condition\"]').click()"
    browser.script(remove)
    browser.settle()
    browser.script("document.querySelector('.form select').value = 'Dash'; document.querySelector('.form select').onchange()")
    browser.settle()
    click(browser, "Add a condition")
    browser.script(f"""(() => {{ const name = document.querySelector('[aria-label=Field]');
      document.querySelector('[aria-label=Comparator]').value = 'EQUALS'; name.value = 'big'; document.querySelector('[aria-label=Value]').value = '{BIG}';
      name.dispatchEvent(new Event('change', {{bubbles: true}})); }})()""")
    browser.wait(f"document.querySelectorAll('.grid-row').length === 1 && document.querySelector('.grid-row').innerText.includes('{BIG}')", what="a condition with a large number")
    browser.wait(f"[...document.querySelectorAll('.notes pre.json')].filter(p => p.textContent.includes('{BIG}')).length === 2", what="the JSON has it as it is")
    browser.script(remove)
    browser.settle()


def curl(browser):
    """The line that is copied asks the same of the server."""
    browser.script("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    click(browser, "Copy as curl")
    browser.wait("window.copied")
    words = shlex.split(browser.script("window.copied"))
    check(words[:3] == ["curl", "-X", "POST"] and words[4] == "-H" and words[6] == "-d", "a line of curl", words)
    message = urllib.request.Request(words[3], words[7].encode(), dict([words[5].split(": ")]))
    with urllib.request.urlopen(message, timeout=30) as answer:
        check(answer.status == 200 and b'"records"' in answer.read(), "the copied line is answered")


def server_views(browser, server, sync):
    empty_server(browser)
    visit(browser, server)
    browser.wait("document.querySelectorAll('.grid-row').length > 3")
    to(browser, "data")
    browser.script("[...document.querySelectorAll('.form select')][0].value = 'Evil'; document.querySelector('.form select').onchange()")
    browser.wait("document.querySelector('.grid').innerText.includes('<img src=x')", what="a query for hostile records")
    is_text(browser, "data")
    browser.script("document.querySelector('.grid-row').click()")
    browser.wait("document.querySelector('.detail .fields')")
    is_text(browser, "data detail")
    # Types and fields of names that no server of ours has.
    browser.change(lambda body: re.sub(r'"recordType": ?"Evil"', lambda _: '"recordType":' + json.dumps(SCRIPT + TURN), re.sub(r'"html": ?', lambda _: json.dumps(EVIL + TURN) + ":", body)))
    click(browser, "Ask")
    browser.wait("document.querySelector('.grid-head').innerText.includes('<img src=x')", what="hostile names of fields of a server")
    browser.script("document.querySelector('.grid-row').click()")
    browser.wait("document.querySelector('.detail header').innerText.includes('javascript:') && document.querySelector('.detail .fields').innerText.includes('<img src=x')", what="a hostile name of a type of a server")
    is_text(browser, "hostile names of a server")
    browser.change(None)
    click(browser, "Ask")
    browser.wait("!document.querySelector('.grid-head').innerText.includes('<img src=x')")
    for name in ("Add a condition",):
        click(browser, name)
    comparators = browser.script("[...document.querySelector('[aria-label=Comparator]').options].map(o => o.value)")
    check(len(comparators) >= 21 and {"LIST_CONTAINS", "NEAR", "CONTAINS_ALL_TOKENS", "CONTAINS_ANY_TOKENS"} <= set(comparators), "every comparator is offered", comparators)
    for comparator in comparators:
        value = '["a", "b"]' if comparator in ("IN", "NOT_IN") or comparator.endswith(("_ANY", "_ALL")) else "54.2, 7.9" if comparator == "NEAR" else "a"
        browser.script(f"""(() => {{ const [name, value] = [document.querySelector('[aria-label=Field]'), document.querySelector('[aria-label=Value]')];
          document.querySelector('[aria-label=Comparator]').value = '{comparator}'; name.value = 'html'; value.value = {json.dumps(value)};
          document.querySelector('[aria-label="Type of the value"]').value = ''; name.dispatchEvent(new Event('change', {{bubbles: true}})); }})()""")
        browser.wait(f"!document.querySelector('.loading') && document.querySelector('pre.json')?.textContent.includes('\"{comparator}\"')", what=f"the JSON of {comparator}")
        check(not browser.script("document.querySelector('.middle .note.bad')?.innerText"), f"{comparator} is answered", browser.script("document.querySelector('.note.bad')?.innerText"))
    curl(browser)
    big_numbers(browser)
    shots(browser, "server-data")
    states(browser, SERVER_STATES)
    asked_by_keys(browser)
    to(browser, "data?tab=changes&zone=" + quote(EVIL))
    browser.wait("document.querySelector('.grid').innerText.includes('in-zone')", what="the changes of a hostile zone")
    is_text(browser, "changes")
    shots(browser, "hostile-changes")
    to(browser, "data?tab=changes")
    browser.wait("document.body.innerText.includes('more is coming') || document.body.innerText.includes('the end; token')")
    pages = tombstones = 0
    while "more is coming" in browser.script("document.body.innerText") and pages < 30:
        token = browser.script("document.querySelector('.form input').value")
        click(browser, "Next page")
        browser.wait(f"document.querySelector('.form input').value !== {json.dumps(token)}")
        browser.settle()
        tombstones += browser.script("document.querySelector('.grid').innerText.split('tombstone').length - 1")
        pages += 1
    check(pages > 2, "changes come page by page", pages)
    check(tombstones > 0, "tombstones are among them")
    shots(browser, "server-changes")
    to(browser, "data?tab=lookup")
    browser.wait("document.querySelector('.notes').innerText.includes('Name a record')", what="a look-up asks for a name")
    to(browser, "data?tab=lookup&names=note-0000010")
    browser.wait("document.querySelector('.grid').innerText.includes('note-0000010')", what="a look-up")
    to(browser, "data?tab=lookup&names=" + quote(SCRIPT))
    browser.wait("document.querySelector('.grid').innerText.includes('javascript:')", what="a look-up of a hostile name")
    is_text(browser, "a look-up")
    browser.script("document.querySelector('.grid-row').click()")
    browser.wait("document.querySelector('.detail .fields')?.innerText.includes('<img src=x')")
    is_text(browser, "a record that was looked up")
    shots(browser, "server-lookup")
    to(browser, "requests")
    browser.wait("document.querySelectorAll('.grid-row').length > 3")
    number = browser.script("Number(document.querySelector('.grid-row').firstChild.textContent.replaceAll(',', ''))")
    command(*sync, f"{work}/b", code=None)
    # One of this sync's: an older one may have nothing in its answer.
    row = f"[...document.querySelectorAll('.grid-row')].find(r => r.textContent.includes('changes/database') && Number(r.firstChild.textContent.replaceAll(',', '')) > {number})"
    browser.wait(f"Boolean({row})", what="a request is shown as it comes")
    browser.script(f"{row}.click()")
    browser.wait("document.querySelectorAll('.detail pre').length === 2", what="bodies on demand")
    shots(browser, "server-requests")
    to(browser, "faults")
    browser.wait("document.querySelector('[aria-label=Faults]')")
    browser.script("document.querySelector('[aria-label=\"503 with Retry-After\"]').click()")
    browser.wait("document.body.innerText.includes('1 fault on')", what="a fault is on")
    shots(browser, "server-faults")
    command("put", f"{work}/b", json.dumps({"recordName": "note-0000012", "fields": {"title": "late"}}))
    command(*sync, f"{work}/b", code=None)
    to(browser, "requests")
    browser.wait("[...document.querySelectorAll('.grid-row')].some(r => r.textContent.includes('503'))", what="the fault is seen among the requests")
    to(browser, "faults")
    click(browser, "All off")
    browser.wait("document.body.innerText.includes('none is on')", what="all faults are off")
    all_faults(browser, server)
    slow_and_lost(browser, server)
    hostile_requests(browser, server)
    no_secrets(browser, server)
    to(browser, "log")
    browser.wait("document.querySelector('.grid').innerText.includes('recordSaved')")
    is_text(browser, "journal")
    check(browser.script("document.querySelector('.grid').clientHeight") > 200, "the table has its place")
    shots(browser, "server-journal")
    quiet(browser, "the server's page")
    to(browser, "requests")
    browser.script("""(() => { window.shown = {}; new MutationObserver(() => { window.shown[document.querySelector('.grid-row')?.firstChild.textContent] ??= Date.now(); })
      .observe(document.querySelector('.grid'), {childList: true, subtree: true}); })()""")
    slowest = []
    for number in range(10):
        before = int(browser.script("document.querySelector('.grid-row').firstChild.textContent.replaceAll(',', '')"))
        request(server, "/database/1/iCloud.example/development/private/zones/list")
        answered = time.time() * 1000
        browser.wait(f"window.shown['{before + 1:,}']", what="a request is shown")
        slowest.append(max(0, browser.script(f"window.shown['{before + 1:,}']") - answered))
    bound(max(slowest), 100, "ms", f"a request after its answer, the slowest of 10 (median {sorted(slowest)[5]:.0f} ms)")
    leave(browser, server_again(browser, server))
    say(f"page: the views of a server, {checks} checks")


def main():
    if SHOTS:
        os.makedirs(SHOTS, exist_ok=True)
    browser = None
    try:
        server, store, sync = stores()
        browser = Browser(PROGRAM, overlay=os.environ.get("CI_PAGE_OVERLAY"))
        browser.look(1280)
        # A zone that no machine of a check has, and that is half an hour off the others.
        browser.zone("Asia/Kolkata")
        wanted = os.environ.get("CI_PAGE_ONLY", "")
        for name, part in (("launch", lambda: launched(browser, store)), ("store", lambda: store_views(browser, store)), ("damaged", lambda: empty_and_damaged(browser, store)),
                           ("changes", lambda: changes(browser, server, store, sync)), ("held", lambda: many_held(browser)), ("large", lambda: live_and_large(browser)), ("server", lambda: server_views(browser, server, sync)),
                           ("hostile", lambda: hostile_tab(browser, store))):
            if not wanted or name in wanted.split(","):
                part()
        check(not beyond, "measures are beyond their bounds", *beyond)
        if not wanted:
            say(f"page: {pictures} pictures of three widths in both themes")
            say(f"page: nothing found in {checks} checks of both pages")
    finally:
        if browser:
            browser.close()
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(work, ignore_errors=True)


main()
