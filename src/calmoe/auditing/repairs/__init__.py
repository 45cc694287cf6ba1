"""Which repair of the probabilities helps, and by how much: candidates, cross-validation, the choice."""
