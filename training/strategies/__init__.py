"""A network spread over several processes by PyTorch's own engines: DDP, ZeRO-1, FSDP2."""
