"""Named configurations."""
