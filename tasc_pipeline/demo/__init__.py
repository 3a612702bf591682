"""The main job, start to end, on servers that the demo starts and stops itself."""
