"""How to show anything: numbers in tables, plots, figures, pages, and the words around them."""
