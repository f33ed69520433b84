#!/bin/sh
# worktree.sh COMMAND [ARG]...: run COMMAND once at a time in all worktrees of this repository.
repository=$(cd "$(git rev-parse --git-common-dir)/.." && pwd -P) || exit
exec solo -n "test$repository" --wait 1h -- "$@"
