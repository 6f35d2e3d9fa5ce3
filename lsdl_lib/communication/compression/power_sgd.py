"""PowerSGD: send two thin factors of a gradient matrix, found by one step of power iteration.

    P = mean over ranks of M_r Q          first all-reduce   M_r: (n, m), Q: (m, k), k the rank
    P = orthonormal columns of P
    Q_r = M_r' P,  Q = mean of the Q_r    second all-reduce
    mean of the M_r is about P Q'

    numbers sent: (n + m) k in place of n m

P Q' is the projection of the mean matrix on the columns of P. Q is kept for the next step (warm
start), so that over steps in which the gradient changes little, P turns to the k largest singular
directions: one iteration a step is enough (Vogels et al. 2019, algorithms 1 and 2).

Factors can be added on the way, as gradients can: the all-reduce's bytes do not grow with the
number of ranks, and every rank decompresses once.

Lost of rank r's matrix is M_r - P Q_r', what its own factor does not say. Their sum over ranks is
what the mean does not say, so the sum of all gradients is kept. Compression is biased: use
:class:`ErrorFeedback`. Momentum comes after it, in the optimizer.
"""

from math import prod

import torch

from lsdl_lib.communication.compression.compressor import Compressor
from lsdl_lib.communication.compression.matrices import matrix_shape, working_type
from lsdl_lib.communication.compression.orthogonal import orthogonalize


class PowerSGD(Compressor):
    """Average matrices by two factors of a given rank; other tensors as they are.

    All factors of a vector travel in two messages. With the first go the tensors that are no
    matrices, and the matrices for which factors save too little. Half types are computed and sent
    in float32. A gradient that is not finite makes the whole average NaN, and changes no state.

    Args:
        rank: columns of the factors; a matrix has no more than its smaller side.
        min_compression_rate: a matrix is compressed if that divides its bytes by more than this.
            0: compress all.
        warm_start: begin with the last step's Q; False: with a random one each step.
        seed: of Q's first values, the same on every rank.

    Raises:
        ValueError: a rank below 1, or a rate below 0.
    """

    by_tensor = True

    def __init__(self, rank, *, min_compression_rate=1, warm_start=True, seed=0):
        if not (isinstance(rank, int) and rank >= 1):
            raise ValueError(f"rank={rank!r}: give a whole number of columns, at least 1")
        if not min_compression_rate >= 0:
            raise ValueError(f"min_compression_rate={min_compression_rate!r}: give at least 0")
        self.rank, self.min_compression_rate = rank, min_compression_rate
        self.warm_start = warm_start
        self._seed, self._generator = seed, None
        self._factors = {}  # key -> (sizes of the blocks, all Q' one behind the other)

    def aggregate(self, vector, peers, key=0, shapes=None):
        """As :meth:`Compressor.aggregate`, with two all-reduces."""
        return self.aggregate_(vector.clone(), peers, key, shapes)

    def aggregate_(self, vector, peers, key=0, shapes=None):
        """As :meth:`aggregate`, in place: the vector becomes the residual.

        A large new tensor costs more than all the arithmetic on it, since the system must give
        its memory page by page. If the mean is not finite, the vector is unchanged.
        """
        layout = self._layout([vector.shape] if shapes is None else shapes, vector.dtype)
        wide = vector.to(working_type(vector.dtype))
        matrices, rest = layout.sort(wide)

        q_blocks = self._start(key, layout, wide)
        message = wide.new_empty(layout.p_numbers + sum(part.numel() for part in rest))
        p_blocks, sent_rest = layout.p_blocks(message), message[layout.p_numbers :]
        for p, q, matrix in zip(_each(p_blocks), _each(q_blocks), matrices):
            p.copy_((matrix @ q.T).T)
        if rest:
            torch.cat(rest, out=sent_rest)
        peers.mean_(message)
        if not torch.isfinite(message).all():  # on all ranks, since the message is the same
            return torch.full_like(vector, torch.nan), vector

        for block in p_blocks:
            orthogonalize(block, self._random(wide.device))
        own = wide.new_empty(layout.q_numbers)
        for p, q, matrix in zip(_each(p_blocks), _each(layout.q_blocks(own)), matrices):
            torch.mm(p, matrix, out=q)
        mean_q = peers.mean_(own.clone())
        if not torch.isfinite(mean_q).all():
            return torch.full_like(vector, torch.nan), vector
        if self.warm_start:
            self._keep(key, layout, mean_q, q_blocks)

        mean = torch.empty_like(wide)
        said, said_rest = layout.sort(mean)
        factors = p_blocks, layout.q_blocks(mean_q), layout.q_blocks(own)
        for p, q, own_q, out, matrix in zip(*map(_each, factors), said, matrices):
            torch.mm(p.T, q, out=out)
            matrix.addmm_(p.T, own_q, alpha=-1)
        for part, out, left in zip(sent_rest.split([r.numel() for r in rest]), said_rest, rest):
            out.copy_(part)
            left.zero_()
        return mean.to(vector.dtype), vector.copy_(wide)

    def forget(self, key):
        """Start with a random Q again."""
        self._factors.pop(key, None)

    def state_dict(self):
        """Return the factors Q and the generator's state."""
        state = {"factors": dict(self._factors)}
        if self._generator is not None:
            state["generator"] = self._generator.get_state()
            state["device"] = str(self._generator.device)
        return state

    def load_state_dict(self, state):
        """Go on from a saved state."""
        self._factors = {key: (blocks, q.clone()) for key, (blocks, q) in state["factors"].items()}
        self._generator = None
        if "generator" in state:
            self._generator = torch.Generator(state["device"])
            self._generator.set_state(state["generator"].cpu())

    def _layout(self, shapes, dtype):
        wider = working_type(dtype).itemsize / dtype.itemsize

        def columns(n, m):
            k = min(self.rank, n, m)
            return k if (n + m) * k * wider * self.min_compression_rate < n * m else 0

        return Layout(shapes, columns)

    def _random(self, device):
        if self._generator is None:
            self._generator = torch.Generator(device).manual_seed(self._seed)
        return self._generator

    def _start(self, key, layout, like):
        """Return the blocks of Q' that this step begins with."""
        blocks, q = self._factors.get(key, (None, None))
        if blocks != layout.blocks or q.dtype != like.dtype:
            options = {"dtype": like.dtype, "device": like.device}
            generator = self._random(like.device)
            q = torch.randn(layout.q_numbers, generator=generator, **options)
        return layout.q_blocks(q)

    def _keep(self, key, layout, mean_q, q_blocks):
        """Keep Q for the next step: only its columns' directions count, so they get one size.

        A column of zeros would give zeros for ever. Its old one stays.
        """
        kept = torch.empty_like(mean_q)
        blocks = layout.q_blocks(kept), layout.q_blocks(mean_q), q_blocks
        for out, new, old in zip(*blocks):
            size = new.abs().amax(dim=-1, keepdim=True)
            torch.where(size > 0, new / size, old, out=out)
        self._factors[key] = layout.blocks, kept


