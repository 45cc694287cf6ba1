"""What the audit looks at: one section a file, its numbers, words, tables, figures and page part."""
