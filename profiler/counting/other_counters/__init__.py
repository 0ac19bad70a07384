"""What fvcore and thop say of the same network, and why they say it."""
