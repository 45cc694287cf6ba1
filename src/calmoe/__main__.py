"""`python -m calmoe` is the command line."""

from calmoe.cli import app

app(prog_name="calmoe")
