#!/bin/sh
# gpus.sh COMMAND [ARG]...: run COMMAND with one of four GPUs, or wait for the first free one.
exec solo -n gpu --slots 4 --wait forever -- sh -c 'CUDA_VISIBLE_DEVICES=$SOLO_SLOT exec "$@"' sh "$@"
