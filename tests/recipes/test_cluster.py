"""The files for clusters: each is checked by the schema or the linter of what reads it."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.conftest import REPO
from tests.test_docs import parse

FOLDER = REPO / "recipes" / "cluster"
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}}


def test_the_cluster_file_is_one_of_ray_up():
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'checklist-rewards[ray]')")
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    config = yaml.safe_load((FOLDER / "ray.yaml").read_text())
    jsonschema.validate(config, schema)
    assert config["head_node_type"] in config["available_node_types"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config | {"max_worker": 8}, schema)


def test_the_slurm_script_is_bash():
    script = FOLDER / "slurm.sh"
    subprocess.run(["bash", "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True)


def test_the_kubernetes_job_has_valid_pods():
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    job = yaml.safe_load((FOLDER / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        validate.validate(POD | group["template"], "1.31", strict=True)
    broken = POD | {"spec": {"containers": [{"name": "x", "imag": "y"}]}}
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, "1.31", strict=True)


@pytest.mark.parametrize("name", ["ray.yaml", "slurm.sh", "rayjob.yaml"])
def test_the_commands_parse(name):
    text = re.sub(r"\\\n#?", " ", (FOLDER / name).read_text())
    found = re.findall(r"(checklist-rewards score .*?)[\"\n]", re.sub(r'"\$[^"]*"', "8", text))
    assert found
    for command in found:
        parse(shlex.split(command)[1:], name)
