"""The page of a run on disk: written to a file, or served, so that it can ask for single samples when it is zoomed in.
The server refuses requests that name another host: a page from elsewhere must not make a browser read the recording."""

import json
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.errors import DataError, LongHMMError
from longhmm.posterior.posterior import load
from longhmm.posterior.run_directory import REQUEST, RunDirectory
from longhmm.posterior.store import Place
from longhmm.report.page import build_page, write_page
from longhmm.report.stages import in_stages
from longhmm.report.subject import Subject, data_name, pack_stretch, ranges

PAGE = "report.html"
ADDRESS = "127.0.0.1"
MOST_BINS = 1 << 15
MOST_FIELDS = 10  # in a query
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def write_report(run_dir: Place, out: Place | None = None, data: Any = None, *, progress: bool = True) -> Path:
    """Write the page of a run, by default to `report.html` in its directory, and return where it is.

    Args:
        run_dir: a directory that `longhmm fit` or `Posterior.save` made.
        out: the file to write.
        data: the recording, if it is not where it was; without it the page has no trace.
        progress: show what is being done, if it takes longer than a moment.
    """
    with in_stages(progress):
        return write_page(open_run(run_dir, data), Path(run_dir) / PAGE if out is None else Path(out))


def open_run(run_dir: Place, data: Any = None) -> Subject:
    """A run and its recording, decoded; a recording that was asked for by name must be there."""
    place = Path(run_dir)
    run = RunDirectory.open(place) if (place / REQUEST).is_file() else None
    posterior = load(place) if run is None else run.posterior()
    name, sequences, notes = data_name(posterior), None, []
    try:
        if run is not None:
            sequences = run.data(data)
        elif data is not None or (Path(name).is_absolute() and Path(name).exists()):
            sequences = open_data(name if data is None else data)
        else:
            notes.append("The recording is not shown: the run does not say where it is. Give it as a second argument.")
    except (LongHMMError, OSError) as error:
        if data is not None:
            raise
        notes.append(f"The recording is not shown, since it cannot be read: {error}")
    if run is None:
        rate, unit = (None, None) if sequences is None else (sequences.rate, sequences.unit)
        return Subject(posterior, sequences, Path(name).name or place.name, rate, unit or "", notes=notes)
    steps, names = run.preprocessing, [Path(str(each)).name for each in run.request["recordings"]]
    done = {
        f"one sample in {steps.decimate} was kept": steps.decimate > 1,
        "logarithms were taken": steps.log,
        "a slow trend was subtracted": steps.detrend,
        "it was centred and scaled": steps.normalise,
    }
    if any(done.values()):
        changes = "; ".join(words for words, true in done.items() if true)
        notes.append(f"Before it was fitted the recording was changed: {changes}.")
    title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    undo = steps.in_file_units if steps.log or steps.normalise else np.asarray
    return Subject(posterior, sequences, title, run.model_rate, run.unit or "", steps.decimate, undo, notes)


class Viewer(ThreadingHTTPServer):
    """A server for one run; `url` is where to look."""

    daemon_threads = True

    def __init__(self, subject: Subject, port: int = 0) -> None:
        if subject.data is None:
            raise DataError("The viewer needs the recording, and it cannot be read; give the file as recording.")
        self.subject = subject
        self.scales = ranges(subject.data, subject.levels)
        self.page = build_page(subject, live=True).encode("utf-8")
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            raise DataError(f"port {port} cannot be used ({error}); give another one, or 0 for any.") from None
        self.hosts = {f"{name}:{self.server_address[1]}" for name in (ADDRESS, "localhost")}

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def envelope(self, start: int, stop: int, bins: int) -> dict[str, Any]:
        """A stretch of the recording, packed like the page packs the whole."""
        data = self.subject.data
        assert data is not None
        if not 1 <= bins <= MOST_BINS:
            raise DataError(f"bins must lie between 1 and {MOST_BINS}, got {bins}.")
        return pack_stretch(data, self.subject.found, self.scales, start, stop, bins * len(self.scales))


class _Handler(BaseHTTPRequestHandler):
    server: Viewer
    server_version, sys_version = "longhmm", ""
    timeout = 30

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if self.headers.get("Host") not in self.server.hosts:
            self._send(HTTPStatus.FORBIDDEN, b"This server answers to its own address only.\n", "text/plain")
        elif asked.path == "/":
            self._send(HTTPStatus.OK, self.server.page, "text/html")
        elif asked.path == "/envelope":
            try:
                found = self.server.envelope(**_numbers(asked.query))
                self._send(HTTPStatus.OK, json.dumps(found, separators=(",", ":")).encode("ascii"), "application/json")
            except LongHMMError as error:
                self._send(HTTPStatus.BAD_REQUEST, f"{error}\n".encode(), "text/plain")
        else:
            self._send(HTTPStatus.NOT_FOUND, b"There is nothing here.\n", "text/plain")

    do_HEAD = do_GET

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the person."""


def _numbers(query: str) -> dict[str, int]:
    fields = query.count("&") + 1
    if fields > MOST_FIELDS:
        raise DataError(f"envelope takes at most {MOST_FIELDS} fields, got {fields}.")
    given = parse_qs(query)
    try:
        return {name: int(given[name][0]) for name in ("start", "stop", "bins")}
    except (KeyError, ValueError):
        raise DataError(f"envelope needs start, stop, bins as whole numbers, got {query[:100]!r}.") from None


def serve(
    run_dir: Place,
    recording: Any = None,
    port: int = 0,
    open_browser: bool = True,
    *,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Show a run with its recording in the browser, until interrupted.

    Args:
        run_dir: a directory that `longhmm fit` or `Posterior.save` made.
        recording: the recording; by default the one of the run.
        port: to listen on; 0 takes any that is free.
        open_browser: whether to open the page.
        ready: called with the address once the server listens, instead of printing it.
    """
    with Viewer(open_run(run_dir, recording), port) as viewer:
        if ready is None:
            print(f"Showing the run at {viewer.url} (stop with Ctrl-C)", flush=True)
        else:
            ready(viewer.url)
        if open_browser:
            import webbrowser

            webbrowser.open(viewer.url)
        with suppress(KeyboardInterrupt):
            viewer.serve_forever()
