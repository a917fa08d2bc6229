"""IO shells around services and models, one file each."""
