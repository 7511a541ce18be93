"""Scores as the rewards of trainers: one module per trainer library, so that none drags in another."""
