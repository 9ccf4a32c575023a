#!/bin/sh
# One part of a plan for each task of a Slurm array, then one manifest over all of them.
#
#   unloader plan oracle://etl@db01:1521/SALES --table ORDERS --to /shared/orders \
#       --parallelism 8 --output plan.json
#   parts=$(sbatch --parsable --array=1-16 slurm.sh plan.json 16)
#   sbatch --dependency=afterok:"$parts" --wrap 'unloader merge /shared/orders'
#
# --parallelism of the plan is the number of workers of each task, as --cpus-per-task here. The
# array must begin at 1 and end at the number of parts. A task that failed is submitted again
# with its own number, such as --array=7: it goes on with what it had done.
#SBATCH --job-name=unload
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
set -eu

plan=$1
parts=$2
exec unloader run "$plan" --part "auto/$parts" --resume-or-start --progress log
