"""What the commands in the Makefile call."""
