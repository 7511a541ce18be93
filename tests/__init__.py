"""What the tests stand on. Look here before you write a set-up.

- Commands: the fixture `run` (`commands.py`) runs `run("score rows.jsonl -o out.jsonl", code=1)` or
  `run("score rows.jsonl", refused="a part of the error")` in an empty folder; `engine` and `no_engine` replace models.
- Files: `jsonl.py`. Images: `test_images.py`. Chat formats: `families.py`. Human labels: the fixture `data_dir`.
- Engines: `fakes.py` (P(yes) by a rule) and `judges/fakes.py` (scripts of replies, options); `encoders.py`; the
  packaged model: the fixtures `pocket` and `scorer`.
- Servers: `faultserver.py` (faults by the name of the model), `backends/answerserver.py` (answers by a function),
  `backends/brokenserver.py` (statuses), `backends/replicaservers.py`; `serving.py` serves an ASGI application.
- Processes: `forks.py` runs the tests in forks, `zygote.py` forks programs, `ranks.py` starts two ranks, `waiting.py`
  waits for them. Time: `clock.py`.
"""
