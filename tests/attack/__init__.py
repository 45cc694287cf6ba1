"""The standing attack on everything that calmoe reads and writes; docs/security.md says what it shows."""
