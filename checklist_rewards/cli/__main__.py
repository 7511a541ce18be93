"""`python -m checklist_rewards.cli`."""

from checklist_rewards.cli import main

main()
