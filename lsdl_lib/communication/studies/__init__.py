"""Studies of the communication chapters: each module is one sweep, run by one command."""
