"""Avro schemas of all events, every released version, and what holds between the versions."""
