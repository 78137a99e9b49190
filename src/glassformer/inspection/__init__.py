"""Inspect a trace: worksheets, explanations of numbers, heads, patching, plots."""
