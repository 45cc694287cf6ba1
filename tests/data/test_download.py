import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from calmoe.data import cifar10h, download
from calmoe.errors import InputError

BODY = np.random.default_rng(0).bytes(300_000)
MD5 = hashlib.md5(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves server.files; answers ranges unless told not to; cuts the next body after server.cut bytes."""

    def do_GET(self):
        server = self.server
        server.ranges.append(self.headers.get("Range"))
        body = server.files.get(self.path)
        if body is None:
            return self.send_error(404)
        start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-")) if server.resumes else 0
        if start >= len(body):
            return self.send_error(416)
        self.send_response(206 if server.resumes else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start:][: server.cut])
        server.cut = None
        return None

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.ranges, server.cut, server.resumes = {"/file": BODY}, [], None, True
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_whole_download(server, tmp_path):
    to = download.download(server.url + "/file", tmp_path / "new" / "file", MD5)
    assert to.read_bytes() == BODY
    assert [path.name for path in to.parent.iterdir()] == ["file"]


def test_what_is_right_is_not_fetched_again(server, tmp_path):
    (tmp_path / "file").write_bytes(BODY)
    download.download(server.url + "/file", tmp_path / "file", MD5)
    assert server.ranges == []


@pytest.mark.parametrize("resumes", [True, False])
def test_a_cut_download_goes_on(server, tmp_path, resumes):
    server.cut, server.resumes = 100_000, resumes
    with pytest.raises(InputError, match=r"cut after 100,000 of 300,000 bytes\): try again to resume"):
        download.download(server.url + "/file", tmp_path / "file", MD5)
    assert [path.name for path in tmp_path.iterdir()] == ["file.part"]
    assert download.download(server.url + "/file", tmp_path / "file", MD5).read_bytes() == BODY
    assert server.ranges == ["bytes=0-", "bytes=100000-"]


def test_a_part_that_is_already_whole(server, tmp_path):
    (tmp_path / "file.part").write_bytes(BODY)
    assert download.download(server.url + "/file", tmp_path / "file", MD5).read_bytes() == BODY


@pytest.mark.parametrize("wrong", [{"md5": "0" * 32}, {"check": lambda path: False}])
def test_wrong_content_is_removed(server, tmp_path, wrong):
    with pytest.raises(InputError, match="wrong checksum or content"):
        download.download(server.url + "/file", tmp_path / "file", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_something_else_is_removed(server, tmp_path):
    (tmp_path / "file.part").write_bytes(b"something else")
    with pytest.raises(InputError, match="wrong checksum"):
        download.download(server.url + "/file", tmp_path / "file", MD5)
    assert download.download(server.url + "/file", tmp_path / "file", MD5).read_bytes() == BODY


def test_not_there(server, tmp_path):
    with pytest.raises(InputError, match=rf"404.*fetch it by hand, put it at {tmp_path}/file") as refusal:
        download.download(server.url + "/nothing", tmp_path / "file", MD5)
    assert "\n" not in str(refusal.value)


def test_no_network(server, tmp_path):
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(InputError, match=r"refused.*by hand") as refusal:
        download.download(url + "/file", tmp_path / "file", MD5)
    assert "\n" not in str(refusal.value)


def test_no_place_to_write(server, tmp_path):
    (tmp_path / "folder").touch()
    with pytest.raises(InputError, match="cannot write"):
        download.download(server.url + "/file", tmp_path / "folder" / "file", MD5)


def make_archive(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def serve_cifar(server, monkeypatch, archive, batches):
    counts = io.BytesIO()
    np.save(counts, np.ones((3, 10)))
    server.files = {"/cifar-10-binary.tar.gz": archive, "/counts.npy": counts.getvalue()}
    monkeypatch.setattr(download, "CIFAR10_URL", server.url + "/cifar-10-binary.tar.gz")
    monkeypatch.setattr(download, "CIFAR10H_URL", server.url + "/counts.npy")
    monkeypatch.setattr(download, "CIFAR10_MD5", hashlib.md5(archive).hexdigest())
    monkeypatch.setattr(download, "are_cifar10h_counts", lambda path: True)
    md5 = {name: hashlib.md5(content).hexdigest() for name, content in batches.items()}
    monkeypatch.setitem(cifar10h.MD5, cifar10h.BINARY, md5)


def test_fetch_cifar10h(server, tmp_path, monkeypatch):
    batches = {f"{name}.bin": bytes(3073 * 3) for name in (*cifar10h.BATCHES, cifar10h.TEST_BATCH)}
    archive = make_archive({f"{cifar10h.BINARY}/{name}": content for name, content in batches.items()})
    serve_cifar(server, monkeypatch, archive, batches)
    download.fetch_cifar10h(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [cifar10h.BINARY, cifar10h.COUNTS]
    cifar10h.check_images(tmp_path / cifar10h.BINARY)
    assert len(cifar10h.load(tmp_path).test) == 3
    server.ranges.clear()
    download.fetch_cifar10h(tmp_path)
    assert server.ranges == []


def test_an_archive_that_leaves_its_folder_is_refused(server, tmp_path, monkeypatch):
    serve_cifar(server, monkeypatch, make_archive({"../../outside": b"x"}), {"test_batch.bin": b""})
    with pytest.raises(InputError, match="cannot unpack"):
        download.fetch_cifar10h(tmp_path / "to")
    assert not (tmp_path / "outside").exists()


def test_counts_are_known_by_their_content(tmp_path):
    path = tmp_path / "counts.npy"
    counts = np.zeros((10_000, 10), int)
    counts[:, 0], counts[:, 1] = 46, 5
    counts[:327, 0], counts[:327, 1] = 26, 25
    counts[0, 0] += 1_400
    np.save(path, counts)
    assert download.are_cifar10h_counts(path) is False
    counts[0, 0] -= 1_000
    np.save(path, counts)
    assert download.are_cifar10h_counts(path) is False  # 326 under 0.7
    counts[327, :2] = 26, 25
    np.save(path, counts)
    assert download.are_cifar10h_counts(path) is True
    path.write_bytes(b"<html>")
    assert download.are_cifar10h_counts(path) is False
