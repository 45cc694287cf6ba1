import os
import shutil
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from calmoe.data import domains, image_cache, load_dataset, pacs
from calmoe.data.image_cache import CACHE, decode, decoded
from calmoe.errors import InputError
from image_folders import CLASSES, write_images, write_pacs

SIZE = 32


@pytest.fixture
def root(tmp_path):
    return write_images(tmp_path / "images")


def load(root, protocol="corrected", target="photo", module=domains):
    return module.load(root, protocol, target, size=SIZE)


def cells(split):
    return Counter(zip(split.groups["domain"].tolist(), split.groups["class"].tolist(), strict=True))


def refused(root, words, **options):
    """The one line; and no cache file but whole ones."""
    with pytest.raises(InputError, match=words) as refusal:
        load(root, **options)
    assert "\n" not in str(refusal.value)
    left = [path for path in root.glob(f"{CACHE}/*") if path.name != ".lock"]
    assert all(image_cache._whole(path.with_suffix(".rgb"), SIZE) is not None for path in left)
    return str(refusal.value)


# --- splits


def test_the_target_is_tested_and_never_trained_on(root):
    data = load(root)
    assert data.name == "domains-photo"
    assert data.class_names == CLASSES
    assert set(cells(data.train)) == {(d, c) for d in ("clipart", "sketch") for c in CLASSES}
    assert data.test.groups["class"].tolist() == [c for c in CLASSES for _ in range(20)]
    assert data.test.labels.tolist() == [label for label in range(3) for _ in range(20)]
    files = sorted(path for path in (root / "photo").rglob("*.*"))
    expected = np.stack([decode(path, SIZE) for path in files]).transpose(0, 3, 1, 2)
    assert (data.test.inputs.numpy() == expected).all()
    assert data.hard is None
    assert (data.crop_padding, data.flip, data.input_shape) == (SIZE // 8, True, (3, SIZE, SIZE))


def test_corrected_validates_on_a_tenth_of_every_domain_and_class(root):
    data = load(root)
    assert set(cells(data.validation).values()) == {2}
    assert set(cells(data.train).values()) == {18}
    assert not data.validation_augmented
    assert load(root).fingerprint() == data.fingerprint()


def test_published_validates_on_the_last_rows_and_loses_whole_cells(root):
    for path in sorted((root / "sketch/owl").iterdir())[5:]:
        path.unlink()  # a last class of 5 where a tenth of 105 rows is 10
    data = load(root, "published")
    assert cells(data.validation) == {("sketch", "dog"): 5, ("sketch", "owl"): 5}
    assert ("sketch", "owl") not in cells(data.train)
    assert data.validation_augmented
    assert list(cells(data.train)) == [(d, c) for d in ("clipart", "sketch") for c in CLASSES][:-1]


def test_every_row_has_the_pixels_of_its_own_file(root):
    files = [p for d in ("clipart", "sketch") for c in CLASSES for p in sorted((root / d / c).iterdir())]
    expected = {decode(path, SIZE).tobytes(): path.parent for path in files}
    data = load(root)
    seen = []
    for split in (data.train, data.validation):
        for image, domain, label in zip(split.inputs, *split.groups.values(), strict=True):
            folder = expected[image.permute(1, 2, 0).contiguous().numpy().tobytes()]
            assert (folder.parent.name, folder.name) == (domain, label)
            seen.append(image)
    assert len(seen) == len(files)


def test_images_lie_in_memory_as_the_trainer_wants_them(root):
    data = load(root)
    for split in data.splits.values():
        assert split.inputs.is_contiguous(memory_format=torch.channels_last)


def test_the_fingerprint_is_of_the_pixels_not_of_their_place_in_memory(root):
    data = load(root)
    packed = [
        replace(split, inputs=split.inputs.clone(memory_format=torch.contiguous_format))
        for split in data.splits.values()
    ]
    same = replace(data, **dict(zip(data.splits, packed, strict=True)))
    assert same.fingerprint() == data.fingerprint()


def test_pacs_has_its_four_domains_in_the_order_of_the_papers_code(tmp_path):
    data = load(write_pacs(tmp_path), target="sketch", module=pacs)
    assert list(dict.fromkeys(data.train.groups["domain"])) == ["art_painting", "cartoon", "photo"]
    assert data.class_names == pacs.CLASSES
    published = load(tmp_path, "published", "art_painting", module=pacs)
    assert list(cells(published.validation)) == [("sketch", "house"), ("sketch", "person")]


def test_by_name(root):
    data = load_dataset("domains", root, "corrected", "sketch")
    assert data.input_shape == (3, 224, 224)
    assert data.crop_padding == 28


# --- which files count


def test_hidden_files_and_other_files_do_not_count(root):
    before = load(root).fingerprint()
    (root / "photo/cat/._000.jpg").write_bytes(b"rubbish")
    (root / "photo/cat/notes.txt").write_text("no image")
    (root / "photo/.git").mkdir()
    (root / ".hidden/cat").mkdir(parents=True)
    (root / "lists").mkdir()
    (root / "lists/train.txt").write_text("no domain")
    (root / "photo/empty").mkdir()
    assert load(root).fingerprint() == before


def test_a_domain_may_lack_a_class_but_not_in_pacs(root, tmp_path):
    for path in (root / "sketch/owl").iterdir():
        path.unlink()
    data = load(root)
    assert data.class_names == CLASSES
    assert ("sketch", "owl") not in cells(data.train)
    (root / "sketch/zebra").mkdir()
    Image.new("L", (8, 8)).save(root / "sketch/zebra/only.PNG")
    data = load(root)
    assert data.class_names == (*CLASSES, "zebra")
    assert cells(data.train)["sketch", "zebra"] == 1  # a single image trains
    whole = write_pacs(tmp_path / "pacs")
    for path in (whole / "cartoon/horse").iterdir():
        path.unlink()
    refused(whole, "cartoon/horse has no images", module=pacs)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1"])
def test_every_sort_of_image_becomes_rgb(tmp_path, mode):
    path = tmp_path / f"image.{'tif' if mode == 'CMYK' else 'png'}"
    Image.new("RGB", (20, 10), (255, 255, 255)).convert(mode).save(path)
    assert decode(path, 8).shape == (8, 8, 3)
    assert (decode(path, 8) == 255).all()


@pytest.mark.parametrize("suffix", ["png", "tif", "ppm"])
def test_16_bits_become_8(tmp_path, suffix):
    path = tmp_path / f"image.{suffix}"
    eight = np.arange(256, dtype=np.uint16).reshape(16, 16)
    wide = 257 * eight + np.where(eight % 255, 100, 0).astype(np.uint16)  # nearest to the same 8 bits
    if suffix == "ppm":
        path.write_bytes(b"P5 16 16 65535 " + wide.astype(">u2").tobytes())
    else:
        Image.fromarray(wide).save(path)
    assert (decode(path, 16) == eight[:, :, None]).all()


@pytest.mark.parametrize(("kind", "said"), [(np.float32, "float"), (np.int32, "32-bit")])
def test_pixels_of_unknown_range_are_refused_by_name(tmp_path, kind, said):
    path = tmp_path / "image.tif"
    Image.fromarray(np.linspace(0, 1000, 64).reshape(8, 8).astype(kind)).save(path)
    with pytest.raises(InputError, match=rf"image\.tif has {said} pixels: save it with 8 or 16 bits"):
        decode(path, 8)


def test_an_image_too_large_is_not_called_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)
    path = tmp_path / "image.png"
    Image.new("1", (8, 8)).save(path)
    with pytest.raises(InputError, match=r"image\.png is too large, over 60 pixels"):
        decode(path, 8)


