"""Every user has one place for names, by uid alone: as cron, ssh and a unit start it, and whatever
becomes of the home directory.

A user without a home of its own gets one by the line that solo prints for root.
"""

import re

import pytest
from conftest import PATIENCE
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


def test_root_learns_which_user_without_a_home_has_a_name(machine):
    machine.type("install -d -m 700 -o 33 /var/lib/solo-users/33")
    for uid, name in (33, "webjob"), (0, "webjobs"):
        assert machine.solo(uid, "-n", name, "true")[0] == 0

    status, _, err = machine.solo(0, "history", "webjob")

    assert status == 125 and err.endswith(" (as that user: runuser -u www-data -- solo ...)\n")
    assert machine.solo(0, "history", "webjbos")[2].endswith(" (did you mean webjobs?)\n")


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


def list_places(machine):
    return machine.type("cd /var/lib/solo-users && stat -c '%n %u %a' * || true").splitlines()


def test_doctor_fix_makes_places_for_accounts_without_a_home(machine):
    """Never for nobody, which many share, nor beside names that an account has."""
    machine.type("echo 'late:x:3003:3003::/home/late:/bin/sh' >>/etc/passwd")
    machine.type("echo 'kept:x:3004:3004::/home/kept:/bin/sh' >>/etc/passwd")
    machine.type("mkdir -p /home/kept/.local/state/solo")
    assert machine.solo(33, *RUN)[0] == 125

    status, out, err = machine.solo(0, "doctor", "--fix")

    assert (status, err) == (0, "")
    assert "www-data: names live in /var/lib/solo-users/33 now\n" in out
    places = list_places(machine)
    assert {"33 33 700", "3002 3002 700", "3003 3003 700"} <= {*places}
    assert {"0", "3001", "3004", "65534"}.isdisjoint(place.split()[0] for place in places)
    assert machine.solo(33, *RUN)[:2] == (0, "ran\n")
    assert machine.solo(0, "doctor", "--fix") == (0, "", "") and list_places(machine) == places


def test_doctor_fix_refuses_to_move_names_while_a_job_runs(machine):
    holder = machine.start(
        3001, machine.launcher, "-n", "job", "--", "sh", "-c", "echo; read line", HOME="/elsewhere"
    )
    holder.stdin.write("")
    holder.stdout.readline()

    status, out, err = machine.solo(0, "doctor", "--fix", "alice")

    assert (status, out, list_places(machine)) == (125, "", [])
    assert err.startswith(
        "solo: alice: cannot move its names: /home/alice/.local/state/solo/job/.hold."
    )
    assert machine.solo(3001, *RUN)[0] == 75
    holder.communicate("\n", timeout=PATIENCE)
    kept = machine.solo(3001, "history", "job")[1]
    status, _, err = machine.solo(0, "doctor", "--fix", "alice")
    assert status == 0 and list_places(machine) == ["3001 3001 700"]
    assert machine.solo(3001, "history")[1] != kept
    machine.type(re.search(r"\(to keep them: (.*)\)\n", err)[1])
    assert machine.solo(3001, "history", "job")[1] == kept != ""
    assert machine.solo(3001, *RUN)[0] == 0


def test_journals_that_root_took_are_given_back_by_the_remedy(machine):
    """It removed them, so that a run of --once-per came twice."""
    once = ("-n", "pay", "--once-per", "24h", "--", "echo", "paid")
    assert machine.solo(3001, *once) == (0, "paid\n", "")
    machine.type("chown root /home/alice/.local/state/solo/.journals")

    status, _, err = machine.solo(3001, *once)
    machine.type(find_remedy(err))

    assert status == 125 and machine.solo(3001, *once) == (0, "", "")


@pytest.mark.parametrize(
    "uid, user, reason",
    [
        (
            0,
            "nobody",
            "nobody: cannot make a place for its names: too many services share this account",
        ),
        (0, "root", "root: cannot make a place for its names: root has one"),
        (0, "nosuch", "nosuch: this machine has no such user"),
        (3001, "alice", "only root can make places for names (as root: solo doctor --fix)"),
    ],
)
def test_doctor_fix_refuses_users(machine, uid, user, reason):
    assert machine.solo(uid, "doctor", "--fix", user) == (125, "", f"solo: {reason}\n")


def test_uid_without_account_in_a_container_of_the_hosts_root_gets_a_line_that_works(machine):
    """Chowning the mounted /run/solo would lock out the host's root."""
    machine.type("mkdir /run/solo && mount -t tmpfs -o mode=700 tmpfs /run/solo")

    status, out, err = machine.solo(12345, *RUN, SOLO_DIR="/run/solo")

    assert (status, out) == (125, "") and "chown" not in err
    [line, place] = re.search(
        r"\(on the host, as root: (.*); then mount (.*) here instead\)", err
    ).groups()
    machine.type(f"{line} && mount --bind {place} /run/solo")
    assert machine.solo(12345, *RUN, SOLO_DIR="/run/solo")[:2] == (0, "ran\n")
    machine.type(f"umount /run/solo; rm -r {place}")
    _, _, err = machine.solo(12345, *RUN)
    assert "without a file: --via socket" in err
    assert machine.solo(12345, "--via", "socket", *RUN)[:2] == (0, "ran\n")
