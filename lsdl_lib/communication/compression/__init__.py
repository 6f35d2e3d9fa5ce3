"""Compression: fewer bytes for a gradient, and what that costs in quality."""