class Layout:
    """Which tensors of a vector travel as factors, and where these lie in the messages.

    Matrices of one shape are neighbors there, so that they are orthogonalized together. Factors
    are transposed: a column of P or Q is contiguous.

    Attributes:
        blocks: ((b, k, n, m), ...): b matrices of shape (n, m), with k columns in their factors.
        p_numbers, q_numbers: of all factors.

    Args:
        shapes: of the tensors that lie one behind the other in the vector.
        columns: fn(n, m) -> k; 0: send the matrix as it is.
    """

    def __init__(self, shapes, columns):
        self._shapes, self._rest, groups = shapes, [], {}
        for place, shape in enumerate(shapes):
            n, m = matrix_shape(shape) or (0, 0)
            if n and (k := columns(n, m)):
                groups.setdefault((k, n, m), []).append(place)
            else:
                self._rest.append(place)
        self._matrices = [place for places in groups.values() for place in places]
        self.blocks = tuple((len(places), *sizes) for sizes, places in groups.items())
        self.p_numbers = sum(b * k * n for b, k, n, _ in self.blocks)
        self.q_numbers = sum(b * k * m for b, k, _, m in self.blocks)

    def sort(self, vector):
        """Return (matrices, rest): views of the vector; (n, m) in the order of the blocks."""
        parts = vector.split([prod(shape) for shape in self._shapes])
        matrices = [parts[place].view(self._shapes[place][0], -1) for place in self._matrices]
        return matrices, [parts[place] for place in self._rest]

    def p_blocks(self, message):
        """Return views (b, k, n) of a message that begins with all P'."""
        return _views(message, [(b, k, n) for b, k, n, _ in self.blocks])

    def q_blocks(self, message):
        """Return views (b, k, m) of a message of all Q'."""
        return _views(message, [(b, k, m) for b, k, _, m in self.blocks])


def _views(vector, shapes):
    sizes = [prod(shape) for shape in shapes]
    parts = vector[: sum(sizes)].split(sizes) if sizes else ()
    return [part.view(shape) for part, shape in zip(parts, shapes)]


def _each(blocks):
    return [factor for block in blocks for factor in block]
