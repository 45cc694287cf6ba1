"""An audit in words, in figures and on a page."""
