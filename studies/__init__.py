"""Studies: what the docs say beyond a report's tables, computed again from rows and runs.

`python -m studies` lists them; `python -m studies NAME --help` shows one.
"""
