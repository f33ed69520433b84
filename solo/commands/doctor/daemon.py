"""The daemon cron. Imports nothing: `make install` loads it."""

CRON_PATH = "/usr/bin:/bin"  # of a crontab that sets none
