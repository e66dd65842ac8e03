"""What runs in every process of a trial: standard library, numpy and one framework, nothing else.

This package imports nothing of the rest of trainscale. It is copied to other machines and run in other environments by
start.py, under any Python from 3.9.
"""
