"""Search over candidates, timing, reports."""
