"""Tests of the built site, of the committed chapters and of the generated pages."""
