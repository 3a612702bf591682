"""Runtimes: what each pinned build can do, how its requests are built and how its answers are read.

One module per runtime holds its table (``vllm``, ``sglang``, ...); ``dialects`` holds the readers that the tables
drive. Nothing here opens a socket, reads a clock or keeps a text.
"""
