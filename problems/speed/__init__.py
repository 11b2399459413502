"""How long steps take: the compiled engines, the paper's Algorithm 4, and loops that only touch memory."""
