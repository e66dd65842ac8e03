"""Runs and published curves: the nearest published points, what differs, and a curve as a series for the charts."""
