"""Rewards for other frameworks than TRL, one module each, over the same scorer."""
