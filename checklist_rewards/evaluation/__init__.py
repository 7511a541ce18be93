"""Can the judge be trusted? Agreement with people, calibration, item analysis, cascade simulation."""
