"""The viewer serves its page and its recording to this machine, and nothing else to anyone."""

import base64
import http.client
import json
import threading

import numpy as np
import pytest

from longhmm.errors import DataError
from longhmm.report import viewer as module
from longhmm.report.viewer import Viewer, open_run, serve
from report.pages import make_run, without_pictures


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("viewer")
    (folder / "secret.txt").write_text("not for you")
    return make_run(folder, length=3000)


@pytest.fixture(scope="module")
def viewer(run):
    with without_pictures(), Viewer(open_run(*run)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(viewer, path, method="GET", host=None):
    connection = http.client.HTTPConnection(*viewer.server_address, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{viewer.server_address[1]}")
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_it_listens_on_this_machine_only(viewer):
    assert viewer.server_address[0] == "127.0.0.1" and viewer.url.startswith("http://127.0.0.1:")


def test_the_page_is_served_and_may_ask_its_own_server(viewer):
    answer, body = ask(viewer, "/")
    assert answer.status == 200 and answer.getheader("Content-Type") == "text/html; charset=utf-8"
    text = body.decode()
    assert "What was found" in text and "connect-src 'self'" in text and '"live":true' in text
    assert ask(viewer, "/", host=f"localhost:{viewer.server_address[1]}")[0].status == 200
    head, nothing = ask(viewer, "/", method="HEAD")
    assert head.status == 200 and nothing == b"" and int(head.getheader("Content-Length")) == len(body)


def test_envelopes_are_those_of_the_record(viewer, run):
    answer, body = ask(viewer, "/envelope?start=1000&stop=1400&bins=100")
    assert answer.status == 200 and answer.getheader("Access-Control-Allow-Origin") is None
    found = json.loads(body)
    assert (found["start"], found["stop"], found["step"]) == (1000, 1400, 4)
    values, scale = np.load(run[1]), viewer.scales[0]
    for side, pick in (("low", np.min), ("high", np.max)):
        codes = np.frombuffer(base64.b64decode(found["features"][0][side]["data"]), np.uint16)
        got = scale.low + codes / 65534 * (scale.high - scale.low)
        np.testing.assert_allclose(got, pick(values[1000:1400].reshape(-1, 4), axis=1), atol=1e-3)
    samples = json.loads(ask(viewer, "/envelope?start=1000&stop=1100&bins=100")[1])
    assert samples["step"] == samples["mask_step"] == 1


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt", "/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "//etc/passwd", "/run.json",
        "/recording.npy", "/posterior/longhmm.json", "/envelope/../../secret.txt", "http://127.0.0.1/secret.txt",
        "/./", "\\..\\secret.txt",
    ],
)  # fmt: skip
def test_nothing_outside_the_run_is_served(viewer, path):
    answer, body = ask(viewer, path)
    assert answer.status == 404 and b"not for you" not in body and body == b"There is nothing here.\n"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1.evil.example", "", "[::1]"]
)
def test_other_names_of_this_address_are_refused(viewer, host):
    for path in ("/", "/envelope?start=0&stop=10&bins=5"):
        answer, body = ask(viewer, path, host=host)
        assert answer.status == 403 and b"own address only" in body


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("", "needs start, stop, bins"), ("start=a&stop=2&bins=3", "needs start"), ("start=5&stop=5&bins=3", "stop <="),
        ("start=-1&stop=5&bins=3", "0 <= start"), ("start=0&stop=99999&bins=3", "<= 3000"),
        ("start=0&stop=9&bins=0", "bins must lie"), ("start=0&stop=9&bins=999999999", "bins must lie"),
        ("start=0&stop=9&bins=3" + "&a=1" * 20, "at most 10 fields"), ("start=" + "9" * 5000, "needs start"),
    ],
)  # fmt: skip
def test_senseless_ranges_get_a_sentence(viewer, query, complaint):
    answer, body = ask(viewer, f"/envelope?{query}")
    assert answer.status == 400 and complaint in body.decode() and body.count(b"\n") == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(viewer, method):
    assert ask(viewer, "/", method=method)[0].status == 501


def test_serve_opens_the_browser_and_ends_when_interrupted(viewer, run, monkeypatch, capsys):
    seen = []

    class Interrupted(Viewer):
        def __init__(self, subject, port):
            self.page, self.scales = b"", []
            module.ThreadingHTTPServer.__init__(self, ("127.0.0.1", port), module._Handler)

        def serve_forever(self, poll_interval=0.5):
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "Viewer", Interrupted)
    monkeypatch.setattr(module, "open_run", lambda *given: None)
    monkeypatch.setattr("webbrowser.open", seen.append)
    serve(*run)
    assert len(seen) == 1 and seen[0] in capsys.readouterr().out
    serve(*run, open_browser=False, ready=seen.append)
    assert len(seen) == 2 and seen[1].startswith("http://127.0.0.1:")
    with without_pictures(), pytest.raises(DataError, match="cannot be used"):
        Viewer(viewer.subject, viewer.server_address[1])


def test_a_recording_that_is_gone_is_asked_for(tmp_path):
    run, recording = make_run(tmp_path)
    recording.unlink()
    with pytest.raises(DataError, match="The viewer needs the recording"):
        serve(run, open_browser=False)
