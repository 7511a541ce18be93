"""Attacks on a judge: texts that should not be rewarded, and how much a judge rewards them.

- `bank`: known attacks, each a function from a response to a response. The monitor's canaries come from it.
- `attack`: [`attack`], which measures the attacks of the bank, searches for combinations, and reports both.
"""
