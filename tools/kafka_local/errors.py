"""The one error of the local broker."""


class LocalKafkaError(Exception):
    """A local broker cannot be resolved, started or stopped; the message names reason and remedy."""