# --- what is passed over


def test_a_whole_folder_has_nothing_to_tell(root, tmp_path):
    assert load(root).notes == ()
    assert load(write_pacs(tmp_path / "pacs"), module=pacs).notes == ()


def test_what_does_not_count_is_told(root):
    before = load(root).fingerprint()
    for name in ("one", "two"):
        (root / f"photo/cat/{name}.heic").write_bytes(b"")
    (root / "photo/cat/.hidden.heic").write_bytes(b"")
    (root / "README.txt").write_text("not meant to be an image")
    (root / "photo/dog/deep").mkdir()
    Image.new("L", (8, 8)).save(root / "photo/dog/deep/000.png")
    (root / "sketch/owl/lost.jpg").symlink_to(root / "nowhere.jpg")
    (root / "lists").mkdir()
    data = load(root)
    assert [note.partition(": ")[0] for note in data.notes] == [
        "folder lists passed over",
        "2 files passed over, such as photo/cat/one.heic",
        "1 file passed over, photo/dog/deep/000.png",
        "1 file passed over, sketch/owl/lost.jpg",
    ]
    assert data.fingerprint() == before  # the notes are no part of it


def test_a_name_that_is_not_utf8_can_be_told(root):
    path = os.fsencode(root / "photo/cat") + b"/\xff.heic"
    with open(path, "wb"):
        (note,) = load(root).notes
    assert "photo/cat/\\xff.heic" in note


