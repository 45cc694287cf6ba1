"""What labelled source rows say about an unlabelled target."""
