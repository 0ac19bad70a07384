"""What is measured on: devices, their energy, the software, what else the machine does."""
