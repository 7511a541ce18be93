"""Refiners: checklists in, better checklists out."""
