"""Numbers that must agree wherever they are a default: metrics, tables, figures and the audit."""

BINS = 15  # of confidence, as in the paper
LEVEL = 0.95  # of intervals
