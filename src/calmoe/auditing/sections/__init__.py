"""What an audit looks at, a module a section."""
