"""A conformance suite for rewards that ask a judge: what judges and servers do, and what a sound reward makes of it.

`README.md` is the specification, `cases.json` the cases, `checklist.schema.json` the schema of a checklist. Nothing in
this folder but one adapter needs the package, so other projects can copy it.
"""