def test_classes_that_a_domain_lacks_are_told(root):
    shutil.rmtree(root / "sketch/owl")
    for path in (root / "photo/owl").iterdir():
        path.unlink()
    (root / "clipart/zebra").mkdir()
    assert load(root).notes == (
        "class owl: no image in domains photo, sketch",
        "class zebra: no image in any domain, so it is no class",
    )
    for i in range(9):
        (root / f"clipart/zebra{i}").mkdir()
    assert load(root).notes[4:] == (
        "class zebra2: no image in any domain, so it is no class",
        "6 more such classes",
    )


# --- images that are no unseen domain's


def test_images_of_the_target_that_a_source_has_are_told(root):
    shutil.copy(root / "sketch/dog/000.png", root / "photo/cat/copy.png")  # and under another class
    (note,) = load(root).notes
    assert note == (
        "1 of 61 images of photo is also in sketch (the same file, byte for byte): "
        "results on them are not of an unseen domain"
    )
    (root / "alias").symlink_to(root / "photo")
    shutil.copytree(root / "sketch/owl", root / "photo/owl", dirs_exist_ok=True)
    (note,) = load(root).notes
    assert note.startswith("61 of 61 images of photo are also in alias, sketch (the same file")


def test_images_that_only_sources_share_are_not_told(root):
    shutil.copytree(root / "sketch", root / "drawing")
    shutil.copy(root / "photo/cat/000.png", root / "photo/cat/again.png")  # twice in the target itself
    assert load(root).notes == ()


# --- what is wrong


def test_a_class_that_only_the_target_has_is_refused(root):
    (root / "photo/cat").rename(root / "photo/Cat")
    said = refused(root, "only the target has class Cat, in .*photo, which cannot be learned")
    assert "case-sensitive" in said
    assert not (root / CACHE).exists()
    assert load(root, target="sketch").class_names == ("Cat", *CLASSES)  # a source may have its own


def test_one_class_is_refused(tmp_path):
    refused(write_images(tmp_path, classes=("cat",)), "needs at least two classes, .*: found cat")


def test_too_few_images_say_how_many_are_needed(tmp_path):
    few = write_images(tmp_path / "few", ("photo", "sketch"), count=3)
    for protocol in ("corrected", "published"):
        refused(few, "9 outside of photo, at least 10 are needed", protocol=protocol)
    Image.new("L", (8, 8)).save(few / "sketch/cat/new.png")
    assert [len(load(few, protocol).validation) for protocol in ("corrected", "published")] == [3, 1]
    alone = write_images(tmp_path / "alone", ("photo", *"abcd"), count=1)
    refused(alone, "12 outside of photo, each alone in its class and domain: at least two are needed there")


@pytest.mark.parametrize("place", [b"/\xff", b"/sketch/\xff"])
def test_a_folder_whose_name_is_not_utf8_is_refused(root, place):
    os.mkdir(os.fsencode(root) + place)
    refused(root, r"has a folder whose name is not UTF-8, b'\\xff': rename it")


