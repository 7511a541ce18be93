"""How good a checklist is: what its items tell apart, how a judge finds their wording, how near people's they are."""
