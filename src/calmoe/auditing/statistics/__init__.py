"""What the audit's sections estimate with: intervals, sequential learning, random splits, tilts."""
