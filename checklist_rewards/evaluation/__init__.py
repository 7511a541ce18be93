"""Can the judge be trusted? Agreement with people, calibration, the worth of each item, cascades, baselines."""
