"""The one exception for bad input: a line that says what is wrong and what to do."""


class InputError(ValueError):
    """Something the user gave is wrong. The message is one line: cause and remedy.

    The command line prints it and exits with code 2; no traceback.
    """
