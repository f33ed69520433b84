#!/bin/sh
# One run of this script at a time, started as ./nightly.sh or as `sh nightly.sh`. The name is held until the shell of the script ends.
solo hold --pid $$ nightly || exit
backup.sh --full
