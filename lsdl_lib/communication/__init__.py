"""Communication: collectives from point-to-point messages, and what is built on them."""
