"""Drift: whether a model still answers as well as it did, by region and model, with false alarms under control"""
