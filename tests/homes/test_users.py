"""Every user has one place for names, by uid alone: as cron, ssh and a unit start it, and whatever
becomes of the home directory.

A user without a home of its own gets one by the line that solo prints for root.
"""

import re

import pytest
from home import find_remedy, install_launcher, make_machine  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.tool("unshare", "nsenter", "setpriv")]

# The uid, and its place; None: root must make one, and later /home/www becomes its own home.
HOMES = {
    "root": (0, "/run/solo"),
    "home 0700, without .local": (3001, "/home/alice/.local/state/solo"),
    "www-data, whose home is root's": (33, None),
    "nobody": (65534, None),
    "home /": (3002, None),
    "no passwd entry": (54321, None),
}
IN_MAKE_TEST = {"www-data, whose home is root's", "home 0700, without .local"}
RUN = ("-n", "job", "--", "echo", "ran")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.full] * (name not in IN_MAKE_TEST)) for name in HOMES],
)
def test_user_has_one_place_that_stays(machine, name):
    uid, place = HOMES[name]

    if place is None:
        place = f"/var/lib/solo-users/{uid}"
        status, out, err = machine.solo(uid, *RUN)
        assert (status, out) == (125, "") and machine.solo(uid, "--explain", *RUN) == (
            status,
            out,
            err,
        )
        machine.type(f"umask 077; {find_remedy(err)}")
    holder = machine.start(
        uid, machine.launcher, "-n", "job", "--", "sh", "-c", "echo; read line", HOME="/elsewhere"
    )
    holder.stdout.readline()
    if place.startswith("/var/lib"):  # the home directory becomes the user's own
        entry = f"u:x:{uid}:0::/home/www:/bin/sh"
        machine.type(
            f'chown {uid} /home/www; rest=$(grep -v :{uid}: /etc/passwd); echo "$rest\n{entry}" >/etc/passwd'
        )
        assert machine.type(f"getent passwd {uid}") == f"{entry}\n"

    assert machine.solo(uid, *RUN)[0] == 75
    assert machine.type("find /run /var/lib /home -name '.hold.*' -printf '%h\\n'").split() == [
        f"{place}/job"
    ]
    assert machine.type(f"stat -c '%u %a' {place}").split() == [str(uid), "700"]


def test_nobody_but_root_makes_a_place(machine):
    """And no place of another user counts."""
    machine.type("install -d /var/lib/solo-users")
    for uid in (33, 3001):
        assert machine.run(uid, "mkdir", "/var/lib/solo-users/3001")[0] != 0
    machine.type("install -d -m 700 -o 33 /var/lib/solo-users/3001")

    status, out, err = machine.solo(3001, *RUN)

    assert (status, out) == (125, "") and "belongs to uid 33 " in err
    machine.type(find_remedy(err))
    assert machine.solo(3001, *RUN)[:2] == (0, "ran\n")


@pytest.mark.full
def test_views_doctor_and_clean_know_the_place(machine):
    machine.type("install -d -m 700 -o 33 /var/lib/solo-users/33")
    status, out, err = machine.solo(33, "doctor")
    if status == 125:
        pytest.skip(f"views need libraries: {err}")
    assert (
        "names live in /var/lib/solo-users/33, for uid 33" in out and "as in a container" not in out
    )
    assert machine.solo(33, *RUN)[0] == 0

    assert machine.solo(33, "history")[1].splitlines()[1].startswith("job ")
    assert machine.solo(33, "clean")[1] == "job: removed\n"

    machine.type("chown 33 /home/www")
    out = machine.solo(33, "doctor")[1]
    assert "a run that cannot see /var/lib/solo-users/33, as in a container, uses /home/www/" in out
    remedy = re.search(r"container, uses .* \((.*) stops it\)\n", out)[1]
    assert machine.run(33, "sh", "-c", remedy)[0] == 0
    machine.type("mv /var/lib/solo-users /var/lib/hidden")
    assert machine.solo(33, *RUN)[2].endswith(
        ": it is a link to /var/lib/solo-users/33, which does not exist\n"
    )
