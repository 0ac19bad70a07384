"""SwinIR, which SwinMR is: the network, its blocks, and how they are computed."""
