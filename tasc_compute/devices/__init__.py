"""What accelerators, memory, disks and sensors this host has, and what they are doing now. Reads, never changes."""
