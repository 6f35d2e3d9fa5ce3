"""In which order slices of gradients travel: as they become ready, or the first layers' first.

The backward pass makes the last layers' gradients first. The next forward pass needs the first
layers' parameters first. So whenever the network is free, the slice of the lowest layer among those
that are ready should go (Jayarajan et al. 2019; Peng et al. 2019). Slices are small, so that one
that has begun does not hold up a more urgent one for long.
"""

import heapq


def by_priority(ready, costs):
    """Simulate a network that always sends the most urgent slice that is ready.

    Args:
        ready: for each layer, when its gradients are there, in seconds.
        costs: for each layer, the seconds that each of its slices takes.

    Returns:
        list of (layer, slice, start, end), in the order of sending.
    """
    coming = sorted((moment, layer) for layer, moment in enumerate(ready))
    urgent, sent, free = [], [], 0.0
    while coming or urgent:
        if not urgent:
            free = max(free, coming[0][0])
        while coming and coming[0][0] <= free:
            _, layer = coming.pop(0)
            for slice_ in range(len(costs[layer])):
                heapq.heappush(urgent, (layer, slice_))
        if urgent:
            layer, slice_ = heapq.heappop(urgent)
            sent.append((layer, slice_, free, free + costs[layer][slice_]))
            free = sent[-1][-1]
    return sent


def in_order(order, ready, costs):
    """Simulate a network that sends slices in a given order.

    Args:
        order: list of (layer, slice).
        ready, costs: as in :func:`by_priority`.

    Returns:
        As :func:`by_priority`.
    """
    sent, free = [], 0.0
    for layer, slice_ in order:
        start = max(free, ready[layer])
        free = start + costs[layer][slice_]
        sent.append((layer, slice_, start, free))
    return sent


def as_ready(ready, costs):
    """Return the order (layer, slice) of a network that sends what is ready first, first."""
    layers = sorted(range(len(ready)), key=lambda layer: ready[layer])
    return [(layer, slice_) for layer in layers for slice_ in range(len(costs[layer]))]
