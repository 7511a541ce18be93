#!/bin/bash
# Score a folder of shards on all GPUs of a Slurm allocation:
#
#     sbatch recipes/cluster/slurm.sh /shared/answers /shared/scored /shared/judge
#
# Adapt the numbers of #SBATCH, and gpus_per_node with them. On all nodes, the environment of the job needs
# `checklist-rewards[ray,vllm]`; the package is not on a public index yet, so install its wheel
# (`pip wheel --no-deps -w dist .`). The paths must be on a file system that all nodes share.
#
# A job that reaches its time limit is submitted again with the same arguments and resumes.
#SBATCH --job-name=checklist-rewards
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=08:00:00
set -euo pipefail

rows=$1 output=$2 judge=$3
gpus_per_node=8
port=6379

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
head_ip=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | cut -d ' ' -f 1)
export RAY_ADDRESS=$head_ip:$port

srun --nodes=1 --ntasks=1 -w "$head" \
    ray start --head --node-ip-address="$head_ip" --port="$port" --num-gpus="$gpus_per_node" --block &
sleep 20
workers=$((SLURM_JOB_NUM_NODES - 1))
if ((workers > 0)); then
    srun --nodes="$workers" --ntasks="$workers" --exclude="$head" \
        ray start --address="$RAY_ADDRESS" --num-gpus="$gpus_per_node" --block &
fi

# Actors that start before all nodes have joined wait for them. The stores of answers stay on the shared file system
# with the output, so that a shard may continue on another node.
srun --overlap --nodes=1 --ntasks=1 -w "$head" \
    checklist-rewards score "$rows" -o "$output" --ray --model "$judge" \
    --actors "$((SLURM_JOB_NUM_NODES * gpus_per_node))" --num-gpus 1
