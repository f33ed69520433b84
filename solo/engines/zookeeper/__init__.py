"""ZooKeeper: entries are ephemeral nodes."""
