#!/bin/sh
# A step of CI. The name is held while anything that the block has started lives, even if a cancel kills the shell.
{
  solo hold --fd 9 --wait 10m deploy || exit
  build.sh
  deploy.sh
} 9>>~/deploy.lock