def test_wrong_folders_and_targets(root, tmp_path):
    with pytest.raises(InputError, match="--data DIR"):
        domains.load(None)
    refused(tmp_path / "nowhere", "there is no folder .*nowhere")
    refused(root, "give --target, one of clipart, photo, sketch", target="")
    refused(root, "unknown domain of .*images 'photos': did you mean 'photo'", target="photos")
    refused(root, "did you mean 'clipart'", target="CLIPART")
    refused(root / "photo", "needs at least two domains, .*: found none")
    refused(tmp_path, rf"found none; did you mean --data {root}\?")  # one level too high
    (tmp_path / "other/bare").mkdir(parents=True)
    refused(tmp_path / "other", "found none; bare has no images in class folders")
    for folder in ("empty/cat", "bare"):
        (root / folder).mkdir(parents=True)
    for target in ("empty", "bare"):
        refused(root, rf"{target} has no images in class folders .* one of clipart, photo", target=target)
    refused(root, "unknown domain of .*images '..'", target="..")
    assert not (root / CACHE).exists()  # all of this was said before anything was decoded


def test_wrong_pacs(tmp_path):
    root = write_pacs(tmp_path / "kfold", count=1)
    refused(tmp_path, rf"art_painting is missing: .*; did you mean --data {root}\?", module=pacs)
    refused(root, "too few images", protocol="corrected", module=pacs)
    (root / "photo/zebra").mkdir()
    (root / "photo/dog/000.png").rename(root / "photo/zebra/000.png")
    refused(root, "photo/dog has no images", module=pacs)
    Image.new("RGB", (8, 8)).save(root / "photo/dog/000.png")
    refused(root, "photo/zebra is no class of PACS", module=pacs)
    (root / "photo").rename(root / "photos")
    refused(root, "photo is missing: PACS has the domains", module=pacs)
    (root / "photo/dog").mkdir(parents=True)
    refused(root, r"photo has no images in class folders \(.*\): PACS has the domains", module=pacs)


