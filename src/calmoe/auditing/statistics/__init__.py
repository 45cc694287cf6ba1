"""Estimates with honest intervals, and the learners and adversaries behind them."""
