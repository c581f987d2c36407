"""Reproducing the paper: every table and figure as data, run and compared with the paper's figures."""
