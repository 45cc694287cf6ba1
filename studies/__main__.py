"""`python -m studies`: the list of studies, and each of them."""

import sys

from calmoe.errors import InputError
from studies.app import app


def main() -> None:
    try:
        app(prog_name="python -m studies")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
