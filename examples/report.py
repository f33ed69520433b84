#!/usr/bin/env python3
"""Write a report: one program at a time, and none that was paused meanwhile can overwrite a newer report."""

import sqlite3
from contextlib import closing

import solo

try:
    with solo.Lock("report", wait=600) as hold, closing(sqlite3.connect("report.db")) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS report (id PRIMARY KEY, token, text)")
        db.execute("INSERT OR IGNORE INTO report VALUES (1, 0, NULL)")
        row = (hold.token, "new", hold.token)
        written = db.execute("UPDATE report SET token = ?, text = ? WHERE id = 1 AND token <= ?", row).rowcount
except solo.Busy as busy:
    raise SystemExit(f"still held by {[holder.launcher for holder in busy.holders]}")
if not written:
    raise SystemExit("a newer report is there")

# Its names, queue and history are those of the command line.
solo.run(["backup.sh", "--full"], name="backup", check=True)
