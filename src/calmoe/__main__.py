"""`python -m calmoe` is the command line."""

from calmoe.commands import app

if __name__ == "__main__":
    app(prog_name="calmoe")
