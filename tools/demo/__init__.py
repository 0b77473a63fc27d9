"""The demo: a small shop on real purchases, with services that fail, a bug, and the way to its bottom."""
