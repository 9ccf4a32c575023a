#!/bin/sh
# The command of an array job of AWS Batch: one part of a plan for each child.
#
#   aws batch submit-job --job-name unload --job-queue extracts --job-definition unloader \
#       --array-properties size=16 --retry-strategy attempts=3 \
#       --container-overrides 'command=[aws_batch.sh,/shared/plan.json,16]'
#
# Plan and output lie on a file system that all children mount, such as EFS or FSx for Lustre. A
# child that is tried again goes on with what it had done. When the job has succeeded:
#
#   unloader merge /shared/orders
set -eu

plan=$1
parts=$2
exec unloader run "$plan" --part "auto/$parts" --resume-or-start --progress log
