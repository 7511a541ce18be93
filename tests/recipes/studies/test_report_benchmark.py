"""The benchmark of the report page runs and measures what it says."""

import pytest
from studies.benchmarks import report

from tests.ui import browser


@pytest.mark.slow
@pytest.mark.study
def test_a_small_page(tmp_path):
    output = tmp_path / "report.json"
    found = report.main(["--rows", "200", "--items", "4", "--repeats", "1", "--output", str(output)])
    assert output.is_file() and found["generation"]["rows"] == 200
    assert found["generation"]["rows_per_second"] > 0 and 0 < found["generation"]["page_mib"] < 5
    if browser.found() is not None:
        assert all(min(milliseconds) > 0 for milliseconds in found["browser"].values())
