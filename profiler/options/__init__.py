"""What the options and exit statuses of all commands share."""
