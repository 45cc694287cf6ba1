"""Experiments: a spec (TOML), methods as data, a plan with shared warm-ups, and a run folder to trust.

`runner.run(load_preset("digits"), Path("runs/digits"))` is what `calmoe run digits` does.
"""
