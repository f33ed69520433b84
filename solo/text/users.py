"""Names of users."""

users: "dict[int, str]" = {}  # by uid


def find_user(uid: int) -> str:
    """Return the name of a user, or the uid if it has none."""
    import pwd

    try:
        return users.get(uid) or users.setdefault(uid, pwd.getpwuid(uid).pw_name)
    except (KeyError, OverflowError):
        return users.setdefault(uid, str(uid))
