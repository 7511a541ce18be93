"""The version of this package. It stands by itself because every checklist carries it, from the lower rows up."""

__version__ = "0.1.0"
