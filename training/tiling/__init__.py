"""How far a network looks, and images taken through it in tiles."""
