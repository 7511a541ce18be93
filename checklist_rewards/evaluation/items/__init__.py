"""Quality of checklists: item analysis, review of the wording by a judge, and similarity to human checklists."""
