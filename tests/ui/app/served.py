"""The command line whose jobs are forks of the zygote: `python -m tests.ui.app.served ui FOLDER`."""

from checklist_rewards.cli import main
from checklist_rewards.ui import jobs
from tests import zygote

jobs.COMMAND = (*zygote.PYTHON, "-m", "checklist_rewards.cli")
main()
