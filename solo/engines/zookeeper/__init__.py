"""The lock as sequential nodes of ZooKeeper."""
