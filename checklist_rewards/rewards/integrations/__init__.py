"""Rewards for frameworks other than TRL, one module each, using the same scorer."""
