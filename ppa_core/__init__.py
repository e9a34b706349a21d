"""PPA: passive and partially active fault tolerance for stream processing."""

__version__ = "0.1.0"
