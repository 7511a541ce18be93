"""`python -m checklist_rewards`: the command line."""

from checklist_rewards.cli import main

main()
