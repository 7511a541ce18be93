"""Scores as rewards for trainers. Each trainer library has its own module, so that importing one requires no other."""
