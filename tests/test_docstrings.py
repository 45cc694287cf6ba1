"""Every public name says what it takes and gives, in Google's style, with an example that runs.

The examples themselves run with the other doctests. What is public: `__all__` of the modules below.
"""

import dataclasses
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
MODULES = (
    "calmoe",
    "calmoe.mixture",
    "calmoe.objectives",
    "calmoe.rectification",
    "calmoe.sharpness",
    "calmoe.averaging",
    "calmoe.views",
    "calmoe.calibration",
    "calmoe.metrics",
    "calmoe.predictions",
    "calmoe.reading",
    "calmoe.auditing",
    "calmoe.methods",
    "calmoe.models",
    "calmoe.worlds",
)
PUBLIC = {
    f"{module}.{name}": getattr(import_module(module), name)
    for module in MODULES
    for name in import_module(module).__all__
}
FUNCTIONS = {name: thing for name, thing in PUBLIC.items() if inspect.isfunction(thing)}
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}
METHODS = {
    f"{name}.{method}": function
    for name, cls in CLASSES.items()
    for method, function in inspect.getmembers(cls, inspect.isroutine)
    if not method.startswith("_")
    and getattr(function, "__module__", None)
    and function.__module__.startswith("calmoe.")
    and method not in ("forward", "loss")
}


def section(doc, title):
    """The names that a section lists, or its text where it lists none."""
    text = re.search(rf"^{title}:\n((?:[ ]{{4}}.*\n?|\n)+)", doc, re.MULTILINE)
    return "" if text is None else inspect.cleandoc(text[1])


def listed(doc, title):
    return set(re.findall(r"^(\w+):", section(doc, title), re.MULTILINE))


def parameters(thing):
    return {name for name in inspect.signature(thing).parameters if name not in ("self", "cls", "args", "_")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function, doc = FUNCTIONS[name], inspect.getdoc(FUNCTIONS[name]) or ""
    assert parameters(function) == listed(doc, "Args")
    returns = inspect.signature(function).return_annotation
    assert bool(section(doc, "Returns")) == (returns not in (None, "None"))
    assert ">>>" in section(doc, "Example")


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name):
    cls, doc = CLASSES[name], inspect.cleandoc(CLASSES[name].__doc__ or "")
    if not issubclass(cls, Warning):
        taken, kept = listed(doc, "Args"), listed(doc, "Attributes")
        assert parameters(cls) in (taken, taken | kept, kept)
        if dataclasses.is_dataclass(cls):
            public = {field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")}
            assert public <= taken | kept
    assert ">>>" in section(doc, "Example")


@pytest.mark.parametrize("name", METHODS)
def test_methods_say_what_they_take(name):
    doc = inspect.getdoc(METHODS[name]) or ""
    assert doc
    missing = {each for each in parameters(METHODS[name]) if not re.search(rf"\b{each}\b", doc)}
    assert not missing - {"path", "saved"}  # of save, load and from_dict, whose names say it


@pytest.mark.parametrize("name", CLASSES)
def test_properties_have_a_line(name):
    own = [
        member
        for member, value in inspect.getmembers(CLASSES[name], lambda value: isinstance(value, property))
        if value.fget.__module__.startswith("calmoe.") and not member.startswith("_")
    ]
    assert [member for member in own if not inspect.getdoc(getattr(CLASSES[name], member))] == []


def test_every_public_name_is_on_a_page():
    pages = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    whole = set(re.findall(r"automodule:: (\S+)\n(?! *:no-members:)", pages))
    alone = {
        name for block in re.findall(r"{names} \S+\n(.*?)```", pages, re.DOTALL) for name in block.split()
    }
    for name in (name for name, thing in PUBLIC.items() if not inspect.ismodule(thing)):
        module, _, last = name.rpartition(".")
        assert module in whole or last in alone, f"{name} is on no page of docs/api"
