"""What the sections share: the verdict, the page's frame, the glossary, the figures' style."""
