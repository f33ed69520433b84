"""The PATH of a job, if none is set. Imports nothing: `make install` loads it."""

CRON_PATH = "/usr/bin:/bin"
UNIT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
