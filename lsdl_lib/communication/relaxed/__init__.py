"""Relaxed synchronization: ranks that exchange less often, with fewer others, or without waiting."""
