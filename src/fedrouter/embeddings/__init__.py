"""Embeddings in memory or in a file: read in blocks, and fingerprints of them"""