@pytest.mark.parametrize("module", [domains, pacs])
def test_a_stray_folder_without_images_is_left_out_and_told(tmp_path, module):
    root = write_pacs(tmp_path)
    before = load(root, module=module).fingerprint()
    for name in ("__MACOSX/photo", "__MACOSX/photo/dog", "lists/by_class"):
        (root / name).mkdir(parents=True)
    (root / "__MACOSX/photo/._000.jpg").write_bytes(b"Mac OS X")
    data = load(root, module=module)
    assert data.fingerprint() == before
    assert [note.partition(" (")[0] for note in data.notes] == [
        "folder __MACOSX passed over: it has no images in class folders",
        "folder lists passed over: it has no images in class folders",
    ]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("owl/011.jpg", lambda data: data[: len(data) // 2]),
        ("owl/010.png", lambda data: data[: len(data) // 2]),
        ("owl/010.png", lambda data: data[:200] + b"\0" * 50 + data[250:]),
        ("owl/011.jpg", lambda data: b"no image at all"),
        ("owl/011.jpg", lambda data: b""),
    ],
)
def test_a_damaged_image_is_named(root, name, damage):
    path = root / "sketch" / name
    path.write_bytes(damage(path.read_bytes()))
    said = refused(root, "no image|damaged image")
    assert str(path) in said


# --- the cache


@pytest.fixture
def decodings(monkeypatch):
    """Paths that are decoded from now on."""
    paths = []

    def watched(path, size):
        paths.append(path)
        return decode(path, size)

    monkeypatch.setattr(image_cache, "decode", watched)
    return paths


def test_the_second_time_nothing_is_decoded(root, decodings):
    first = load(root)
    assert len(decodings) == 180
    assert load(root).fingerprint() == first.fingerprint()
    load(root, target="sketch")
    assert len(decodings) == 180
    kinds = Counter(path.suffix for path in (root / CACHE).iterdir())
    assert kinds == {".rgb": 3, ".sha256": 3, "": 1}


@pytest.mark.parametrize("change", ["byte", "name", "gone", "new"])
def test_a_change_is_decoded_anew_and_replaces_the_old(root, decodings, change):
    first, path = load(root), root / "sketch/cat/000.png"
    del decodings[:]
    match change:
        case "byte":
            image = np.array(Image.open(path))
            image[0, 0, 0] ^= 1
            Image.fromarray(image).save(path)
        case "name":
            path.rename(path.with_name("zzz.png"))
        case "gone":
            path.unlink()
        case "new":
            Image.new("RGB", (8, 8)).save(path.with_name("new.png"))
    assert load(root).fingerprint() != first.fingerprint()
    assert {path.parent.parent.name for path in decodings} == {"sketch"}
    assert len(list((root / CACHE).glob("sketch-*.rgb"))) == 1


@pytest.mark.parametrize("damage", ["flipped", "cut", "digest", "no digest"])
def test_a_damaged_cache_is_found_and_rebuilt(root, decodings, damage):
    first = load(root)
    del decodings[:]
    (path,) = (root / CACHE).glob("photo-*.rgb")
    match damage:
        case "flipped":
            content = bytearray(path.read_bytes())
            content[5000] ^= 1
            path.write_bytes(content)
        case "cut":
            path.write_bytes(path.read_bytes()[:-1])
        case "digest":
            path.with_suffix(".sha256").write_text("")
        case "no digest":
            path.with_suffix(".sha256").unlink()
    assert load(root).fingerprint() == first.fingerprint()
    assert {path.parent.parent.name for path in decodings} == {"photo"}
    assert load(root).fingerprint() == first.fingerprint()
    assert len(decodings) == 60


def test_what_a_killed_process_left_goes(root):
    (root / CACHE).mkdir()
    left = root / CACHE / ".photo-32-0123456789abcdef.rgb.0123456789abcdef"
    left.write_bytes(b"half")
    load(root)
    assert not left.exists()


def test_where_the_folder_cannot_be_written_the_users_cache_serves(root, tmp_path, monkeypatch, decodings):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (root / CACHE).write_text("a file where the folder would be")
    first = load(root)
    (folder,) = (tmp_path / "home/calmoe").iterdir()
    assert len(list(folder.glob("*.rgb"))) == 3
    del decodings[:]
    assert load(root).fingerprint() == first.fingerprint()
    assert not decodings
    folder.rename(tmp_path / "away")
    folder.write_text("and here")
    with pytest.raises(InputError, match=r"cannot write decoded images to .*calmoe-cache or "):
        load(root)


def test_two_at_once_decode_once(root, decodings):
    files = sorted((root / "photo").rglob("*.*"))
    images = []
    both = [
        threading.Thread(target=lambda: images.append(decoded(root, "photo", files, 8)[0])) for _ in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert (images[0] == images[1]).all()
    assert len(decodings) == len(files)


def test_what_is_refused_leaves_no_cache(root):
    (root / "clipart/cat/000.png").write_bytes(b"no image")
    refused(root, "000.png is no image")
    assert not (root / CACHE).exists()
    (root / "clipart/cat/000.png").unlink()
    (root / "photo/cat/000.png").write_bytes(b"no image")
    refused(root, "000.png is no image")
    assert len(list((root / CACHE).glob("*.rgb"))) == 2  # what is whole stays


def test_a_lock_that_was_removed_is_no_lock(root):
    """One waits for the lock while the other fails and removes it with the folder."""
    files, images = sorted((root / "photo").rglob("*.*")), []
    waiting = threading.Thread(target=lambda: images.append(decoded(root, "photo", files, 8)[0]))
    with suppress(KeyboardInterrupt), image_cache._locked([root / CACHE]):
        waiting.start()
        time.sleep(0.5)  # to hash the files, and to come to the lock
        raise KeyboardInterrupt
    waiting.join()
    assert len(images[0]) == len(files)
    assert sorted(path.suffix for path in (root / CACHE).iterdir()) == ["", ".rgb", ".sha256"]


def test_domains_that_share_a_beginning_keep_their_caches(tmp_path, decodings):
    root = write_images(tmp_path, ("real", "real-32", "photo"), count=4)
    load(root)
    count = len(decodings)
    load(root)
    assert len(decodings) == count


def test_a_cache_that_is_a_link_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    root, elsewhere = tmp_path / "images", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".notes.0123456789abcdef").write_text("mine")
    (root / "photo").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(root / "photo/a.png")
    (root / CACHE).symlink_to(elsewhere)
    decoded(root, "photo", [root / "photo/a.png"], 8)
    assert [path.name for path in elsewhere.iterdir()] == [".notes.0123456789abcdef"]
