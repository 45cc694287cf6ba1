"""How anything is shown: numbers in tables, figures, pages, and the words around them."""
