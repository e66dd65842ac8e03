"""What runs in every process of a trial, under any Python from 3.9.

It imports the standard library, numpy and one framework, and nothing of the rest of
trainscale: start.py runs it on other machines and in other environments.
"""
