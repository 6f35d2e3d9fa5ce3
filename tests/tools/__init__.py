"""Tests of what the commands call."""
