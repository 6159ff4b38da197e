"""Layers behind the disk cache: folders that are read, and a shared place that is written too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from tests.compile.test_warm_start import PROGRAM
from tests.meta.sources import ROOT
from tilewright.base.cache_layers import FolderLayer, LayeredCache, RemoteLayer, Signature
from tilewright.base.disk_cache import DiskCache
from tilewright.base.errors import KnobError, UnsupportedError

KEY, OTHER = "ab" * 32, "cd" * 32


def cache(folder: Path, *layers) -> LayeredCache:
    return LayeredCache(DiskCache(folder, 1 << 20), list(layers))


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    yield f"memory://{tmp_path.name}" if request.param == "memory" else f"file://{tmp_path}/shared"
    fsspec.filesystem("memory").store.clear()


def test_what_one_machine_compiles_another_finds(tmp_path, url):
    first, second = (cache(tmp_path / name, RemoteLayer(url, True)) for name in ("first", "second"))
    first.put(KEY, b"code", {"name": "k"})
    entry = second.get(KEY)
    assert entry.payload == b"code" and entry.metadata == {"name": "k"}
    assert second.local.get(KEY) == entry  # fetched once
    assert second.get(OTHER) is None


def test_a_damaged_entry_of_a_layer_is_a_miss(tmp_path, url):
    layer = RemoteLayer(url, True)
    cache(tmp_path / "a", layer).put(KEY, b"code", {})
    files, path = fsspec.core.url_to_fs(url)
    file = f"{path}/{KEY[:2]}/{KEY[2:]}.tile"
    whole = files.cat_file(file)
    for data in (whole[:-1], whole[:10], b"", whole.replace(b"code", b"evil")):
        files.pipe_file(file, data)
        assert cache(tmp_path / "b", layer).get(KEY) is None
    files.makedirs(f"{path}/{OTHER[:2]}", exist_ok=True)
    files.pipe_file(f"{path}/{OTHER[:2]}/{OTHER[2:]}.tile", whole)  # a whole entry under another's name
    assert cache(tmp_path / "b", layer).get(OTHER) is None


def test_entries_with_another_signature_are_refused(tmp_path, url):
    ours, theirs = Signature(b"a" * 32), Signature(b"b" * 32)
    cache(tmp_path / "a", RemoteLayer(url, True, ours)).put(KEY, b"code", {"name": "k"})
    assert cache(tmp_path / "b", RemoteLayer(url, False, ours)).get(KEY).payload == b"code"
    with pytest.warns(RuntimeWarning, match="not signed with our key"):
        assert cache(tmp_path / "c", RemoteLayer(url, False, theirs)).get(KEY) is None
    assert RemoteLayer(url, False).read(KEY) is None  # who has no key cannot tell
    cache(tmp_path / "d", RemoteLayer(url, True)).put(OTHER, b"evil", {})
    with pytest.warns(RuntimeWarning, match="not signed with our key"):
        assert cache(tmp_path / "e", RemoteLayer(url, True, ours)).get(OTHER) is None


def test_a_signature_is_of_one_key_and_every_byte():
    signature = Signature(b"a" * 32)
    whole = signature.signed(KEY, b"data")
    assert signature.verified(KEY, whole) == b"data" and signature.verified(OTHER, whole) is None
    for at in range(len(whole)):
        assert signature.verified(KEY, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]) is None
        assert signature.verified(KEY, whole[:at]) is None


def test_keys_that_are_none(tmp_path):
    with pytest.raises(KnobError, match="cannot be read"):
        Signature.of_file(tmp_path / "nowhere")
    file = tmp_path / "key"
    file.write_bytes(b"short")
    with pytest.raises(KnobError, match="has 5 bytes"):
        Signature.of_file(file)
    file.write_bytes(b"k" * 32)
    Signature.of_file(file)
    if os.name == "posix":
        file.chmod(0o666)
        with pytest.raises(KnobError, match="written by others"):
            Signature.of_file(file)


def test_layers_that_are_read_stay_as_they_are(tmp_path, url):
    cache(tmp_path / "a", RemoteLayer(url, True)).put(KEY, b"code", {})
    reader = cache(tmp_path / "b", RemoteLayer(url, False))
    reader.put(OTHER, b"mine", {})
    assert reader.get(KEY) and RemoteLayer(url, False).read(OTHER) is None

    provided = DiskCache(tmp_path / "provided", 1 << 20)
    provided.put(KEY, b"code")
    provided.put(OTHER, b"more")
    broken = provided._path(OTHER)
    broken.write_bytes(b"damaged")
    before = {path: path.stat().st_mtime_ns for path in provided.folder.rglob("*")}
    os.utime(provided._path(KEY), (0, 0))
    user = cache(tmp_path / "user", FolderLayer(provided.folder))
    assert user.get(KEY).payload == b"code" and user.get(OTHER) is None
    user.put("ef" * 32, b"x", {})
    assert set(provided.folder.rglob("*")) == set(before) and provided._path(KEY).stat().st_mtime == 0


def test_a_layer_that_fails_is_reported_once_and_left_alone(tmp_path):
    class Down:
        calls = 0

        def cat_file(self, path):
            Down.calls += 1
            raise OSError("no route to host")

    layer = RemoteLayer("memory://x", True)
    layer._files = Down()
    user = cache(tmp_path, layer)
    with pytest.warns(RuntimeWarning, match="memory://x is not used any more: no route"):
        assert user.get(KEY) is None
    user.put(KEY, b"code", {})
    assert user.get(OTHER) is None and Down.calls == 1 and user.get(KEY)


def test_a_url_that_nothing_knows_says_what_to_install():
    with pytest.raises(UnsupportedError, match=r"nothing://[\s\S]*tilewright\[remote\]"):
        RemoteLayer("nothing://bucket", True)


def test_the_knobs_name_the_layers(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def run(user: str, **settings: str) -> bool:
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / user), "PYTHONPATH": str(ROOT), **settings}
        done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)[0]

    shared = {"TILEWRIGHT_CACHE_SHARED": str(tmp_path / "shared")}
    assert not run("a", **shared)
    assert run("b", **shared)
    assert run("c", TILEWRIGHT_CACHE_LAYERS=f"{tmp_path / 'none'} ; {tmp_path / 'a'}")
