"""Names of users."""

users: dict[int, str] = {}  # by uid


def find_user(uid: int) -> str:
    """Return the name of a user, or the uid if it has none."""
    import pwd

    if uid not in users:
        try:
            users[uid] = pwd.getpwuid(uid).pw_name
        except (KeyError, OverflowError):
            users[uid] = str(uid)
    return users[uid]
