"""Whether a text says something, whatever the sentence around it."""


def says(text, *parts):
    """Whether the parts stand in the text, in this order."""
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True
