import json
import os

from calmoe.files import write_json


def test_a_path_that_is_not_utf8_comes_back_as_it_was(tmp_path):
    command = ["calmoe", "--data", os.fsdecode(b"\xff\xfe/\xc3\xb6")]
    write_json(tmp_path / "session.json", command)
    text = (tmp_path / "session.json").read_text(encoding="utf-8")
    assert "/\u00f6" in text
    assert json.loads(text) == command
