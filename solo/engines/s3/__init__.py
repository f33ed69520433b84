"""Object stores that speak the protocol of Amazon S3."""
